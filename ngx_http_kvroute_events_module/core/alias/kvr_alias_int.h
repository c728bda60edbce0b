
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ALIAS_INT_H_INCLUDED_
#define _KVR_ALIAS_INT_H_INCLUDED_


/* Runs, for kvr_alias.c. */


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


/* Returns the i-th name of a run; 0: not known. */
static inline uint64_t
kvr_alias_name(const kvr_alias_view_t *v, kvr_alias_run_t *run, uint32_t i)
{
    return kvr_get(&v->name[(kvr_get(&run->name) + i) % kvr_alias_names(v->n)]);
}


/* Moves to the run that this one continues; returns 0 if it is not there. */
int kvr_alias_run_before(const kvr_alias_view_t *v, uint64_t *number);

/* Finds the run that ends a request, which stored the blocks begin..end - 1. */
kvr_alias_e kvr_alias_run_find(const kvr_alias_view_t *v,
    const kvr_alias_request_t *r, uint32_t begin, uint32_t end,
    uint64_t *number);


#endif /* _KVR_ALIAS_INT_H_INCLUDED_ */
