
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_BATCH_H_INCLUDED_
#define _KVR_BATCH_H_INCLUDED_


/*
 * Handles entries of a chain in groups: while one group is processed, the tags
 * of the next are fetched from memory, and the lines that they name.  The
 * functions are called with the number of entries that are left, m; a group has
 * at most KVR_BATCH.
 */


#include "core/index/kvr_index_line.h"


#define KVR_BATCH  32


typedef struct {
    uint64_t           key[KVR_BATCH];

    union {
        uint64_t           bucket[KVR_BATCH];
        kvr_index_line_t  *line[KVR_BATCH];  /* by kvr_batch_lines() */
    };

    uint32_t           absent;           /* bits: entries without a line */
} kvr_batch_t;


/* Locates the tags of a group and prefetches them. */
static inline void
kvr_batch_tags(kvr_index_t *ix, kvr_batch_t *g, const uint64_t *chain,
    uint32_t m)
{
    uint32_t     k;
    uint64_t     n, key, nbuckets;
    kvr_tag_t   *tags;

    m = kvr_min(m, KVR_BATCH);

    nbuckets = ix->nbuckets;
    tags = kvr_tag_bucket(ix, 0);

    for (k = 0; k < m; k++) {
        key = kvr_index_key(chain[k]);
        n = kvr_reduce(key, nbuckets);

        __builtin_prefetch(&tags[n]);

        g->key[k] = key;
        g->bucket[k] = n;
    }
}


/* Locates the lines, or those to be replaced, and prefetches them. */
static inline void
kvr_batch_lines(kvr_index_t *ix, kvr_batch_t *g, uint32_t m, unsigned epoch)
{
    uint32_t           k, absent;
    uint64_t           n, word, match;
    kvr_tag_t         *tags;
    kvr_index_line_t  *line;

    m = kvr_min(m, KVR_BATCH);

    tags = kvr_tag_bucket(ix, 0);
    absent = 0;

    for (k = 0; k < m; k++) {

        n = g->bucket[k];
        line = &ix->line[n * KVR_INDEX_WAYS];

        word = kvr_get(&tags[n].word);
        match = kvr_tag_match(word, kvr_tag_key(g->key[k]));

        if (match) {
            line += kvr_tag_way(match);

        } else {
            line += kvr_tag_victim(word, epoch);
            absent |= 1U << k;
        }

        __builtin_prefetch(line);

        g->line[k] = line;
    }

    g->absent = absent;
}


/* Prefetches the line that may have an entry. */
static inline void
kvr_batch_near(kvr_index_t *ix, uint64_t h)
{
    uint64_t  key, n, match;

    key = kvr_index_key(h);
    n = kvr_reduce(key, ix->nbuckets);

    match = kvr_tag_match(kvr_get(&kvr_tag_bucket(ix, n)->word),
                          kvr_tag_key(key));

    if (match) {
        __builtin_prefetch(&ix->line[n * KVR_INDEX_WAYS
                                     + kvr_tag_way(match)]);
    }
}


#endif /* _KVR_BATCH_H_INCLUDED_ */
