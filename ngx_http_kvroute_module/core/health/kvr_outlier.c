
/*
 * Copyright (C) kvroute contributors
 */


#include "core/health/kvr_outlier.h"


/* parts of a window's word: slot, good answers, bad answers */
#define KVR_OUTLIER_BITS      24
#define KVR_OUTLIER_MASK      ((1ULL << KVR_OUTLIER_BITS) - 1)

/* slots by which another process's clock can be ahead */
#define KVR_OUTLIER_AHEAD     16

/* bytes of a unit of work, and the units of each request besides */
#define KVR_OUTLIER_WORK      1024
#define KVR_OUTLIER_EACH      8
#define KVR_OUTLIER_PACE      256

/* in the word of an owed answer: seconds; the wait is over */
#define KVR_OUTLIER_WAIT_MASK  0x7fffULL
#define KVR_OUTLIER_OVER       0x8000ULL


/* recent answers; older ones count less */
typedef struct {
    uint64_t           good;
    uint64_t           bad;
} kvr_outlier_count_t;


static void kvr_outlier_add(_Atomic uint64_t *word, uint64_t ms, int good,
    int bad, uint64_t now);
static kvr_outlier_count_t kvr_outlier_count(uint64_t word, uint64_t ms,
    uint64_t now);
static uint16_t kvr_outlier_slot(uint64_t ms, uint64_t now);
static uint16_t kvr_outlier_latest(uint64_t word, uint64_t ms, uint64_t now);
static int kvr_outlier_again(kvr_outlier_t *o, const kvr_outlier_conf_t *conf,
    int end, int probe, uint64_t now);
static uint32_t kvr_outlier_enough(const kvr_outlier_conf_t *conf,
    uint64_t state, uint64_t now);
static int kvr_outlier_relapse(const kvr_outlier_conf_t *conf, uint64_t state,
    uint64_t now);
static uint64_t kvr_outlier_span(const kvr_outlier_conf_t *conf,
    uint32_t level);
static uint64_t kvr_outlier_state(uint64_t time, uint32_t level,
    uint32_t passed, int out);
static void kvr_outlier_quantile(_Atomic uint32_t *word, uint64_t value,
    uint32_t up, uint32_t down);


int
kvr_outlier_probe(kvr_outlier_t *o, const kvr_outlier_conf_t *conf,
    uint64_t now)
{
    uint32_t  level;
    uint64_t  state;

    state = kvr_get(&o->state);

    if (!kvr_outlier_ejected(state) || kvr_outlier_sick(state, now)) {
        return 0;
    }

    /* a probe counts as failed, so the time doubles */

    level = kvr_min(KVR_OUTLIER_LEVEL(state) + 1, KVR_OUTLIER_DOUBLES);

    return atomic_compare_exchange_strong(&o->state, &state,
                     kvr_outlier_state(now + kvr_outlier_span(conf, level),
                                       level, KVR_OUTLIER_PASSED(state), 1));
}


/*
 * Moves a quantile in steps: by "up" 256ths if the value is above, else down
 * by "down".  A far value moves it no more than a near one.
 */
static void
kvr_outlier_quantile(_Atomic uint32_t *word, uint64_t value, uint32_t up,
    uint32_t down)
{
    uint64_t  q;

    q = kvr_get(word);

    if (q == 0) {
        q = value;

    } else if (value > q) {
        q = kvr_min(value, q + q * up / 256 + 1);

    } else {
        q = kvr_max(value, q - q * down / 256);
    }

    q = kvr_max(q, 1);

    kvr_set(word, (uint32_t) kvr_min(q, UINT32_MAX / 2));
}


int
kvr_outlier_slow(kvr_outlier_fleet_t *fleet, uint64_t bytes, uint64_t ms)
{
    int       slow;
    uint64_t  pace;

    pace = ms * KVR_OUTLIER_PACE / (bytes / KVR_OUTLIER_WORK
                                    + KVR_OUTLIER_EACH);

    slow = kvr_get(&fleet->samples) >= KVR_OUTLIER_SAMPLES
           && ms >= KVR_OUTLIER_FLOOR
           && pace > KVR_OUTLIER_TIMES * (uint64_t) kvr_get(&fleet->pace);

    kvr_outlier_quantile(&fleet->pace, pace, 8, 8);

    return slow;
}


void
kvr_outlier_first(kvr_outlier_fleet_t *fleet, uint64_t ms)
{
    kvr_outlier_quantile(&fleet->first, ms, 76, 4);

    if (kvr_get(&fleet->samples) < KVR_OUTLIER_SAMPLES) {
        kvr_add(&fleet->samples, 1);
    }
}


void
kvr_outlier_owe(kvr_outlier_t *o, kvr_outlier_fleet_t *fleet, int stream,
    uint64_t ms, uint64_t renewed, uint64_t now)
{
    if (kvr_get(&o->owed)) {

        if (kvr_outlier_mute(o, 0, renewed, now)) {
            return;
        }

        /* it is over for long, or the process of its request was killed */

        kvr_set(&o->owed, 0);
    }

    if (!stream || kvr_get(&fleet->samples) < KVR_OUTLIER_USUAL) {
        return;
    }

    ms = kvr_max(ms, kvr_get(&fleet->first)) * KVR_OUTLIER_OVERDUE;
    ms = kvr_max(ms, KVR_OUTLIER_PATIENCE);

    kvr_set(&o->owed, now << 16 | kvr_min(ms / 1000, KVR_OUTLIER_WAIT_MASK));
}


void
kvr_outlier_unheard(kvr_outlier_t *o, uint64_t given, int timeout, uint64_t now)
{
    uint64_t  owed, wait;

    owed = kvr_get(&o->owed);
    wait = (owed & KVR_OUTLIER_WAIT_MASK) * 1000;

    if (timeout && now - given >= KVR_OUTLIER_SILENCE) {

        /* others waited before it */

        if (owed) {
            given = (owed >> 16) - (owed & KVR_OUTLIER_OVER ? wait : 0);
        }

    } else if (owed >> 16 != given || owed & KVR_OUTLIER_OVER) {
        return;

    } else if (now - given < wait) {
        kvr_set(&o->owed, 0);
        return;
    }

    /* another worker's clock can be ahead */

    wait = now - kvr_min(given, now);

    kvr_set(&o->owed, now << 16 | KVR_OUTLIER_OVER
                      | kvr_min(wait / 1000, KVR_OUTLIER_WAIT_MASK));
}


uint64_t
kvr_outlier_mute(const kvr_outlier_t *o, uint64_t active, uint64_t renewed,
    uint64_t now)
{
    uint64_t  owed, ms, wait;

    owed = kvr_get(&o->owed);

    if (owed == 0 || now < owed >> 16) {
        return 0;
    }

    ms = now - (owed >> 16);
    wait = (owed & KVR_OUTLIER_WAIT_MASK) * 1000;

    if (owed & KVR_OUTLIER_OVER) {

        if (active == 0 && ms >= KVR_OUTLIER_MEMORY) {
            return 0;
        }

        ms += wait;

    } else if (active == 0 || ms < wait) {
        return 0;
    }

    /* what a process owed that is gone is lost */

    return now - ms < renewed ? 0 : ms;
}


int
kvr_outlier_good(kvr_outlier_t *o, uint64_t given, uint64_t now)
{
    uint64_t  word;

    kvr_outlier_heard(o);

    if (kvr_unlikely(kvr_get(&o->row[0]))) {
        kvr_set(&o->row[0], 0);
    }

    /* in the same half of the window nothing has to be halved */

    word = kvr_get(&o->window);

    if (kvr_likely(word >> 2 * KVR_OUTLIER_BITS
                   == kvr_outlier_slot(KVR_OUTLIER_WINDOW, now)
                   && (word >> KVR_OUTLIER_BITS & KVR_OUTLIER_MASK)
                      < KVR_OUTLIER_MASK / 2))
    {
        kvr_add(&o->window, 1ULL << KVR_OUTLIER_BITS);

    } else {
        kvr_outlier_add(&o->window, KVR_OUTLIER_WINDOW, 1, 0, now);
    }

    return kvr_unlikely(kvr_outlier_ejected(kvr_get(&o->state)))
           ? kvr_outlier_pass(o, given, 0, now) : 0;
}


int
kvr_outlier_pass(kvr_outlier_t *o, uint64_t given, int end, uint64_t now)
{
    int       back;
    uint32_t  level, passed, reason;
    uint64_t  state, next;

    state = kvr_get(&o->state);

    /* a request from before the ejection proves nothing */

    if (!kvr_outlier_ejected(state) || given < kvr_get(&o->since)) {
        return 0;
    }

    /* after broken answers only complete ones count */

    reason = kvr_get(&o->reason);

    if (end != (reason == KVR_OUTLIER_BROKEN || reason == KVR_OUTLIER_ERROR
                 || reason == KVR_OUTLIER_UNCLEAR))
    {
        return 0;
    }

    passed = KVR_OUTLIER_PASSED(state) + 1;
    back = passed >= KVR_OUTLIER_PASSES;

    level = KVR_OUTLIER_LEVEL(state);
    level -= kvr_min(level, 1);

    next = kvr_outlier_state(now, level, back ? 0 : passed, !back);

    if (!atomic_compare_exchange_strong(&o->state, &state, next) || !back) {
        return 0;
    }

    /* a fresh start */

    kvr_set(&o->window, 0);
    kvr_set(&o->row[1], 0);

    return 1;
}


int
kvr_outlier_doubt(kvr_outlier_t *o, const kvr_outlier_conf_t *conf,
    kvr_outlier_e reason, int end, int probe, uint64_t now)
{
    uint64_t  state;

    kvr_outlier_answered(o);

    state = kvr_get(&o->state);

    /* a client's fault does not extend an ejection for another reason */

    if (kvr_outlier_ejected(state)) {
        return kvr_get(&o->reason) == reason
               && kvr_outlier_again(o, conf, end, probe, now);
    }

    return kvr_add(&o->doubt[end], 1) + 1
           >= kvr_min(kvr_outlier_enough(conf, state, now), KVR_OUTLIER_LEAST)
           && kvr_trial_begin(&o->trial, reason, now);
}


int
kvr_outlier_bad(kvr_outlier_t *o, const kvr_outlier_conf_t *conf,
    kvr_outlier_e reason, int end, int probe, uint64_t now)
{
    uint64_t             state, own;
    kvr_outlier_count_t  c;

    kvr_outlier_answered(o);

    /* a good start was already counted as good */

    kvr_outlier_add(&o->window, KVR_OUTLIER_WINDOW, -end, 1, now);

    state = kvr_get(&o->state);

    if (kvr_outlier_ejected(state)) {
        return kvr_outlier_again(o, conf, end, probe, now);
    }

    if (kvr_add(&o->row[end], 1) + 1 >= kvr_outlier_enough(conf, state, now)) {
        return 1;
    }

    c = kvr_outlier_count(kvr_get(&o->window), KVR_OUTLIER_WINDOW, now);
    own = c.good + c.bad;

    return own >= KVR_OUTLIER_LEAST && c.bad * 100 >= own * KVR_OUTLIER_SHARE;
}


/* Extends an ejection, if a good start may have allowed the next probe. */
static int
kvr_outlier_again(kvr_outlier_t *o, const kvr_outlier_conf_t *conf, int end,
    int probe, uint64_t now)
{
    uint64_t  state;

    state = kvr_get(&o->state);

    if (kvr_outlier_ejected(state) && (probe || end)) {
        atomic_compare_exchange_strong(&o->state, &state,
                 kvr_outlier_state(now + kvr_outlier_span(conf,
                                              KVR_OUTLIER_LEVEL(state)),
                                   KVR_OUTLIER_LEVEL(state), 0, 1));
    }

    return 0;
}


int
kvr_outlier_better(const kvr_outlier_t *other, const kvr_outlier_t *o,
    uint64_t now)
{
    kvr_outlier_count_t  a, b;

    a = kvr_outlier_count(kvr_get(&other->window), KVR_OUTLIER_WINDOW, now);
    b = kvr_outlier_count(kvr_get(&o->window), KVR_OUTLIER_WINDOW, now);

    if (a.good + a.bad == 0) {
        return -1;
    }

    return 2 * a.bad * (b.good + b.bad) <= b.bad * (a.good + a.bad);
}


uint64_t
kvr_outlier_eject(kvr_outlier_t *o, const kvr_outlier_conf_t *conf,
    kvr_outlier_e reason, uint64_t now)
{
    uint32_t  level;
    uint64_t  state, span;

    state = kvr_get(&o->state);

    if (kvr_outlier_ejected(state)) {
        return 0;
    }

    /* a server that was in for as long as ejected starts with the first time */

    level = kvr_outlier_relapse(conf, state, now)
            ? kvr_min(KVR_OUTLIER_LEVEL(state) + 1, KVR_OUTLIER_DOUBLES) : 0;

    span = kvr_outlier_span(conf, level);

    if (!atomic_compare_exchange_strong(&o->state, &state,
                                 kvr_outlier_state(now + span, level, 0, 1)))
    {
        return 0;
    }

    kvr_set(&o->since, now);
    kvr_set(&o->reason, reason);
    kvr_set(&o->row[0], 0);
    kvr_set(&o->row[1], 0);
    kvr_set(&o->doubt[0], 0);
    kvr_set(&o->doubt[1], 0);
    kvr_set(&o->asked, 0);
    kvr_set(&o->owed, 0);

    return span;
}


void
kvr_outlier_spare(kvr_outlier_t *o, uint64_t now)
{
    kvr_set(&o->state, 0);
    kvr_set(&o->since, now);
}


int
kvr_outlier_may_retry(kvr_outlier_fleet_t *fleet,
    const kvr_outlier_conf_t *conf, uint64_t now)
{
    kvr_outlier_count_t  sent;

    if (conf->budget == 0) {
        return 1;
    }

    sent = kvr_outlier_count(kvr_get(&fleet->sent), KVR_OUTLIER_RETRIES, now);

    return 100 * sent.bad < 100 * KVR_OUTLIER_RESERVE
                            + conf->budget * sent.good;
}


void
kvr_outlier_sent(kvr_outlier_fleet_t *fleet, int retry, uint64_t now)
{
    kvr_outlier_add(&fleet->sent, KVR_OUTLIER_RETRIES, !retry, retry, now);
}


/* Returns how many bad answers in a row are enough. */
static uint32_t
kvr_outlier_enough(const kvr_outlier_conf_t *conf, uint64_t state,
    uint64_t now)
{
    return kvr_outlier_relapse(conf, state, now)
           ? conf->fails / KVR_OUTLIER_RELAPSE : conf->fails;
}


/* Tells whether it has been back for less time than it had been ejected. */
static int
kvr_outlier_relapse(const kvr_outlier_conf_t *conf, uint64_t state,
    uint64_t now)
{
    return state && now - KVR_OUTLIER_TIME(state)
                    < kvr_outlier_span(conf, KVR_OUTLIER_LEVEL(state));
}


static uint64_t
kvr_outlier_span(const kvr_outlier_conf_t *conf, uint32_t level)
{
    return (uint64_t) conf->time << kvr_min(level, KVR_OUTLIER_DOUBLES);
}


static uint64_t
kvr_outlier_state(uint64_t time, uint32_t level, uint32_t passed, int out)
{
    return time << 16 | (out ? KVR_OUTLIER_EJECTED : 0) | level << 8 | passed;
}


static uint16_t
kvr_outlier_slot(uint64_t ms, uint64_t now)
{
    return (uint16_t) (now / (ms / 2 + 1));
}


/* Returns the slot of now, or the word's if that process's clock is ahead. */
static uint16_t
kvr_outlier_latest(uint64_t word, uint64_t ms, uint64_t now)
{
    uint16_t  slot, last;

    slot = kvr_outlier_slot(ms, now);
    last = (uint16_t) (word >> 2 * KVR_OUTLIER_BITS);

    return (uint16_t) (last - slot) < KVR_OUTLIER_AHEAD ? last : slot;
}


/*
 * Returns the answers of a window.  Counts halve each half of the window's
 * time, so answers older than the window count less than a quarter.
 */
static kvr_outlier_count_t
kvr_outlier_count(uint64_t word, uint64_t ms, uint64_t now)
{
    uint32_t             past;
    kvr_outlier_count_t  c;

    past = kvr_outlier_latest(word, ms, now)
           - (uint16_t) (word >> 2 * KVR_OUTLIER_BITS);
    past = kvr_min((uint16_t) past, KVR_OUTLIER_BITS);

    c.good = (word >> KVR_OUTLIER_BITS & KVR_OUTLIER_MASK) >> past;
    c.bad = (word & KVR_OUTLIER_MASK) >> past;

    return c;
}


static void
kvr_outlier_add(_Atomic uint64_t *word, uint64_t ms, int good, int bad,
    uint64_t now)
{
    uint64_t             old, next;
    kvr_outlier_count_t  c;

    old = kvr_get(word);

    do {
        c = kvr_outlier_count(old, ms, now);

        c.good = good < 0 ? c.good - kvr_min(c.good, 1)
                          : kvr_min(c.good + (uint64_t) good, KVR_OUTLIER_MASK);
        c.bad = kvr_min(c.bad + (uint64_t) bad, KVR_OUTLIER_MASK);

        next = (uint64_t) kvr_outlier_latest(old, ms, now)
               << 2 * KVR_OUTLIER_BITS
               | c.good << KVR_OUTLIER_BITS | c.bad;

    } while (!atomic_compare_exchange_weak(word, &old, next));
}


kvr_outlier_e
kvr_outlier_client(uint32_t status)
{
    uint32_t  i;

    static const struct {
        uint32_t       status;
        kvr_outlier_e  reason;
    } reasons[] = {
        { 400, KVR_OUTLIER_400 }, { 401, KVR_OUTLIER_401 },
        { 403, KVR_OUTLIER_403 }, { 404, KVR_OUTLIER_MISSING },
        { 413, KVR_OUTLIER_413 }, { 422, KVR_OUTLIER_422 },
        { 429, KVR_OUTLIER_429 }, { 503, KVR_OUTLIER_503 }
    };

    for (i = 0; i < kvr_nelts(reasons); i++) {
        if (reasons[i].status == status) {
            return reasons[i].reason;
        }
    }

    return KVR_OUTLIER_4XX;
}


const char *
kvr_outlier_name(kvr_outlier_e reason)
{
    static const char *const  names[] = {
        "none", "5xx", "refused", "tls", "reset", "timeout", "broken", "404",
        "slow", "silent", "error", "unclear", "400", "401", "403", "413", "422",
        "429", "503", "4xx"
    };

    _Static_assert(kvr_nelts(names) == KVR_OUTLIER_REASONS, "reasons");
    _Static_assert(KVR_OUTLIER_REASONS <= KVR_TRIAL_REASONS, "of a trial");

    return (unsigned) reason < KVR_OUTLIER_REASONS ? names[reason] : NULL;
}
