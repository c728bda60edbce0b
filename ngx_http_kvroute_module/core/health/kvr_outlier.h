
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_OUTLIER_H_INCLUDED_
#define _KVR_OUTLIER_H_INCLUDED_


/*
 * Outlier detection: whether a server of an upstream does worse than the
 * others, by what its answers were, and for how long it gets no choice then.
 *
 *     in       it is chosen as any other
 *     out      it gets no choice, up to a time
 *     probed   after that time it gets one request, and is out for a longer
 *              time at once: a probe has failed until it has succeeded
 *
 * Some answers in time bring it back in, each of which opens the way for the
 * next probe.  A probe that is never answered, or whose process was killed,
 * needs nobody to notice.
 *
 * Bad answers are counted in a row, early ones (before the first event) apart
 * from late ones: an answer that has begun well may still break off.  They are
 * also counted over a window, beside those of the others: if none of them does
 * better it is no server's fault, but the clients' or the fleet's.
 *
 * An answer is slow if its first event took many times longer than the median
 * of the fleet for as many bytes to prefill.  A server is silent if it owes
 * answers for longer than nearly all first events take.
 *
 * All is in shared memory, of fixed size, in words that stand for themselves; a
 * state is one word.  An observation may be lost where two processes write at
 * a time.  Times are in ms of a clock that all processes share.
 *
 * Nearly always nobody is out and nobody silent.  So a decision asks two words of
 * the fleet, and looks at states only if one says so: that somebody is out, or
 * that it was KVR_OUTLIER_LOOK ms ago that somebody looked.  The latter finds
 * who is silent, and makes good what a killed process did not say.
 */


#include "core/health/kvr_trial.h"


/* what was wrong with an answer; kept in shared memory */
typedef enum {
    KVR_OUTLIER_NONE = 0,        /* nothing */
    KVR_OUTLIER_STATUS,          /* 5xx */
    KVR_OUTLIER_RESET,           /* no connection, or closed without answer */
    KVR_OUTLIER_TIMEOUT,         /* no answer in nginx's time */
    KVR_OUTLIER_BROKEN,          /* it broke off, or was no HTTP */
    KVR_OUTLIER_MISSING,         /* 404: no such model, it seems */
    KVR_OUTLIER_SLOW,
    KVR_OUTLIER_SILENT,
    KVR_OUTLIER_ERROR,           /* of 5xx, in an answer of 2xx */
    KVR_OUTLIER_UNCLEAR,         /* an error that does not say whose fault it is
                                    in one of 2xx, or nothing at all */
    KVR_OUTLIER_400,
    KVR_OUTLIER_401,
    KVR_OUTLIER_403,
    KVR_OUTLIER_413,
    KVR_OUTLIER_422,
    KVR_OUTLIER_429,             /* without Retry-After */
    KVR_OUTLIER_503,             /* likewise, in JSON: any other is a 5xx */
    KVR_OUTLIER_4XX,             /* any other */
    KVR_OUTLIER_REASONS
} kvr_outlier_e;


/* as configured */
typedef struct {
    uint32_t           fails;    /* bad answers in a row */
    uint32_t           share;    /* of bad answers in a window, % */
    uint32_t           window;   /* ms */
    uint32_t           slow;     /* times the median of the fleet */
    uint32_t           time;     /* ms out, at first */
    uint32_t           max;      /* of the servers out at once, % */
    uint32_t           budget;   /* of requests that may be retries, %; 0: all */
    uint32_t           on;       /* 0: nobody is ever out */
} kvr_outlier_conf_t;


/* of a server in an upstream */
typedef struct {
    _Atomic uint64_t   state;    /* of kvr_outlier_...() below; 0: in */
    _Atomic uint64_t   asked;    /* since when it owes an answer; 0: it does
                                    not */
    _Atomic uint64_t   window;   /* answers of late: kvr_outlier_count() */
    _Atomic uint32_t   row[2];   /* bad ones in a row: early, late */
    _Atomic uint32_t   doubt[2]; /* likewise, maybe by the client's fault: less
                                    one for each good one */
    _Atomic uint64_t   trial;    /* of kvr_trial_...(): whose fault it is */
    _Atomic uint64_t   since;    /* when it was put out last */
    _Atomic uint32_t   reason;   /* why; kvr_outlier_e */
    _Atomic uint32_t   last;     /* what was wrong last */
} kvr_outlier_t;


/* of all servers of an upstream */
typedef struct {
    _Atomic uint64_t   sent;     /* requests and retries of late, as above */
    _Atomic uint32_t   pace;     /* median ms of first events, for a unit of
                                    work, in 1/KVR_OUTLIER_PACE */
    _Atomic uint32_t   first;    /* nearly all first events come in so many ms */
    _Atomic uint32_t   samples;  /* of these two */
    _Atomic uint32_t   ejected;  /* somebody is out */
    _Atomic uint64_t   look;     /* when states are looked at again anyway */
} kvr_outlier_fleet_t;


/* shares count from so many answers on */
#define KVR_OUTLIER_LEAST     10

/* nothing is slow or silent before so many first events */
#define KVR_OUTLIER_SAMPLES   32

/* nothing is slow below, ms; nothing silent below, ms */
#define KVR_OUTLIER_FLOOR     500
#define KVR_OUTLIER_SILENCE   5000

/* ms between two looks at all states */
#define KVR_OUTLIER_LOOK      250

/* good answers that bring a server back */
#define KVR_OUTLIER_PASSES    3

/* who was out of late is out again for so many times fewer bad answers */
#define KVR_OUTLIER_RELAPSE   4

/* the time out doubles so often at most */
#define KVR_OUTLIER_DOUBLES   5

/* retries that are always allowed in KVR_OUTLIER_RETRIES ms */
#define KVR_OUTLIER_RESERVE   10
#define KVR_OUTLIER_RETRIES   10000

/* of the state: the upper 48 bits are a time */
#define KVR_OUTLIER_EJECTED       0x8000
#define KVR_OUTLIER_LEVEL(s)  ((uint32_t) ((s) >> 8) & 0x7f)
#define KVR_OUTLIER_PASSED(s) ((uint32_t) (s) & 0xff)
#define KVR_OUTLIER_TIME(s)   ((s) >> 16)


/* whether it is out, probed or not */
static inline int
kvr_outlier_ejected(uint64_t state)
{
    return (state & KVR_OUTLIER_EJECTED) != 0;
}


/* whether it gets no choice now */
static inline int
kvr_outlier_sick(uint64_t state, uint64_t now)
{
    return (state & KVR_OUTLIER_EJECTED) && KVR_OUTLIER_TIME(state) > now;
}


/*
 * Who owes an answer since before this time may be silent, which is worth
 * another look; 0: that is not known.
 */
static inline uint64_t
kvr_outlier_suspect_after(kvr_outlier_fleet_t *fleet, uint64_t now)
{
    uint64_t  limit;

    limit = 2 * (uint64_t) kvr_get(&fleet->first);
    limit = kvr_max(limit, KVR_OUTLIER_SILENCE);

    return kvr_get(&fleet->samples) >= KVR_OUTLIER_SAMPLES && now > limit
           ? now - limit : 0;
}


/* whether a decision has to look at states; a word of fleet may be old */
static inline int
kvr_outlier_look(kvr_outlier_fleet_t *fleet, uint64_t now)
{
    return kvr_get(&fleet->ejected) || now >= kvr_get(&fleet->look);
}


/* a request is given to one that is out; 1: it is a probe */
int kvr_outlier_probe(kvr_outlier_t *o, const kvr_outlier_conf_t *conf,
    uint64_t now);

/* a request is given to it; 1: it is a probe */
static inline int
kvr_outlier_begin(kvr_outlier_t *o, const kvr_outlier_conf_t *conf,
    uint64_t now)
{
    if (kvr_get(&o->asked) == 0) {
        kvr_set(&o->asked, now);
    }

    return kvr_unlikely(kvr_outlier_ejected(kvr_get(&o->state)))
           ? kvr_outlier_probe(o, conf, now) : 0;
}

/* it said something, which it no longer owes */
static inline void
kvr_outlier_heard(kvr_outlier_t *o)
{
    if (kvr_get(&o->asked)) {
        kvr_set(&o->asked, 0);
    }
}


/*
 * Whether the first event of a stream, ms after it was given with so many bytes
 * to prefill, was slow; the fleet's median learns of it.
 */
int kvr_outlier_slow(kvr_outlier_fleet_t *fleet,
    const kvr_outlier_conf_t *conf, uint64_t bytes, uint64_t ms);

/* any first event, ms after it was given */
void kvr_outlier_first(kvr_outlier_fleet_t *fleet, uint64_t ms);

/*
 * An answer that was given at that time has begun well.  Returns 1 if it
 * brought the server back.
 */
int kvr_outlier_good(kvr_outlier_t *o, const kvr_outlier_conf_t *conf,
    uint64_t given, uint64_t now);

/*
 * An answer was good, late: to its end.  If the server is out it is nearer to
 * being back; returns as kvr_outlier_good().
 */
int kvr_outlier_pass(kvr_outlier_t *o, uint64_t given, int late, uint64_t now);

/* an answer that has begun well came to its end; returns as that */
static inline int
kvr_outlier_end(kvr_outlier_t *o, uint64_t given, uint64_t now)
{
    if (kvr_unlikely(kvr_get(&o->row[1]))) {
        kvr_set(&o->row[1], 0);
    }

    return kvr_unlikely(kvr_outlier_ejected(kvr_get(&o->state)))
           ? kvr_outlier_pass(o, given, 1, now) : 0;
}

/* whether the client may be to blame */
static inline int
kvr_outlier_doubtful(kvr_outlier_e reason)
{
    return reason == KVR_OUTLIER_MISSING || reason >= KVR_OUTLIER_UNCLEAR;
}


/* whether it is a status that blames the client */
static inline int
kvr_outlier_refusal(kvr_outlier_e reason)
{
    return reason == KVR_OUTLIER_MISSING || reason > KVR_OUTLIER_UNCLEAR;
}


/* the reason that a status is which may be the client's fault */
kvr_outlier_e kvr_outlier_client(uint32_t status);

/* a good answer, at its beginning or (late) at its end, makes up for one */
static inline void
kvr_outlier_trust(kvr_outlier_t *o, int late)
{
    uint32_t  doubt;

    doubt = kvr_get(&o->doubt[late]);

    if (kvr_unlikely(doubt)) {
        kvr_set(&o->doubt[late], doubt - 1);
    }
}


/*
 * An answer was bad, and the client may be to blame; late, probe: as below.
 * Returns 1 if the server is on trial from now on: if so many are bad that good
 * ones do not make up for them.
 */
int kvr_outlier_doubt(kvr_outlier_t *o, const kvr_outlier_conf_t *conf,
    kvr_outlier_e reason, int late, int probe, uint64_t now);

/*
 * An answer was bad; late: it had begun well.  Returns 1 if the server should
 * be put out, if others do better.
 */
int kvr_outlier_bad(kvr_outlier_t *o, const kvr_outlier_conf_t *conf,
    kvr_outlier_e reason, int late, int probe, uint64_t now);

/*
 * Whether another server has at most half of this one's share of bad answers.
 * -1: it had no answers of late.
 */
int kvr_outlier_better(const kvr_outlier_t *other, const kvr_outlier_t *o,
    const kvr_outlier_conf_t *conf, uint64_t now);

/* puts it out; returns for how many ms, or 0: it was out */
uint64_t kvr_outlier_eject(kvr_outlier_t *o, const kvr_outlier_conf_t *conf,
    kvr_outlier_e reason, uint64_t now);

/* takes that back, since too many are out */
void kvr_outlier_spare(kvr_outlier_t *o, uint64_t now);

/*
 * Whether a request may be tried once more, by the share that is given to
 * retries.  kvr_outlier_sent() tells of each request, and of each retry.
 */
int kvr_outlier_may_retry(kvr_outlier_fleet_t *fleet,
    const kvr_outlier_conf_t *conf, uint64_t now);
void kvr_outlier_sent(kvr_outlier_fleet_t *fleet, int retry, uint64_t now);

/* as in the status; NULL: no such number */
const char *kvr_outlier_name(kvr_outlier_e reason);


#endif /* _KVR_OUTLIER_H_INCLUDED_ */
