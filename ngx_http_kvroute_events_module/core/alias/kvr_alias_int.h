
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ALIAS_INT_H_INCLUDED_
#define _KVR_ALIAS_INT_H_INCLUDED_


/* Runs, for who looks for aliases in them. */


#include "core/alias/kvr_alias.h"


/* of n cells: */
#define kvr_alias_names(n)    ((n) * 4)
#define kvr_alias_runs(n)     ((n) / 2)
#define kvr_alias_anchors(n)  ((n) / 8)


static inline kvr_alias_run_t *
kvr_alias_run(const kvr_alias_view_t *v, uint64_t number)
{
    return &v->run[number % kvr_alias_runs(v->n)];
}


/* the i-th name of a run; 0: it is not known */
static inline uint64_t
kvr_alias_name(const kvr_alias_view_t *v, kvr_alias_run_t *run, uint32_t i)
{
    return kvr_get(&v->name[(kvr_get(&run->name) + i) % kvr_alias_names(v->n)]);
}


/* goes to the run that this one goes on from; 0: it is not there any more */
int kvr_alias_run_before(const kvr_alias_view_t *v, uint64_t *number);

/* the run that ends with the last block of a request, which stored these */
kvr_alias_e kvr_alias_run_find(const kvr_alias_view_t *v,
    const kvr_alias_request_t *r, uint32_t begin, uint32_t end,
    uint64_t *number);


#endif /* _KVR_ALIAS_INT_H_INCLUDED_ */
