
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ENGINE_H_INCLUDED_
#define _KVR_ENGINE_H_INCLUDED_


/*
 * The state of a peer from probes and health checks, and what follows from it.
 *
 * It is in shared memory.  The process that probes writes it; each process that
 * receives responses also writes the health.  Each word is valid on its own: a
 * reader that sees a mixture of old and new words is misled no more than by a
 * late probe.
 *
 * The reported values count less the older they are: foreign load fades to
 * none, the other values to the router's own.  No value fades to "saturated".
 *
 * Times are in milliseconds of a clock that all processes share.
 */


#include "core/base/kvr_fault.h"
#include "core/health/kvr_drain.h"
#include "core/engine/kvr_metrics.h"


/* intervals for which a reported capacity is valid */
#define KVR_ENGINE_HOLD  60

/* result of kvr_engine_take() */
#define KVR_ENGINE_RESTARTED  1

typedef enum {
    KVR_HEALTH_UP = 0,
    KVR_HEALTH_STARTING,
    KVR_HEALTH_DOWN,
    KVR_HEALTH_MAX
} kvr_health_e;


/* the result of a health check */
typedef enum {
    KVR_CHECK_PASS = 0,
    KVR_CHECK_FAIL,
    KVR_CHECK_TIMEOUT,
    KVR_CHECK_LOADING
} kvr_check_e;


typedef struct {
    _Atomic uint64_t   time;         /* of the last good probe; 0: none yet */
    _Atomic uint32_t   set;          /* KVR_METRICS_... of that probe */
    _Atomic uint32_t   engine;
    _Atomic uint32_t   running;
    _Atomic uint32_t   waiting;
    _Atomic uint32_t   kv;           /* in 1/10000 */
    _Atomic uint32_t   foreign;      /* requests of others */
    _Atomic uint32_t   foreign_last; /* the same, one probe before */
    _Atomic uint32_t   cap;          /* request limit after preemptions, or 0 */

    _Atomic uint64_t   capacity;     /* tokens */
    _Atomic uint64_t   reported;     /* when capacity was reported; 0: never */
    _Atomic uint64_t   hits;
    _Atomic uint64_t   queries;
    _Atomic uint64_t   preemptions;
    _Atomic uint64_t   start;        /* ms since 1970 */
    _Atomic uint64_t   fell;         /* when counters fell without a restart */

    _Atomic uint64_t   asked;        /* probes, total */
    _Atomic uint64_t   failed;       /* of these */

    _Atomic uint32_t   health;       /* kvr_health_e */
    _Atomic uint32_t   fails;        /* failed checks in a row */
    _Atomic uint32_t   passes;       /* passed checks in a row */
    _Atomic uint32_t   rises;        /* higher reported capacities in a row */
    _Atomic uint64_t   refused;      /* start of the last refused probe;
                                        0: the last probe was not refused */
    _Atomic uint64_t   checks;       /* health checks, total */
    _Atomic uint64_t   checks_failed;
    _Atomic uint64_t   unhealthy;    /* changes to down */
    _Atomic uint64_t   renewed;      /* when a restart was last detected */
    _Atomic uint64_t   success;      /* when a client last got a response */
    _Atomic uint64_t   pressure;     /* overloaded until then */

    _Atomic uint32_t   probe_fault;  /* kvr_fault_e of the last probe */
    _Atomic uint32_t   check_fault;  /* likewise, of the last health check */

    _Atomic uint32_t   last;         /* last kvr_check_e */

    _Atomic uint32_t   max_loras;
    _Atomic uint32_t   loras;
    _Atomic uint64_t   lora[KVR_METRICS_LORAS];
} kvr_engine_t;


/* Clears the state for a new peer. */
void kvr_engine_reset(kvr_engine_t *s);

/*
 * Takes the metrics of a probe.  before and after are our requests in flight
 * when the probe started and ended.  Returns KVR_ENGINE_... bits.
 */
unsigned kvr_engine_take(kvr_engine_t *s, const kvr_metrics_t *m,
    uint32_t before, uint32_t after, uint64_t now);

/*
 * Returns the tokens that the engine reported as its capacity; 0: none in the
 * last KVR_ENGINE_HOLD intervals.  A lower report counts at once.  A higher one
 * counts after KVR_ENGINE_HOLD higher ones in a row, or after a restart.  So
 * the lowest of alternating reports counts.
 */
uint64_t kvr_engine_capacity(const kvr_engine_t *s, uint64_t now,
    uint64_t interval);

/* Returns whether the engine recently reported that it caches no prefixes. */
int kvr_engine_uncached(const kvr_engine_t *s, uint64_t now,
    uint64_t interval);

/*
 * Returns the weight of the last probe: 1 for two intervals, then less, and 0
 * after five.
 */
double kvr_engine_worth(const kvr_engine_t *s, uint64_t now,
    uint64_t interval);

/*
 * Returns whether the process is still the same: recent probes would have shown
 * a restart, and did not.  A probe is recent for ten seconds at most.  If
 * counters have fallen without a restart, the metrics may not be of the engine,
 * and the function returns 0 for a minute.
 */
int kvr_engine_same(const kvr_engine_t *s, uint64_t now, uint64_t interval);

/*
 * Records a restart, detected by any means: counters of the new process are not
 * compared with those of the old one.  Engines report some counters only once
 * they are not 0, so these would seem to fall again.  A second restart before
 * the next probe is missed, unless a probe was refused in between.
 */
void kvr_engine_renew(kvr_engine_t *s, uint64_t now);

/*
 * Records a refused probe that started at that time, unless a restart was
 * detected since.
 */
void kvr_engine_refused(kvr_engine_t *s, uint64_t asked);

/*
 * Records that the engine accepts connections.  Returns 1 if it refused before:
 * then it was restarted, and its next probe does not report that again.
 */
int kvr_engine_back(kvr_engine_t *s, uint64_t now);

/*
 * Returns whether a probe is out of date: a probe that did not start earlier
 * was refused, so this one was of the old process.
 */
static inline int
kvr_engine_past(const kvr_engine_t *s, uint64_t asked)
{
    uint64_t  refused;

    refused = kvr_get(&s->refused);

    return refused && asked <= refused;
}


/*
 * Takes the result of a health check; returns 1 if the peer is healthy again.
 */
int kvr_engine_check(kvr_engine_t *s, kvr_check_e result, uint32_t fails,
    uint32_t passes, uint64_t interval, uint64_t now);

/* Returns the name for the status; NULL: no such number. */
const char *kvr_engine_health_name(kvr_health_e health);

/* Returns 1: the adapter is loaded; 0: not; -1: not, and no slot is free. */
int kvr_engine_lora(const kvr_engine_t *s, uint64_t lora);


#endif /* _KVR_ENGINE_H_INCLUDED_ */
