
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _WORLD_H_INCLUDED_
#define _WORLD_H_INCLUDED_


/*
 * The shared part of a zone and a queue, in one piece of memory; the process
 * that survives, and the one that is killed.
 */


#include "util.h"
#include "core/route/kvr_route.h"
#include "core/queue/kvr_queue.h"


#define ROWS      4
#define LINES     1024
#define UNIT      256
#define UNITS     24             /* units in a prompt */
#define PROMPTS   12             /* the first KEPT of them are cached */
#define KEPT      4
#define PEERS     10             /* the last one is flushed, restarts, ... */
#define HELD_BY   9              /* peers that have the first prompts cached */
#define NAMES     14             /* servers that can exist, */
#define NUMBERS   12             /* and slots */
#define FEW       16             /* lines of a full table */
#define NOW       1000000ULL     /* ms */

#define LIVING    kvr_load_owner(1, 1)
#define VICTIM    kvr_load_owner(2, 1)
#define DEAD      kvr_load_owner(3, 1)


/* the shared part; registry, load and index follow */
typedef struct {
    kvr_hot_t           hot;
    kvr_receipts_t      receipts;
    kvr_queue_shared_t   board;
    kvr_stats_t         stats;
} world_shared_t;


/* operation of the victim, which can be found done afterwards */
typedef struct {
    uint32_t            units[PROMPTS][KVR_PEERS];
    uint32_t            observed;
    uint32_t            hot;
    uint32_t            flushed;   /* bits of peers */
} world_begun_t;


extern world_shared_t  *world;
extern kvr_zone_t       living, victim;
extern kvr_pool_t       pool, ejecting;
extern world_begun_t    begun;
extern uint64_t         chain[PROMPTS][UNITS];

/* memory of the shared part */
extern uint8_t         *world_memory;
extern size_t           world_size;

/*
 * The initial state: the surviving process has inserted prompts and waits.
 * full: the table is too small for all of them.
 */
void world_init(util_rng_t *rng, unsigned full);

/* Returns the address of a server that can exist. */
const char *world_name(unsigned n);

/* Performs the n-th operation of a process; returns 0 after the last one. */
const char *victim_op(unsigned n);
void victim_begin(void);
void victim_do(unsigned op, util_rng_t *rng);

/* Checks what must hold after the victim was killed at any store. */
void world_check(util_rng_t *rng);

/*
 * Part of world_check(): an ejected server is not a candidate, and returns.
 * One server too many can be ejected, if the process that counted them died.
 */
void world_ejection(void);

/* Makes a decision record that differs from a half-written one. */
void world_receipt(kvr_receipt_t *r, uint64_t n);

/* the waiting request of the surviving process, and its queue */
extern kvr_queue_t       waiting;
extern kvr_queue_item_t  waiter;


#endif /* _WORLD_H_INCLUDED_ */
