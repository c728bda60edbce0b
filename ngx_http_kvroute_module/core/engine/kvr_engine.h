
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ENGINE_H_INCLUDED_
#define _KVR_ENGINE_H_INCLUDED_


/*
 * What is known of a peer by asking it, and what follows from that.
 *
 * In shared memory.  Written by the one process that asks; health also by
 * whoever gets responses.  All words stand for themselves: a reader that sees
 * some old and some new ones is misled no more than by a late answer.
 *
 * What an engine said has an age, and counts less the older it is: foreign load
 * fades to none, the rest to what this side knows by itself.  Nothing fades to
 * "saturated".
 *
 * Times are in milliseconds of a clock that all processes share.
 */


#include "core/health/kvr_drain.h"
#include "core/engine/kvr_metrics.h"


/* a report of the capacity counts for this many intervals */
#define KVR_ENGINE_HOLD  60

/* what kvr_engine_take() has found out */
#define KVR_ENGINE_RESTARTED  1

typedef enum {
    KVR_HEALTH_UP = 0,
    KVR_HEALTH_STARTING,
    KVR_HEALTH_DOWN,
    KVR_HEALTH_MAX
} kvr_health_e;


/* how a check of health ended */
typedef enum {
    KVR_CHECK_PASS = 0,
    KVR_CHECK_FAIL,
    KVR_CHECK_TIMEOUT,
    KVR_CHECK_LOADING
} kvr_check_e;


typedef struct {
    _Atomic uint64_t   time;         /* of the last good answer; 0: none yet */
    _Atomic uint32_t   set;          /* KVR_METRICS_... in it */
    _Atomic uint32_t   engine;
    _Atomic uint32_t   running;
    _Atomic uint32_t   waiting;
    _Atomic uint32_t   kv;           /* in 1/10000 */
    _Atomic uint32_t   foreign;      /* requests that are not ours */
    _Atomic uint32_t   foreign_last; /* before that */
    _Atomic uint32_t   cap;          /* of requests, after preemptions; or 0 */

    _Atomic uint64_t   capacity;     /* tokens */
    _Atomic uint64_t   reported;     /* when that was last reported; 0: never */
    _Atomic uint64_t   hits;
    _Atomic uint64_t   queries;
    _Atomic uint64_t   preemptions;
    _Atomic uint64_t   start;        /* ms since 1970 */
    _Atomic uint64_t   fell;         /* when counters fell, but it was not */

    _Atomic uint64_t   asked;        /* probes, ever */
    _Atomic uint64_t   failed;

    _Atomic uint32_t   health;       /* kvr_health_e */
    _Atomic uint32_t   fails;        /* in a row */
    _Atomic uint32_t   passes;
    _Atomic uint32_t   rises;        /* reports above the capacity, in a row */
    _Atomic uint64_t   gone;         /* when asked while nobody was listening;
                                        0: somebody is */
    _Atomic uint64_t   checks;       /* of health, ever */
    _Atomic uint64_t   checks_failed;
    _Atomic uint64_t   unhealthy;    /* times it was found down */
    _Atomic uint64_t   renewed;      /* when it was last found restarted */
    _Atomic uint64_t   success;      /* when a client was last answered */
    _Atomic uint64_t   pressure;     /* asked to be left alone until then */

    _Atomic uint64_t   orca;         /* time of the last such header */
    _Atomic uint32_t   orca_set;     /* KVR_METRICS_... in it */
    _Atomic uint32_t   last;         /* kvr_check_e of the last check */

    _Atomic uint32_t   max_loras;
    _Atomic uint32_t   loras;
    _Atomic uint64_t   lora[KVR_METRICS_LORAS];
} kvr_engine_t;


/* nothing is known: of a new peer */
void kvr_engine_reset(kvr_engine_t *s);

/*
 * Takes what an engine told.  before and after are the requests that we had
 * there when it was asked and when it answered.  Returns KVR_ENGINE_... bits.
 */
unsigned kvr_engine_take(kvr_engine_t *s, const kvr_metrics_t *m,
    uint32_t before, uint32_t after, uint64_t now);

/*
 * The tokens that the engine reported as its capacity; 0: it did not, or not in
 * the last KVR_ENGINE_HOLD intervals.  A lower report than the last one counts
 * at once; a higher one after that number of higher ones in a row, or after a
 * restart.  So of reports that alternate the lowest counts.
 */
uint64_t kvr_engine_capacity(const kvr_engine_t *s, uint64_t now,
    uint64_t interval);

/* whether it reported in the same time that it caches nothing */
int kvr_engine_uncached(const kvr_engine_t *s, uint64_t now,
    uint64_t interval);

/*
 * How much the last answer is worth, 1 .. 0: all of it for two intervals, then
 * less, after five none.
 */
double kvr_engine_worth(const kvr_engine_t *s, uint64_t now,
    uint64_t interval);

/*
 * Whether there is recent word by probes of a kind that would tell a restart:
 * since it does not, the process is the same. Word is recent for ten seconds at
 * most, however seldom it is asked for. It is doubted for a minute when
 * counters have fallen all the same: what gives them may not be the engine.
 */
int kvr_engine_same(const kvr_engine_t *s, uint64_t now, uint64_t interval);

/*
 * Reads the value of an endpoint-load-metrics header (ORCA): "TEXT a=1, b=2",
 * "JSON {...}", or either without the word.  Returns the fields found.
 */
uint32_t kvr_orca_read(kvr_metrics_t *m, const uint8_t *value, size_t len);

/* takes what a header of a response told */
void kvr_engine_orca(kvr_engine_t *s, const kvr_metrics_t *m, uint64_t now);

/*
 * KVR_METRICS_... of waiting and KV, as far as there is recent word of them: by
 * a probe or by a header.
 */
uint32_t kvr_engine_fresh(const kvr_engine_t *s, uint64_t now,
    uint64_t interval);

/* all of KVR_METRICS_... ever said, and when the last word came, 0 if never */
uint32_t kvr_engine_said(const kvr_engine_t *s, uint64_t *time);

/*
 * It was found restarted, by whatever means: what the process before has
 * counted is held against the new one no more.  Some counters are told of only
 * when there is something to count, and would seem to have fallen once again.
 * Should it be restarted a second time before its next answer, that is missed,
 * unless nobody was listening in between.
 */
void kvr_engine_renew(kvr_engine_t *s, uint64_t now);

/*
 * Nobody was listening when it was asked at that time.  What was asked before
 * it was last found restarted tells nothing new.
 */
void kvr_engine_gone(kvr_engine_t *s, uint64_t asked);

/*
 * Somebody is listening again.  Returns 1 if nobody was before: it was
 * restarted, which its next answer will not say a second time.
 */
int kvr_engine_back(kvr_engine_t *s, uint64_t now);

/*
 * Whether an answer is of one that has gone since: somebody was asked no
 * earlier, and nobody was listening.  It may have waited to be read.
 */
static inline int
kvr_engine_past(const kvr_engine_t *s, uint64_t asked)
{
    uint64_t  gone;

    gone = kvr_get(&s->gone);

    return gone && asked <= gone;
}


/* takes the end of a check; returns 1 if the peer is back */
int kvr_engine_check(kvr_engine_t *s, kvr_check_e result, uint32_t fails,
    uint32_t passes, uint64_t interval, uint64_t now);

/* as the status has it; NULL: no such number */
const char *kvr_engine_health_name(kvr_health_e health);

/* whether it has this adapter loaded: 1; 0: no; -1: and all its slots taken */
int kvr_engine_lora(const kvr_engine_t *s, uint64_t lora);


#endif /* _KVR_ENGINE_H_INCLUDED_ */
