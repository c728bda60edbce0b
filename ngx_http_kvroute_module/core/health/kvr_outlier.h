
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_OUTLIER_H_INCLUDED_
#define _KVR_OUTLIER_H_INCLUDED_


/*
 * Outlier detection: compares the answers of a server with those of the others
 * of its upstream, and ejects it for a time if it does worse.
 *
 *     in          it is used like any other
 *     ejected     it is not used until a time
 *     half-open   after that time it gets one probe request, and is ejected for
 *                 a longer time at once: a probe counts as failed until it has
 *                 succeeded
 *
 * Several good answers return the server; each of them allows the next probe.
 * A probe that is never answered, or whose process was killed, needs no
 * action.
 *
 * Bad answers in a row are counted, those before the first event and later ones
 * separately: an answer that starts well can still break off.  They are also
 * counted over a window, with those of the other servers: if none of these does
 * better, it is not the server's fault.
 *
 * An answer is slow if its first event took many times longer than the fleet's
 * median for as many bytes to prefill.  A server is silent if it has owed
 * answers for longer than nearly all first events take.
 *
 * One request alone does not eject a server, but operators are told if it
 * waits too long.  Only a stream proves something, and only if no other one
 * waited when it came: other answers arrive complete, after minutes.  The wait
 * is judged at its end as well, because clients give up.  Then it counts for a
 * while.
 *
 * All is in shared memory, of fixed size, in independent words; a state is one
 * word.  Of two processes that write at once an observation can be lost.  Times
 * are in ms of a clock that all processes share.
 *
 * Usually no server is ejected or silent.  So a decision reads two words of
 * the fleet, and looks at states only if a server is ejected, or if the last
 * look was KVR_OUTLIER_LOOK ms ago.  The latter finds silent servers, and
 * repairs what a killed process has left out.
 */


#include "core/health/kvr_trial.h"


/* faults of answers; kept in shared memory */
typedef enum {
    KVR_OUTLIER_NONE = 0,        /* nothing */
    KVR_OUTLIER_STATUS,          /* 5xx */
    KVR_OUTLIER_REFUSED,         /* no connection */
    KVR_OUTLIER_TLS,             /* the handshake failed */
    KVR_OUTLIER_RESET,           /* closed without an answer */
    KVR_OUTLIER_TIMEOUT,         /* nginx's timeout */
    KVR_OUTLIER_BROKEN,          /* it broke off, or was invalid HTTP */
    KVR_OUTLIER_MISSING,         /* 404: no such model, it seems */
    KVR_OUTLIER_SLOW,
    KVR_OUTLIER_SILENT,
    KVR_OUTLIER_ERROR,           /* a 5xx error in a 2xx answer */
    KVR_OUTLIER_UNCLEAR,         /* an ambiguous error in a 2xx answer, or an
                                    empty one */
    KVR_OUTLIER_400,
    KVR_OUTLIER_401,
    KVR_OUTLIER_403,
    KVR_OUTLIER_413,
    KVR_OUTLIER_422,
    KVR_OUTLIER_429,             /* without Retry-After */
    KVR_OUTLIER_503,             /* likewise, in JSON; any other is STATUS */
    KVR_OUTLIER_4XX,             /* any other */
    KVR_OUTLIER_REASONS
} kvr_outlier_e;


/* as configured */
typedef struct {
    uint32_t           fails;    /* bad answers in a row */
    uint32_t           time;     /* ms of the first ejection */
    uint32_t           budget;   /* % of requests that can be retries; 0: all */
    uint32_t           on;       /* 0: servers are never ejected */
} kvr_outlier_conf_t;


/* a server of an upstream */
typedef struct {
    _Atomic uint64_t   state;    /* see below; 0: in */
    _Atomic uint64_t   asked;    /* time of the oldest unanswered request; 0:
                                    there is none */
    _Atomic uint64_t   owed;     /* see kvr_outlier_owe() */
    _Atomic uint64_t   window;   /* recent answers: kvr_outlier_count() */
    _Atomic uint32_t   row[2];   /* bad ones in a row, by "end" */
    _Atomic uint32_t   doubt[2]; /* those that may be the client's fault, less
                                    one for each good answer */
    _Atomic uint64_t   trial;    /* see kvr_trial.h */
    _Atomic uint64_t   since;    /* time of the last ejection */
    _Atomic uint32_t   reason;   /* of the ejection; kvr_outlier_e */
    _Atomic uint32_t   last;     /* the last fault that is no 4xx */
    _Atomic uint32_t   refusal;  /* the last 4xx */
} kvr_outlier_t;


/* all servers of an upstream */
typedef struct {
    _Atomic uint64_t   sent;     /* recent requests and retries, as above */
    _Atomic uint32_t   pace;     /* median ms of first events per unit of
                                    work, in 1/KVR_OUTLIER_PACE */
    _Atomic uint32_t   first;    /* ms, high quantile of first events */
    _Atomic uint32_t   samples;  /* of these two */
    _Atomic uint32_t   ejected;  /* 1: a server is ejected or on trial */
    _Atomic uint64_t   look;     /* time of the next look at all states */
} kvr_outlier_fleet_t;


/* ms of the window; % of bad answers in it, and the answers that it needs */
#define KVR_OUTLIER_WINDOW    30000
#define KVR_OUTLIER_SHARE     50
#define KVR_OUTLIER_LEAST     10

/* % of servers ejected at once */
#define KVR_OUTLIER_MAX       50

/* an answer is slow from this multiple of the fleet's median on */
#define KVR_OUTLIER_TIMES     6

/* first events before which nothing is slow or silent */
#define KVR_OUTLIER_SAMPLES   32

/* ms below which nothing is slow; ms below which nothing is silent */
#define KVR_OUTLIER_FLOOR     500
#define KVR_OUTLIER_SILENCE   5000

/*
 * one stream waits too long: ms, and multiples of the usual time and of its
 * prefill's; first events before which no time is usual
 */
#define KVR_OUTLIER_PATIENCE  30000
#define KVR_OUTLIER_OVERDUE   4
#define KVR_OUTLIER_USUAL     8

/* ms for which a wait counts that is over, while no request is in flight */
#define KVR_OUTLIER_MEMORY    300000

/* ms between two looks at all states */
#define KVR_OUTLIER_LOOK      250

/* good answers that return a server */
#define KVR_OUTLIER_PASSES    3

/* for a recently returned server bad answers in a row are divided by this */
#define KVR_OUTLIER_RELAPSE   4

/* doublings of the time, at most */
#define KVR_OUTLIER_DOUBLES   5

/* retries that are always allowed in KVR_OUTLIER_RETRIES ms */
#define KVR_OUTLIER_RESERVE   10
#define KVR_OUTLIER_RETRIES   10000

/* parts of the state: the upper 48 bits are a time */
#define KVR_OUTLIER_EJECTED       0x8000
#define KVR_OUTLIER_LEVEL(s)  ((uint32_t) ((s) >> 8) & 0x7f)
#define KVR_OUTLIER_PASSED(s) ((uint32_t) (s) & 0xff)
#define KVR_OUTLIER_TIME(s)   ((s) >> 16)


/* Tells whether it is ejected or half-open. */
static inline int
kvr_outlier_ejected(uint64_t state)
{
    return (state & KVR_OUTLIER_EJECTED) != 0;
}


/* Tells whether it is ejected and not yet half-open. */
static inline int
kvr_outlier_sick(uint64_t state, uint64_t now)
{
    return (state & KVR_OUTLIER_EJECTED) && KVR_OUTLIER_TIME(state) > now;
}


/*
 * Returns the time before which an unanswered request makes a server suspect of
 * being silent; 0: unknown.
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


/* Tells whether a decision has to look at states. */
static inline int
kvr_outlier_look(kvr_outlier_fleet_t *fleet, uint64_t now)
{
    return kvr_get(&fleet->ejected) || now >= kvr_get(&fleet->look);
}


/* Notes a request to an ejected server; returns 1 if it is a probe. */
int kvr_outlier_probe(kvr_outlier_t *o, const kvr_outlier_conf_t *conf,
    uint64_t now);

/* Notes a request; returns 1 if it is a probe. */
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

/* Notes that no request waits unanswered. */
static inline void
kvr_outlier_answered(kvr_outlier_t *o)
{
    if (kvr_get(&o->asked)) {
        kvr_set(&o->asked, 0);
    }
}


/* Notes a sign of life. */
static inline void
kvr_outlier_heard(kvr_outlier_t *o)
{
    kvr_outlier_answered(o);

    if (kvr_get(&o->owed)) {
        kvr_set(&o->owed, 0);
    }
}

/*
 * Notes a request that came when no other one waited; of a stream, how many ms
 * its prefill takes.  "owed" is the time of the stream's pick, and in the lower
 * 15 bits for how many seconds it may wait.  If it did wait too long, they are
 * the time of its end and how long it waited, and the bit before them is set.
 * renewed: as below.
 */
void kvr_outlier_owe(kvr_outlier_t *o, kvr_outlier_fleet_t *fleet, int stream,
    uint64_t ms, uint64_t renewed, uint64_t now);

/*
 * Notes that a request has ended without a byte; given: time of the pick.
 * timeout: nginx's, otherwise the client has left.
 */
void kvr_outlier_unheard(kvr_outlier_t *o, uint64_t given, int timeout,
    uint64_t now);

/*
 * Returns for how many ms a server has sent nothing to a stream that waits, or
 * waited, too long; 0: it has not.  active: requests in flight; renewed: time
 * of the last restart.
 */
uint64_t kvr_outlier_mute(const kvr_outlier_t *o, uint64_t active,
    uint64_t renewed, uint64_t now);


/*
 * Tells whether the first event of a stream was slow, ms after the pick with so
 * many bytes to prefill; updates the fleet's median.
 */
int kvr_outlier_slow(kvr_outlier_fleet_t *fleet, uint64_t bytes, uint64_t ms);

/* Notes any first event, ms after the pick. */
void kvr_outlier_first(kvr_outlier_fleet_t *fleet, uint64_t ms);

/*
 * Notes the good start of an answer; given: time of the pick.  Returns 1 if it
 * returned the server.
 */
int kvr_outlier_good(kvr_outlier_t *o, uint64_t given, uint64_t now);

/*
 * Notes a good answer of an ejected server; end: at its end.  Returns 1 if it
 * returned the server.
 */
int kvr_outlier_pass(kvr_outlier_t *o, uint64_t given, int end, uint64_t now);

/* Notes the good end of an answer; returns as above. */
static inline int
kvr_outlier_end(kvr_outlier_t *o, uint64_t given, uint64_t now)
{
    if (kvr_unlikely(kvr_get(&o->row[1]))) {
        kvr_set(&o->row[1], 0);
    }

    return kvr_unlikely(kvr_outlier_ejected(kvr_get(&o->state)))
           ? kvr_outlier_pass(o, given, 1, now) : 0;
}

/* Tells whether the client may be to blame. */
static inline int
kvr_outlier_doubtful(kvr_outlier_e reason)
{
    return reason == KVR_OUTLIER_MISSING || reason >= KVR_OUTLIER_UNCLEAR;
}


/* Tells whether it is a status that blames the client. */
static inline int
kvr_outlier_refusal(kvr_outlier_e reason)
{
    return reason == KVR_OUTLIER_MISSING || reason > KVR_OUTLIER_UNCLEAR;
}


/* Returns the reason of a status that may be the client's fault. */
kvr_outlier_e kvr_outlier_client(uint32_t status);

/*
 * Notes a good start or, with "end", a good end: it outweighs a doubtful
 * answer.
 */
static inline void
kvr_outlier_trust(kvr_outlier_t *o, int end)
{
    uint32_t  doubt;

    doubt = kvr_get(&o->doubt[end]);

    if (kvr_unlikely(doubt)) {
        kvr_set(&o->doubt[end], doubt - 1);
    }
}


/*
 * Notes a bad answer that may be the client's fault; end, probe: as below.
 * Returns 1 if a trial of the server begins, because bad answers outnumber
 * good ones.
 */
int kvr_outlier_doubt(kvr_outlier_t *o, const kvr_outlier_conf_t *conf,
    kvr_outlier_e reason, int end, int probe, uint64_t now);

/*
 * Notes a bad answer; end: after a good start.  Returns 1 if the server should
 * be ejected, if others do better.
 */
int kvr_outlier_bad(kvr_outlier_t *o, const kvr_outlier_conf_t *conf,
    kvr_outlier_e reason, int end, int probe, uint64_t now);

/*
 * Tells whether another server has at most half of this one's share of bad
 * answers.  -1: it has no recent answers.
 */
int kvr_outlier_better(const kvr_outlier_t *other, const kvr_outlier_t *o,
    uint64_t now);

/* Ejects it; returns for how many ms, or 0 if it was ejected already. */
uint64_t kvr_outlier_eject(kvr_outlier_t *o, const kvr_outlier_conf_t *conf,
    kvr_outlier_e reason, uint64_t now);

/* Takes an ejection back, since too many are ejected. */
void kvr_outlier_spare(kvr_outlier_t *o, uint64_t now);

/*
 * Tells whether the retry budget allows another try.  kvr_outlier_sent() counts
 * each request and each retry.
 */
int kvr_outlier_may_retry(kvr_outlier_fleet_t *fleet,
    const kvr_outlier_conf_t *conf, uint64_t now);
void kvr_outlier_sent(kvr_outlier_fleet_t *fleet, int retry, uint64_t now);

/* Returns the name in the status, or NULL. */
const char *kvr_outlier_name(kvr_outlier_e reason);


#endif /* _KVR_OUTLIER_H_INCLUDED_ */
