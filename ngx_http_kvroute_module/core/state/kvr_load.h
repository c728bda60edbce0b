
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_LOAD_H_INCLUDED_
#define _KVR_LOAD_H_INCLUDED_


/*
 * The work of each peer: requests in flight ("active") and prompt bytes still
 * to be prefilled ("pending").
 *
 * Ownership.  There are no totals.  Each process has a row of words, one for
 * each peer or member, and only the row's owner writes to it, by plain stores;
 * a load is the sum of a column.  If the owner dies, another process takes
 * over the row: it makes itself the sweeper and zeroes the words.  Zeroing can
 * be repeated and interrupted anywhere.  So sums are exact after a sweep,
 * wherever the owner was killed.
 *
 * A process also notes in its row a lock that it holds, so that the sweeper can
 * release it.
 *
 * If all rows are taken, further processes share the last one, which is written
 * by compare and swap and cannot be swept.
 */


#include "core/base/kvr_core.h"


/* a word: requests in the upper 24 bits, bytes in the lower 40 */
#define KVR_LOAD_BYTES_BITS  40
#define KVR_LOAD_BYTES_MASK  ((1ULL << KVR_LOAD_BYTES_BITS) - 1)


/* a process: its id in the upper half, its start time in the lower */
typedef uint64_t  kvr_load_owner_t;

/*
 * One row may be that of other hosts.  It has no owner here, and is not swept;
 * the process that receives their reports writes it.
 */
#define KVR_LOAD_REMOTE  ((kvr_load_owner_t) 1)

#define kvr_load_owner(pid, started)                                          \
    ((uint64_t) (uint32_t) (pid) << 32 | (uint32_t) (started))


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t   owner;        /* 0: free */
    _Atomic uint64_t   sweeper;      /* process that is zeroing, or 0 */
    _Atomic uint64_t   generation;   /* configuration of the owner */
    _Atomic uint64_t   held;         /* the lock that it holds, or 0 */
} kvr_load_row_t;


typedef struct {
    uint32_t           rows;         /* without the shared one */
    uint32_t           columns;
    uint32_t           stride;       /* words from row to row */
    _Atomic uint32_t   high;         /* rows from here on were never used */
    _Atomic uint32_t   remote;       /* row of other hosts + 1; 0: none */

    kvr_load_row_t     row[];

    /* words[rows + 1][stride]: columns, and bits of the columns in use */
} kvr_load_t;


typedef struct {
    uint32_t           active;
    uint64_t           pending;
} kvr_load_sum_t;


/* Tells whether the process that owned a row still exists. */
typedef int (*kvr_load_alive_pt)(void *data, kvr_load_owner_t owner);

/*
 * Releases what a dead owner holds: row->held, which is not 0; clears it first.
 * KVR_AGAIN: not possible now, nothing was changed.
 */
typedef int (*kvr_load_drop_pt)(void *data, kvr_load_row_t *row);

/*
 * Corrects counters elsewhere by a word of a dead owner's row, which is not 0.
 * Subtracts from the word before it corrects, as correcting twice would be
 * worse than never.  The sweeper clears the rest, unless KVR_AGAIN is
 * returned.
 */
typedef int (*kvr_load_heal_pt)(void *data, kvr_load_row_t *row,
    uint32_t column, _Atomic uint64_t *word);


/* words for one bit of each column */
#define kvr_load_names_words(columns)  (((columns) + 63) / 64)

/* columns: from 1 */
size_t kvr_load_size(uint32_t rows, uint32_t columns);

/* Sets up a table in zeroed memory, aligned to KVR_CACHE_LINE. */
void kvr_load_init(kvr_load_t *load, uint32_t rows, uint32_t columns);

/*
 * Takes the lowest free row for a process.  Returns its number, or load->rows,
 * the shared one, if all are taken.
 */
uint32_t kvr_load_claim(kvr_load_t *load, kvr_load_owner_t owner,
    uint64_t generation);

/*
 * Gives back a row at a clean exit.  If it still counts something it is left to
 * be swept.
 */
void kvr_load_release(kvr_load_t *load, uint32_t row);

/* Notes that the owner's configuration uses a column. */
void kvr_load_name(kvr_load_t *load, uint32_t row, uint32_t column);

/* Notes that it uses the columns of these bits, and no others. */
void kvr_load_rename(kvr_load_t *load, uint32_t row, const uint64_t *names);

/* Tells whether a column is used by any configuration or counts anything. */
int kvr_load_used(kvr_load_t *load, uint32_t column);

/*
 * Heals and frees the rows of dead processes; returns how many.  A row with
 * postponed work stays for the next sweep.  If drop and heal are NULL, rows are
 * only cleared.
 */
uint32_t kvr_load_sweep(kvr_load_t *load, kvr_load_owner_t self,
    kvr_load_alive_pt alive, kvr_load_drop_pt drop, kvr_load_heal_pt heal,
    void *data);

/*
 * Notes what the row's owner holds, 0: nothing.  Call it after taking the lock
 * with its address, and before releasing it with 0.
 */
static inline void
kvr_load_hold(kvr_load_t *load, uint32_t row, uint64_t held)
{
    kvr_set(&load->row[row].held, held);
}

static inline _Atomic uint64_t *
kvr_load_words(kvr_load_t *load, uint32_t row)
{
    return (_Atomic uint64_t *) (void *) &load->row[load->rows + 1]
           + (size_t) row * load->stride;
}


/* Adds to both halves; neither may borrow from the other. */
static inline uint64_t
kvr_load_change(uint64_t word, int32_t active, int64_t pending)
{
    int64_t  a, p;

    a = (int64_t) (word >> KVR_LOAD_BYTES_BITS) + active;
    p = (int64_t) (word & KVR_LOAD_BYTES_MASK) + pending;

    /* nearly always */

    if (kvr_likely((uint64_t) a < 1U << (64 - KVR_LOAD_BYTES_BITS)
                   && (uint64_t) p <= KVR_LOAD_BYTES_MASK))
    {
        return (uint64_t) a << KVR_LOAD_BYTES_BITS | (uint64_t) p;
    }

    a = kvr_min(kvr_max(a, 0), (1 << (64 - KVR_LOAD_BYTES_BITS)) - 1);
    p = kvr_min(kvr_max(p, 0), (int64_t) KVR_LOAD_BYTES_MASK);

    return (uint64_t) a << KVR_LOAD_BYTES_BITS | (uint64_t) p;
}


/*
 * Counts requests and bytes in or out; for the row's owner only.  Inline, as
 * each request is counted in three columns, three times.
 */
static inline void
kvr_load_add(kvr_load_t *load, uint32_t row, uint32_t column, int32_t active,
    int64_t pending)
{
    uint64_t           old;
    _Atomic uint64_t  *word;

    word = kvr_load_words(load, row) + column;
    old = atomic_load_explicit(word, memory_order_relaxed);

    if (kvr_likely(row < load->rows)) {
        atomic_store_explicit(word, kvr_load_change(old, active, pending),
                              memory_order_relaxed);
        return;
    }

    while (!atomic_compare_exchange_weak(word, &old,
                                         kvr_load_change(old, active,
                                                         pending)))
    {
        /* void */
    }
}


/* Returns the bits of the columns that a row's owner uses. */
static inline _Atomic uint64_t *
kvr_load_names(kvr_load_t *load, uint32_t row)
{
    return kvr_load_words(load, row) + load->columns;
}


static inline kvr_load_sum_t
kvr_load_split(uint64_t word)
{
    kvr_load_sum_t  sum;

    sum.active = (uint32_t) (word >> KVR_LOAD_BYTES_BITS);
    sum.pending = word & KVR_LOAD_BYTES_MASK;

    return sum;
}


/* location of the rows, for reading many columns */
typedef struct {
    _Atomic uint64_t  *word;     /* of column 0 */
    uint32_t           stride;
    uint32_t           high;     /* rows */
} kvr_load_view_t;


static inline kvr_load_view_t
kvr_load_view(kvr_load_t *load)
{
    kvr_load_view_t  view;

    view.word = kvr_load_words(load, 0);
    view.stride = load->stride;
    view.high = kvr_get(&load->high);

    return view;
}


/* Sums up a column; inline, as each decision calls it for each peer. */
static inline kvr_load_sum_t
kvr_load_seen(const kvr_load_view_t *view, uint32_t column)
{
    uint32_t           n;
    kvr_load_sum_t     sum, part;
    _Atomic uint64_t  *word;

    sum.active = 0;
    sum.pending = 0;

    word = view->word + column;

    for (n = view->high; n; n--, word += view->stride) {
        part = kvr_load_split(kvr_get(word));
        sum.active += part.active;
        sum.pending += part.pending;
    }

    return sum;
}


/* Sums up two columns at once, the second one to *other. */
static inline kvr_load_sum_t
kvr_load_both(const kvr_load_view_t *view, uint32_t column, uint32_t second,
    kvr_load_sum_t *other)
{
    uint32_t           n;
    kvr_load_sum_t     sum, part, more;
    _Atomic uint64_t  *word;

    sum = kvr_load_split(0);
    more = kvr_load_split(0);

    word = view->word + column;
    second -= column;

    for (n = view->high; n; n--, word += view->stride) {
        part = kvr_load_split(kvr_get(word));
        sum.active += part.active;
        sum.pending += part.pending;

        part = kvr_load_split(kvr_get(word + second));
        more.active += part.active;
        more.pending += part.pending;
    }

    *other = more;

    return sum;
}


static inline kvr_load_sum_t
kvr_load_get(kvr_load_t *load, uint32_t column)
{
    kvr_load_view_t  view;

    view = kvr_load_view(load);

    return kvr_load_seen(&view, column);
}


/* Returns the part of other hosts. */
static inline kvr_load_sum_t
kvr_load_elsewhere(kvr_load_t *load, uint32_t column)
{
    uint32_t  remote;

    remote = kvr_get(&load->remote);

    return kvr_load_split(remote ? kvr_get(kvr_load_words(load, remote - 1)
                                           + column) : 0);
}


/* Returns the part of this host. */
static inline kvr_load_sum_t
kvr_load_here(kvr_load_t *load, uint32_t column)
{
    kvr_load_sum_t  sum, part;

    sum = kvr_load_get(load, column);
    part = kvr_load_elsewhere(load, column);

    /* the words were read at different moments */

    sum.active -= kvr_min(part.active, sum.active);
    sum.pending -= kvr_min(part.pending, sum.pending);

    return sum;
}


#endif /* _KVR_LOAD_H_INCLUDED_ */
