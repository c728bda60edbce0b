
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_LOAD_H_INCLUDED_
#define _KVR_LOAD_H_INCLUDED_


/*
 * How much work each peer has: requests in flight ("active") and prompt bytes
 * that it has yet to prefill ("pending").
 *
 * Ownership.  There are no totals.  Each process has a row of words, one for
 * each place that work can be counted in, and only the row's owner writes to
 * it, by plain stores; a load is the sum of a column over the rows.  A process
 * that dies leaves its row as it was; any other may find that the owner is no
 * more and takes the row: it changes the owner to itself, marked as sweeping,
 * and zeroes the words.  Zeroing can be done twice and be broken off anywhere.
 * So the sums are exact after a sweep, wherever the owner was killed.
 *
 * What a process holds elsewhere that is not let go when it is killed, a lock,
 * it notes in its row, so that the sweeper can let it go.
 *
 * When all rows are taken, the processes beyond share the last one, which is
 * written by compare and swap and cannot be swept.
 */


#include "core/base/kvr_core.h"


/* a word: requests in the upper 24 bits, bytes in the lower 40 */
#define KVR_LOAD_BYTES_BITS  40
#define KVR_LOAD_BYTES_MASK  ((1ULL << KVR_LOAD_BYTES_BITS) - 1)


/* a process: its id in the upper half, when it was started in the lower */
typedef uint64_t  kvr_load_owner_t;

/*
 * One row may be that of other hosts.  It belongs to nobody here: whoever hears
 * of them writes to it, and it is not swept.
 */
#define KVR_LOAD_REMOTE  ((kvr_load_owner_t) 1)

#define kvr_load_owner(pid, started)                                          \
    ((uint64_t) (uint32_t) (pid) << 32 | (uint32_t) (started))


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t   owner;        /* 0: free */
    _Atomic uint64_t   sweeper;      /* process that is zeroing, or 0 */
    _Atomic uint64_t   generation;   /* configuration of the owner */
    _Atomic uint64_t   held;         /* what it holds, to whom it may concern */
} kvr_load_row_t;


typedef struct {
    uint32_t           rows;         /* own ones; one more is shared */
    uint32_t           columns;
    uint32_t           stride;       /* words from row to row */
    _Atomic uint32_t   high;         /* no row from here on was ever used */
    _Atomic uint32_t   remote;       /* row of other hosts, and 1; 0: none */

    kvr_load_row_t     row[];

    /* words[rows + 1][stride]: columns, and the names of those it may use */
} kvr_load_t;


typedef struct {
    uint32_t           active;
    uint64_t           pending;
} kvr_load_sum_t;


/* says whether the process that owned a row is still there */
typedef int (*kvr_load_alive_pt)(void *data, kvr_load_owner_t owner);

/*
 * Lets go what a dead owner holds: row->held, which is not 0, and is set to 0
 * before.  KVR_AGAIN: not now, and it is left as it is.
 */
typedef int (*kvr_load_drop_pt)(void *data, kvr_load_row_t *row);

/*
 * Puts counters elsewhere right, by a word of a dead owner's row that is not 0.
 * What is put right is taken from the word before, since twice would be worse
 * than never.  The sweeper clears the rest, unless KVR_AGAIN is returned: not
 * now.
 */
typedef int (*kvr_load_heal_pt)(void *data, kvr_load_row_t *row,
    uint32_t column, _Atomic uint64_t *word);


/* words of names for so many columns, one bit each */
#define kvr_load_names_words(columns)  (((columns) + 63) / 64)

/* columns: from 1 */
size_t kvr_load_size(uint32_t rows, uint32_t columns);

/* sets up in zeroed memory, aligned to KVR_CACHE_LINE */
void kvr_load_init(kvr_load_t *load, uint32_t rows, uint32_t columns);

/*
 * Takes a row for a process: the lowest free one.  Returns its number, or
 * load->rows if all are taken, which is the shared one.
 */
uint32_t kvr_load_claim(kvr_load_t *load, kvr_load_owner_t owner,
    uint64_t generation);

/*
 * Gives back a row at a clean exit.  If it still counts something it is left
 * to be swept instead.
 */
void kvr_load_release(kvr_load_t *load, uint32_t row);

/*
 * Takes the row of other hosts, if there is none yet and one is free.  Returns
 * 0 if there is none.
 */
int kvr_load_remote(kvr_load_t *load);

/* says that the owner's configuration has a column */
void kvr_load_name(kvr_load_t *load, uint32_t row, uint32_t column);

/* says that it has these, bit by bit in names[], and no others */
void kvr_load_rename(kvr_load_t *load, uint32_t row, const uint64_t *names);

/* whether a column is named by any configuration or counts anything */
int kvr_load_used(kvr_load_t *load, uint32_t column);

/*
 * Heals and frees the rows of processes that are no more; returns how many.  A
 * row of which something was put off stays for the next sweep.  Without drop
 * and heal (NULL) rows are only cleared.
 */
uint32_t kvr_load_sweep(kvr_load_t *load, kvr_load_owner_t self,
    kvr_load_alive_pt alive, kvr_load_drop_pt drop, kvr_load_heal_pt heal,
    void *data);

/*
 * Says what the row's owner holds, 0: nothing.  To be said after it was taken,
 * and taken back before it is let go.
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


/* neither half may borrow from the other, whatever happens */
static inline uint64_t
kvr_load_change(uint64_t word, int32_t active, int64_t pending)
{
    int64_t  a, p;

    a = (int64_t) (word >> KVR_LOAD_BYTES_BITS) + active;
    p = (int64_t) (word & KVR_LOAD_BYTES_MASK) + pending;

    /* as it nearly always is */

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
 * Counts requests and bytes in or out, by the row's owner only.  Here, as each
 * request is counted in three columns, and three times.
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


/* columns that the owner of a row may use: kvr_load_names_words() */
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


/* the reverse; what is too much for its half is the most that fits */
static inline uint64_t
kvr_load_word(uint64_t active, uint64_t pending)
{
    active = kvr_min(active, (1ULL << (64 - KVR_LOAD_BYTES_BITS)) - 1);
    pending = kvr_min(pending, KVR_LOAD_BYTES_MASK);

    return active << KVR_LOAD_BYTES_BITS | pending;
}


/* where the rows are, for who asks for many columns */
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


/* sums up a column: here, as it is asked for each peer in each decision */
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


/* sums up two columns in one go, the second to *other */
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


/* the part of it that other hosts have told of */
static inline kvr_load_sum_t
kvr_load_elsewhere(kvr_load_t *load, uint32_t column)
{
    uint32_t  remote;

    remote = kvr_get(&load->remote);

    return kvr_load_split(remote ? kvr_get(kvr_load_words(load, remote - 1)
                                           + column) : 0);
}


/* sets that part */
static inline void
kvr_load_elsewhere_set(kvr_load_t *load, uint32_t column, uint64_t word)
{
    uint32_t  remote;

    remote = kvr_get(&load->remote);

    if (remote) {
        kvr_set(kvr_load_words(load, remote - 1) + column, word);
    }
}


/* and the part that this host has given it */
static inline kvr_load_sum_t
kvr_load_here(kvr_load_t *load, uint32_t column)
{
    kvr_load_sum_t  sum, part;

    sum = kvr_load_get(load, column);
    part = kvr_load_elsewhere(load, column);

    /* each word was read at another moment */

    sum.active -= kvr_min(part.active, sum.active);
    sum.pending -= kvr_min(part.pending, sum.pending);

    return sum;
}


#endif /* _KVR_LOAD_H_INCLUDED_ */
