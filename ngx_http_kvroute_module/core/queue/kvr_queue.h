
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_QUEUE_H_INCLUDED_
#define _KVR_QUEUE_H_INCLUDED_


/*
 * The order in which waiting requests are let in.
 *
 *     class     the lower number first, always
 *     turn      among tenants of a class: the one that was given least, in
 *               bytes of uncached work over its weight
 *     due       within a tenant: the earlier moment first, which is the
 *               deadline, or else   arrival + work / KVR_QUEUE_AGING
 *
 * Small requests go before large ones, but a large one that waits is passed
 * only by those that arrive within work / KVR_QUEUE_AGING of it: that is its
 * aging bound, and the order of two requests never changes while they wait.
 *
 * The first one of its tenant may also be passed by one that finds more of its
 * own prompt where there is room than the first finds of its own
 * (kvr_queue_near): by those that are due no more than KVR_QUEUE_PASS and half
 * of what it has waited later, and never by one that is due more than
 * KVR_QUEUE_PASS_MAX later, which adds that to the bound.  Without it what
 * peers hold counts for little past the knee, as each that has room takes
 * whoever is first (bench/queue: a tenth of the throughput).
 *
 * Turns are virtual time, as in start-time fair queueing (Goyal, Vin, Cheng:
 * SIGCOMM 96): what a tenant is given moves its turn on by charge / weight, and
 * one that comes back from being idle begins where the class is now.  In the
 * long run that is what deficit round robin gives, without a round to keep.
 * The charge is what is left to compute when the item is let in.  Work is what
 * was left at arrival: past the knee caches lose much of it while it waits, and
 * a tenant whose requests wait long would pay for less than it gets.
 *
 * Ownership.  Each process has its own waiting requests, in heaps that nobody
 * else sees (kvr_queue_t). The processes share a shared state
 * (kvr_queue_shared_t): a row for each, written by its owner only, says what
 * would come first there, and how many wait. A row that has not been written
 * for KVR_QUEUE_STALE is one of a process that is gone or stuck, and holds up
 * nobody.
 *
 * Who lets a request in reserves room for it first, then moves the shared
 * state's sequence on by compare and swap, from the value that it had before
 * the rows were compared; if another was faster it takes the reservation back
 * and looks again. So of two processes that see the same room only one takes
 * it, and the one whose head comes first. There is no lock, and nothing that a
 * process killed anywhere in between leaves for others to mend.
 */


#include "core/base/kvr_set.h"


#define KVR_QUEUE_CLASSES   8
#define KVR_QUEUE_NORMAL    3        /* class of those that have no other */
#define KVR_QUEUE_TENANTS   64       /* those beyond share the last place */
#define KVR_QUEUE_ROWS      (KVR_ROWS + 1)
#define KVR_QUEUE_AGING     64       /* bytes of work for 1 ms of waiting */
#define KVR_QUEUE_UNIT      64       /* bytes of work that are one of a turn */
#define KVR_QUEUE_STALE     250      /* ms */
#define KVR_QUEUE_IDLE      600000   /* ms after which a place is given away */
#define KVR_QUEUE_LONG      30000    /* ms, see kvr_queue_long() */
#define KVR_QUEUE_DEEP      4        /* waiting, for each peer */
#define KVR_QUEUE_PASS      2000     /* ms, plus half of the item's waiting */
#define KVR_QUEUE_PASS_MAX  30000    /* ms: the most that the sum may be */
#define KVR_QUEUE_NEAR      16


typedef struct kvr_queue_item_s  kvr_queue_item_t;

/* a waiting request; memory is the caller's */
struct kvr_queue_item_s {
    uint32_t            due;         /* ms */
    uint32_t            arrival;     /* ms */
    uint64_t            work;        /* bytes */
    uint64_t            charge;      /* bytes that its tenant pays for */
    uint64_t            bytes;       /* that it keeps while it waits */
    uint32_t            weight;      /* of the tenant, from 1 */
    uint8_t             class;
    uint8_t             tenant;      /* place */
    uint8_t             waiting;

    kvr_queue_item_t   *child;       /* pairing heap */
    kvr_queue_item_t   *next;
    kvr_queue_item_t   *prev;        /* sibling before, or the parent */
};


/* those that wait in this process */
typedef struct {
    uint32_t            n;
    uint64_t            bytes;
    uint32_t            depth[KVR_QUEUE_CLASSES];
    uint64_t            tenants[KVR_QUEUE_CLASSES];  /* that have any */
    uint32_t            of[KVR_QUEUE_CLASSES][KVR_QUEUE_TENANTS];
    kvr_queue_item_t   *heap[KVR_QUEUE_CLASSES][KVR_QUEUE_TENANTS];
} kvr_queue_t;


/* turn in the upper half, as far as it fits, due in the lower; both wrap */
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


/* counters, since the shared state was made */
typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t    passed;      /* did not have to wait */
    _Atomic uint64_t    waited;
    _Atomic uint64_t    wait_ms;     /* of those */
    _Atomic uint64_t    full;        /* turned away */
    _Atomic uint64_t    timeouts;
    _Atomic uint64_t    late;        /* deadline passed */
    _Atomic uint64_t    shed;        /* gave way to a higher class */
    _Atomic uint64_t    gone;        /* the client left */
} kvr_queue_stats_t;


typedef struct {
    _Atomic uint64_t    sequence;
    _Atomic uint32_t    rows;        /* none from here on was ever used */
    _Atomic uint64_t    turn[KVR_QUEUE_CLASSES];  /* of the last let in */
    _Atomic uint32_t    wanted[KVR_QUEUE_CLASSES];  /* to be shed */
    _Atomic uint64_t    rate;        /* let in, 1/1000 a second, smoothed */
    _Atomic uint64_t    last;        /* ms */
    _Atomic uint64_t    looked;      /* ms, kvr_queue_long() */
    _Atomic uint64_t    share;       /* of the time, 1/1000000 */
    _Atomic uint64_t    cap;         /* kvr_admission_e: why there was no room
                                        for the last one; 0 */

    kvr_queue_stats_t   stats[KVR_QUEUE_CLASSES];
    kvr_queue_tenant_t  tenant[KVR_QUEUE_TENANTS];
    kvr_queue_row_t     row[KVR_QUEUE_ROWS];
} kvr_queue_shared_t;

_Static_assert(KVR_QUEUE_CLASSES <= 256 && KVR_QUEUE_TENANTS <= 64,
               "a byte of an item, a word of sets of tenants");


/*
 * Reserves room for the item, returns 0 if there is none.  With item NULL takes
 * the last reservation back.
 */
typedef int (*kvr_queue_room_pt)(void *data, kvr_queue_item_t *item);


/* the place of a tenant on the shared state, by a hash of its name */
uint8_t kvr_queue_tenant(kvr_queue_shared_t *shared, uint64_t hash,
    uint64_t now);

/*
 * Sets up an item that arrives now.  class 0 .. KVR_QUEUE_CLASSES - 1; weight
 * from 1; deadline in ms from now, 0 for none.  The caller may change due and
 * set bytes before the item is entered.  The charge is work, until room() knows
 * better.
 */
void kvr_queue_item(kvr_queue_item_t *item, uint64_t now, unsigned class,
    uint8_t tenant, uint32_t weight, uint64_t work, uint32_t deadline);

/* enters an item with those that wait, and takes it out again */
void kvr_queue_insert(kvr_queue_t *q, kvr_queue_shared_t *shared,
    kvr_queue_item_t *item);
void kvr_queue_remove(kvr_queue_t *q, kvr_queue_item_t *item);

/* the first of them, or NULL */
kvr_queue_item_t *kvr_queue_first(kvr_queue_t *q, kvr_queue_shared_t *shared,
    kvr_queue_key_t *key);

/* ms by which those may be due later that are let in before an item */
static inline uint32_t
kvr_queue_pass(const kvr_queue_item_t *item, uint64_t now)
{
    int32_t  age;

    age = (int32_t) ((uint32_t) now - item->arrival);
    age = kvr_max(age, 0);

    return kvr_min(KVR_QUEUE_PASS + (uint32_t) age / 2, KVR_QUEUE_PASS_MAX);
}

/*
 * Those of the same class and tenant that may be let in before an item that is
 * the first of them, by due, itself among them; up to n, at least 1.  Not all
 * of a long queue are looked at.
 */
uint32_t kvr_queue_near(kvr_queue_item_t *item, uint64_t now,
    kvr_queue_item_t **near, uint32_t n);

/*
 * Whether an item may still wait for a better place than there is: for twice as
 * long as that one takes to do its work, but no longer than twice what its size
 * lets others pass it.  rate: bytes a ms of the better place, 0 if not known.
 */
static inline int
kvr_queue_may_wait(const kvr_queue_item_t *item, uint64_t now, uint64_t rate)
{
    return (uint32_t) now - item->arrival
           < 2 * item->work / kvr_max(rate, KVR_QUEUE_AGING);
}

/* one to be turned away for another of a class above it, or NULL */
kvr_queue_item_t *kvr_queue_last(kvr_queue_t *q, unsigned class);

/*
 * One of its own class to be turned away for an item that comes: of the tenant
 * that has most waiting here for its weight, if that is more than the item's
 * own tenant would have.  So a tenant that fills the queue keeps out only
 * itself.  NULL if there is none.
 */
kvr_queue_item_t *kvr_queue_rival(kvr_queue_t *q, kvr_queue_item_t *item);

/* tells the shared state of this process's queue; to be called every few ms */
void kvr_queue_publish(kvr_queue_shared_t *shared, uint32_t row,
    kvr_queue_t *q, uint64_t now);

/*
 * Lets an item in if none that waits anywhere comes before it and there is
 * room; else returns KVR_DECLINED.  The item may be waiting here, and is taken
 * out then, or have just arrived.  One that waits is taken for the first of its
 * class and tenant: kvr_queue_near() says which others may stand for it.
 */
int kvr_queue_admit(kvr_queue_shared_t *shared, uint32_t row, kvr_queue_t *q,
    kvr_queue_item_t *item, uint64_t now, kvr_queue_room_pt room, void *data);

/* how many wait in all processes, of classes up to this one, and their bytes */
uint32_t kvr_queue_depth(kvr_queue_shared_t *shared, unsigned class,
    uint64_t now);
uint64_t kvr_queue_bytes(kvr_queue_shared_t *shared, uint64_t now);

/*
 * Whether it is past the knee, where engines' caches are full: more than
 * KVR_QUEUE_DEEP wait for each peer, or more than one and did so for most of
 * about the last KVR_QUEUE_LONG.  A burst below the knee is soon over, and not
 * worth to be held up for room in the caches.
 */
int kvr_queue_long(kvr_queue_shared_t *shared, uint32_t peers, uint64_t now);

/*
 * Asks for one of a lower class to be turned away in whatever process has one;
 * KVR_DECLINED if none has.
 */
int kvr_queue_want(kvr_queue_shared_t *shared, unsigned class, uint64_t now);

/* takes such a wish on; KVR_DECLINED if another was faster */
int kvr_queue_take(kvr_queue_shared_t *shared, unsigned class);

/* how many were let in of late, 1/1000 a second; it fades when none are */
uint64_t kvr_queue_rate(kvr_queue_shared_t *shared, uint64_t now);

/* seconds after which one turned away now may try again, from 1 */
uint32_t kvr_queue_retry_after(kvr_queue_shared_t *shared, uint64_t now);


#endif /* _KVR_QUEUE_H_INCLUDED_ */
