
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _INDEX_H_INCLUDED_
#define _INDEX_H_INCLUDED_


/* A table of one process, and operations for the tests of kvr_index. */


#include "util.h"
#include "core/index/kvr_index_line.h"

#include <errno.h>
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>


#define ALL          UINT64_MAX
#define FRACTION     8               /* bits of a clock below one unit */
#define START        1024
#define CLAIM        (1U << 24)      /* units that a claim lasts */

#define LARGE        KVR_INDEX_CAPACITY_MAX


static kvr_index_t  *ix;
static uint32_t      matched[KVR_PEERS];


/* Makes a table that ends with its memory, and peers of one capacity. */
static inline void
table(uint64_t lines, unsigned peers, uint64_t capacity)
{
    char      *p;
    size_t     size, page;
    unsigned   i;

    static char    *last;
    static size_t   last_size;

    if (last) {
        munmap(last, last_size);
    }

    page = (size_t) sysconf(_SC_PAGESIZE);
    size = (kvr_index_size(lines, KVR_PEERS_FEW) + page - 1) / page * page;

    p = mmap(NULL, size + page, PROT_READ|PROT_WRITE,
             MAP_PRIVATE|MAP_ANONYMOUS, -1, 0);

    util_check(p != MAP_FAILED, "mmap: %d", errno);
    util_check(mprotect(p + size, page, PROT_NONE) == 0, "mprotect: %d",
               errno);

    last = p;
    last_size = size + page;

    ix = (kvr_index_t *) (void *) (p + size - kvr_index_size(lines, KVR_PEERS_FEW));

    util_check((uintptr_t) ix % KVR_CACHE_LINE == 0, "not aligned");

    kvr_index_init(ix, lines, KVR_PEERS_FEW);

    for (i = 0; i < peers; i++) {
        kvr_index_flush(ix, i);
        kvr_index_capacity(ix, i, capacity, KVR_INDEX_ASSUMED);
    }
}


/* Returns the n-th value of the chain with this name. */
static inline uint64_t
value(uint64_t name, uint32_t n)
{
    util_rng_t  r;

    r.state = kvr_mix(name + 1, n + 1);

    return util_next(&r);
}


static inline void
chain(uint64_t *out, uint64_t name, uint32_t from, uint32_t n)
{
    for ( /* void */ ; from < n; from++) {
        out[from] = value(name, from);
    }
}


static inline kvr_index_undo_t
learn(const uint64_t *c, uint32_t n, unsigned peer, uint32_t known)
{
    kvr_index_undo_t  undo;

    kvr_index_insert(ix, c, n, n ? kvr_chain_depth(n - 1) : 0, peer, known,
                     &undo);

    return undo;
}


static inline uint32_t
lookup(const uint64_t *c, uint32_t n, unsigned peer)
{
    (void) kvr_index_lookup(ix, c, n, util_set(ALL), matched);

    return matched[peer];
}


/* The peer computes this many units of other prompts. */
static inline void
compute(unsigned peer, uint64_t units)
{
    uint32_t          n;
    uint64_t          c[1];
    kvr_index_undo_t  undo;

    static uint64_t  name = 1ULL << 60;

    for ( /* void */ ; units; units -= n) {
        n = (uint32_t) kvr_min(units, 1000);
        c[0] = value(name++, 0);
        kvr_index_insert(ix, c, 1, n, peer, 0, &undo);
    }
}


/* Reads each line of the whole table. */
static inline void
sweep(unsigned peer)
{
    uint64_t  hand;

    for (hand = ix->hand;
         ix->hand - hand < 2 * kvr_line_turns(ix) * ix->nlines;
         /* void */)
    {
        compute(peer, 4 * 1000);
    }
}


static inline kvr_index_line_t *
find(uint64_t key)
{
    uint64_t  i;

    for (i = 0; i < ix->nlines; i++) {
        if (ix->line[i].key == (key & ~1ULL)) {
            return &ix->line[i];
        }
    }

    return NULL;
}


/* Frees a line as a sweep does. */
static inline void
lose(kvr_index_line_t *line)
{
    line->key = 0;
    atomic_store(kvr_tag_line(ix, line), 0);
}


/* Advances all clocks, of peers and of the table, by this many units. */
static inline void
set_clocks(uint64_t peer, uint64_t all)
{
    unsigned  i;

    for (i = 0; i < ix->max_peers; i++) {
        kvr_index_peer(ix, i)->clock = peer << FRACTION;
        kvr_index_peer(ix, i)->floor = peer;
        kvr_index_peer(ix, i)->since = all;
    }

    ix->clock = all;
}


static inline unsigned
bits(uint64_t set)
{
    return (unsigned) __builtin_popcountll(set);
}


#endif /* _INDEX_H_INCLUDED_ */
