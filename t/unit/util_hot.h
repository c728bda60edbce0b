
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _UTIL_HOT_H_INCLUDED_
#define _UTIL_HOT_H_INCLUDED_


#include "core/hot/kvr_hot.h"


/* Returns the count of a key; 0 if it is below 1/4. */
static inline double
util_hot_count(kvr_hot_t *p, uint32_t key, uint64_t now)
{
    kvr_hot_keys_t  keys = { .n = 1, .entries = 1, .key = { key } };
    kvr_hot_view_t  view;

    kvr_hot_view(p, &keys, now, &view);

    return view.n ? view.count[0] : 0;
}


#endif /* _UTIL_HOT_H_INCLUDED_ */
