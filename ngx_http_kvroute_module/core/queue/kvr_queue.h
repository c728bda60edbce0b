
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_QUEUE_H_INCLUDED_
#define _KVR_QUEUE_H_INCLUDED_


/*
 * The order in which waiting requests are admitted.
 *
 *     class   the lower number first, always
 *     turn    among tenants of a class: the one that got least, in bytes of
 *             uncached work over its weight
 *     due     within a tenant: the earlier moment first, which is the deadline,
 *             or else  arrival + work / KVR_QUEUE_AGING
 *
 * Small requests go before large ones, but only those that arrive within work
 * / KVR_QUEUE_AGING after a large one can pass it: that is its aging bound.
 * The order of two requests never changes while they wait.
 *
 * A tenant's first request can also be passed by another of its requests, if
 * that one has more of its prompt cached at a peer with room (kvr_queue_near).
 * The other one may be due later by KVR_QUEUE_PASS and half of the first one's
 * waiting time, but not by more than KVR_QUEUE_PASS_MAX, which is added to the
 * bound.  Otherwise each peer with room would take the first request, and
 * caches would matter little past saturation (bench/queue: a tenth of the
 * throughput).
 *
 * Turns are virtual time, as in start-time fair queueing (Goyal, Vin, Cheng:
 * SIGCOMM 96): an admission moves the tenant's turn by charge / weight, and a
 * tenant that was idle begins where the class is now.  In the long run this
 * equals deficit round robin, without rounds.  The charge is what is left to
 * compute at admission, not at arrival (work): past saturation, caches lose
 * much of a prompt while it waits, so a tenant whose requests wait long would
 * pay for less than it gets.
 *
 * Ownership.  Each process keeps its own waiting requests in private heaps
 * (kvr_queue_t).  In the shared state (kvr_queue_shared_t) each process has a
 * row that only it writes: what comes first there, and how many wait.  A row
 * that was not written for KVR_QUEUE_STALE belongs to a process that has
 * exited or is stuck, and is ignored.
 *
 * A process that admits a request first reserves room for it, then advances
 * the shared sequence by compare and swap, from its value before the rows were
 * compared.  If another process was faster, it takes the reservation back and
 * looks again.  So of two processes that see the same room only one takes it,
 * the one whose request comes first.  There is no lock, and a process killed
 * at any point leaves nothing to repair.
 */


#include "core/base/kvr_set.h"


#define KVR_QUEUE_CLASSES   8
#define KVR_QUEUE_NORMAL    3        /* default class */
#define KVR_QUEUE_TENANTS   64       /* further ones share the last place */
#define KVR_QUEUE_ROWS      (KVR_ROWS + 1)
#define KVR_QUEUE_AGING     64       /* bytes of work per ms of waiting */
#define KVR_QUEUE_UNIT      64       /* bytes of work per unit of a turn */
#define KVR_QUEUE_STALE     250      /* ms */
#define KVR_QUEUE_IDLE      600000   /* ms after which a place is reused */
#define KVR_QUEUE_LONG      30000    /* ms, see kvr_queue_long() */
#define KVR_QUEUE_DEEP      4        /* waiting requests per peer */
#define KVR_QUEUE_PASS      2000     /* ms, plus half of the waiting time */
#define KVR_QUEUE_PASS_MAX  30000    /* ms, maximum of that sum */
#define KVR_QUEUE_NEAR      16


typedef struct kvr_queue_item_s  kvr_queue_item_t;

/* a waiting request, in the caller's memory */
struct kvr_queue_item_s {
    uint32_t            due;         /* ms */
    uint32_t            arrival;     /* ms */
    uint64_t            work;        /* bytes */
    uint64_t            charge;      /* bytes that its tenant is charged */
    uint64_t            bytes;       /* of memory while it waits */
    uint32_t            weight;      /* of the tenant, from 1 */
    uint8_t             class;
    uint8_t             tenant;      /* place */
    uint8_t             waiting;

    kvr_queue_item_t   *child;       /* pairing heap */
    kvr_queue_item_t   *next;
    kvr_queue_item_t   *prev;        /* previous sibling, or the parent */
};


/* the waiting requests of this process */
typedef struct {
    uint32_t            n;
    uint64_t            bytes;
    uint32_t            depth[KVR_QUEUE_CLASSES];
    uint64_t            tenants[KVR_QUEUE_CLASSES];  /* with any */
    uint32_t            of[KVR_QUEUE_CLASSES][KVR_QUEUE_TENANTS];
    kvr_queue_item_t   *heap[KVR_QUEUE_CLASSES][KVR_QUEUE_TENANTS];
} kvr_queue_t;


/* turn in the upper half, truncated, due in the lower; both wrap */
typedef uint64_t  kvr_queue_key_t;


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t    seen;        /* ms */
    _Atomic uint64_t    bytes;
    _Atomic uint32_t    depth[KVR_QUEUE_CLASSES];
    _Atomic uint64_t    key[KVR_QUEUE_CLASSES];
} kvr_queue_row_t;


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t    hash;        /* 0: free */
    _Atomic uint64_t    used;        /* ms */
    _Atomic uint64_t    turn[KVR_QUEUE_CLASSES];
} kvr_queue_tenant_t;


/* counters, since the shared state was created */
typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t    passed;      /* admitted without waiting */
    _Atomic uint64_t    waited;
    _Atomic uint64_t    wait_ms;     /* sum */
    _Atomic uint64_t    full;        /* rejected */
    _Atomic uint64_t    timeouts;
    _Atomic uint64_t    deadline;    /* exceeded */
    _Atomic uint64_t    shed;        /* displaced by a more urgent class */
    _Atomic uint64_t    gone;        /* canceled by the client */
} kvr_queue_stats_t;


typedef struct {
    _Atomic uint64_t    sequence;
    _Atomic uint32_t    rows;        /* rows from here on were never used */
    _Atomic uint64_t    turn[KVR_QUEUE_CLASSES];  /* of the last admitted */
    _Atomic uint32_t    wanted[KVR_QUEUE_CLASSES];  /* to be displaced */
    _Atomic uint64_t    rate;        /* admitted, 1/1000 per s, smoothed */
    _Atomic uint64_t    last;        /* ms */
    _Atomic uint64_t    looked;      /* ms, kvr_queue_long() */
    _Atomic uint64_t    share;       /* of the time, 1/1000000 */
    _Atomic uint64_t    cap;         /* kvr_admission_e: why the last one had
                                        no room; or 0 */

    kvr_queue_stats_t   stats[KVR_QUEUE_CLASSES];
    kvr_queue_tenant_t  tenant[KVR_QUEUE_TENANTS];
    kvr_queue_row_t     row[KVR_QUEUE_ROWS];
} kvr_queue_shared_t;

_Static_assert(KVR_QUEUE_CLASSES <= 256 && KVR_QUEUE_TENANTS <= 64,
               "a byte of an item, a word of sets of tenants");


/*
 * Reserves room for the item; returns 0 if there is none. item NULL: takes the
 * last reservation back.
 */
typedef int (*kvr_queue_room_pt)(void *data, kvr_queue_item_t *item);


/* Returns the place of a tenant, by a hash of its name. */
uint8_t kvr_queue_tenant(kvr_queue_shared_t *shared, uint64_t hash,
    uint64_t now);

/*
 * Sets up an item that arrives now.  class 0 .. KVR_QUEUE_CLASSES - 1; weight
 * from 1; deadline in ms from now, or 0.  Before the insert the caller may
 * change due and set bytes.  The charge is work until room() sets it.
 */
void kvr_queue_item(kvr_queue_item_t *item, uint64_t now, unsigned class,
    uint8_t tenant, uint32_t weight, uint64_t work, uint32_t deadline);

/* Insert an item into the waiting ones, and remove it. */
void kvr_queue_insert(kvr_queue_t *q, kvr_queue_shared_t *shared,
    kvr_queue_item_t *item);
void kvr_queue_remove(kvr_queue_t *q, kvr_queue_item_t *item);

/* Returns the first of the waiting items, or NULL. */
kvr_queue_item_t *kvr_queue_first(kvr_queue_t *q, kvr_queue_shared_t *shared,
    kvr_queue_key_t *key);

/* Returns by how many ms an item that passes this one may be due later. */
static inline uint32_t
kvr_queue_pass(const kvr_queue_item_t *item, uint64_t now)
{
    int32_t  age;

    age = (int32_t) ((uint32_t) now - item->arrival);
    age = kvr_max(age, 0);

    return kvr_min(KVR_QUEUE_PASS + (uint32_t) age / 2, KVR_QUEUE_PASS_MAX);
}

/*
 * item is the first of its class and tenant.  Finds those of them that may be
 * admitted before it, ordered by due; the first one found is the item itself.
 * Returns their number, at most n.  A long queue is not searched completely.
 */
uint32_t kvr_queue_near(kvr_queue_item_t *item, uint64_t now,
    kvr_queue_item_t **near, uint32_t n);

/*
 * Tells whether an item may still wait for a better peer: for twice the time
 * that this peer takes for the item's work, but at most for twice the aging
 * bound. rate: bytes per ms of the better peer; 0: unknown.
 */
static inline int
kvr_queue_may_wait(const kvr_queue_item_t *item, uint64_t now, uint64_t rate)
{
    return (uint32_t) now - item->arrival
           < 2 * item->work / kvr_max(rate, KVR_QUEUE_AGING);
}

/* Returns the item that one of a more urgent class displaces, or NULL. */
kvr_queue_item_t *kvr_queue_last(kvr_queue_t *q, unsigned class);

/*
 * Returns the waiting item that a new one of the same class displaces, or
 * NULL.  It belongs to the tenant with the most waiting items for its weight,
 * if these are more than the new item's tenant would have.  So a tenant that
 * fills the queue keeps out only itself.
 */
kvr_queue_item_t *kvr_queue_rival(kvr_queue_t *q, kvr_queue_item_t *item);

/* Updates this process's row; called every few ms. */
void kvr_queue_publish(kvr_queue_shared_t *shared, uint32_t row,
    kvr_queue_t *q, uint64_t now);

/*
 * Admits an item if there is room and no item waiting in any process comes
 * before it; else returns KVR_DECLINED.  The item has just arrived, or it
 * waits here, and is removed when it is admitted.  A waiting one counts as the
 * first of its class and tenant: kvr_queue_near() tells which others may
 * replace it.
 */
int kvr_queue_admit(kvr_queue_shared_t *shared, uint32_t row, kvr_queue_t *q,
    kvr_queue_item_t *item, uint64_t now, kvr_queue_room_pt room, void *data);

/* Return how many wait in all processes, in classes up to this; and bytes. */
uint32_t kvr_queue_depth(kvr_queue_shared_t *shared, unsigned class,
    uint64_t now);
uint64_t kvr_queue_bytes(kvr_queue_shared_t *shared, uint64_t now);

/*
 * Tells whether the fleet is past saturation, where caches are full: more than
 * KVR_QUEUE_DEEP requests wait per peer, or more than one per peer did for
 * most of the last KVR_QUEUE_LONG, about.  A burst below saturation is soon
 * over, and should not wait for room in the caches.
 */
int kvr_queue_long(kvr_queue_shared_t *shared, uint32_t peers, uint64_t now);

/*
 * Asks any process to displace a request of a less urgent class; KVR_DECLINED
 * if none has one.
 */
int kvr_queue_want(kvr_queue_shared_t *shared, unsigned class, uint64_t now);

/* Takes such a demand; KVR_DECLINED if another process was faster. */
int kvr_queue_take(kvr_queue_shared_t *shared, unsigned class);

/* Returns the recent admissions in 1/1000 per second. */
uint64_t kvr_queue_rate(kvr_queue_shared_t *shared, uint64_t now);

/* Returns the seconds after which a rejected client can retry, from 1. */
uint32_t kvr_queue_retry_after(kvr_queue_shared_t *shared, uint64_t now);


#endif /* _KVR_QUEUE_H_INCLUDED_ */
