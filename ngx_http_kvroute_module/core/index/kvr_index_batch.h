
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_GROUP_H_INCLUDED_
#define _KVR_GROUP_H_INCLUDED_


/*
 * Entries of a chain, some at a time: so that the hints of the next ones come
 * from memory, and the lines behind those, while these are worked at.  To be
 * called with all m entries that are left; a group takes KVR_GROUP of them.
 */


#include "core/index/kvr_index_line.h"


#define KVR_GROUP  32


typedef struct {
    uint64_t           key[KVR_GROUP];

    union {
        uint64_t           bucket[KVR_GROUP];
        kvr_index_line_t  *line[KVR_GROUP];  /* by kvr_group_lines() */
    };

    uint32_t           absent;           /* bits: a line would be put there */
} kvr_group_t;


/* finds out where the hints are, and has them fetched */
static inline void
kvr_group_hints(kvr_index_t *ix, kvr_group_t *g, const uint64_t *chain,
    uint32_t m)
{
    uint32_t     k;
    uint64_t     n, key, nbuckets;
    kvr_hint_t  *hints;

    m = kvr_min(m, KVR_GROUP);

    nbuckets = ix->nbuckets;
    hints = kvr_hint_bucket(ix, 0);

    for (k = 0; k < m; k++) {
        key = kvr_index_key(chain[k]);
        n = kvr_reduce(key, nbuckets);

        __builtin_prefetch(&hints[n]);

        g->key[k] = key;
        g->bucket[k] = n;
    }
}


/* which lines these are, or take the place of, and has them fetched */
static inline void
kvr_group_lines(kvr_index_t *ix, kvr_group_t *g, uint32_t m, unsigned epoch)
{
    uint32_t           k, absent;
    uint64_t           n, word, match;
    kvr_hint_t        *hints;
    kvr_index_line_t  *line;

    m = kvr_min(m, KVR_GROUP);

    hints = kvr_hint_bucket(ix, 0);
    absent = 0;

    for (k = 0; k < m; k++) {

        n = g->bucket[k];
        line = &ix->line[n * KVR_INDEX_WAYS];

        word = kvr_get(&hints[n].word);
        match = kvr_hint_match(word, kvr_hint_tag(g->key[k]));

        if (match) {
            line += kvr_hint_way(match);

        } else {
            line += kvr_hint_victim(word, epoch);
            absent |= 1U << k;
        }

        __builtin_prefetch(line);

        g->line[k] = line;
    }

    g->absent = absent;
}


/* has the line fetched in which an entry may be */
static inline void
kvr_group_near(kvr_index_t *ix, uint64_t h)
{
    uint64_t  key, n, match;

    key = kvr_index_key(h);
    n = kvr_reduce(key, ix->nbuckets);

    match = kvr_hint_match(kvr_get(&kvr_hint_bucket(ix, n)->word),
                           kvr_hint_tag(key));

    if (match) {
        __builtin_prefetch(&ix->line[n * KVR_INDEX_WAYS
                                     + kvr_hint_way(match)]);
    }
}


#endif /* _KVR_GROUP_H_INCLUDED_ */
