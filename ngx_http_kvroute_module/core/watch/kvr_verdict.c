
/*
 * Copyright (C) kvroute contributors
 */


#include "core/watch/kvr_verdict.h"


/* properties that several servers can have */
#define KVR_VERDICT_IS_DOWN       0x01
#define KVR_VERDICT_IS_LOST       0x02  /* down, but not by the operator */
#define KVR_VERDICT_IS_PLANNED    0x04
#define KVR_VERDICT_IS_STALE      0x08
#define KVR_VERDICT_IS_UNCOUNTED  0x10


/* the servers that are judged */
typedef struct {
    const kvr_verdict_server_t  *server;
    uint32_t                     n;
    uint32_t                     up;     /* without backup servers */
    kvr_verdict_server_t         all;    /* sum */
    kvr_verdict_server_t         main;   /* sum of those that are up */
    kvr_verdict_t               *v;
} kvr_verdict_view_t;

typedef void (*kvr_verdict_judge_pt)(const kvr_verdict_view_t *w,
    const kvr_verdict_server_t *s);


static void kvr_verdict_add(kvr_verdict_server_t *sum,
    const kvr_verdict_server_t *s);
static void kvr_verdict_each(const kvr_verdict_view_t *w,
    kvr_verdict_judge_pt judge);
static kvr_verdict_why_t *kvr_verdict_say(kvr_verdict_t *v,
    kvr_verdict_e state, kvr_verdict_reason_e reason);
static kvr_verdict_why_t *kvr_verdict_one(const kvr_verdict_view_t *w,
    const kvr_verdict_server_t *s, kvr_verdict_e state,
    kvr_verdict_reason_e reason, uint64_t number, uint64_t all);
static void kvr_verdict_common(const kvr_verdict_view_t *w, unsigned which,
    kvr_verdict_e state, kvr_verdict_reason_e reason);
static void kvr_verdict_states(const kvr_verdict_view_t *w);
static void kvr_verdict_errors(const kvr_verdict_view_t *w,
    const kvr_verdict_server_t *s);
static void kvr_verdict_refuses(const kvr_verdict_view_t *w,
    const kvr_verdict_server_t *s);
static uint32_t kvr_verdict_percent(uint64_t part, uint64_t all);
static void kvr_verdict_rejects(const kvr_verdict_view_t *w, uint64_t rejects);
static void kvr_verdict_silent(const kvr_verdict_view_t *w,
    const kvr_verdict_server_t *s);
static void kvr_verdict_slow(const kvr_verdict_view_t *w);
static void kvr_verdict_hot(const kvr_verdict_view_t *w);
static void kvr_verdict_starved(const kvr_verdict_view_t *w,
    const kvr_verdict_server_t *s);
static unsigned kvr_verdict_is(const kvr_verdict_server_t *s);


void
kvr_verdict(const kvr_verdict_upstream_t *u,
    const kvr_verdict_server_t *server, uint32_t n, kvr_verdict_t *v)
{
    uint32_t             i;
    kvr_verdict_view_t   view = { .server = server, .n = n, .v = v };
    kvr_verdict_view_t  *w = &view;

    v->state = KVR_VERDICT_GREEN;
    v->n = 0;

    for (i = 0; i < n; i++) {
        kvr_verdict_add(&w->all, &server[i]);

        if (server[i].up && !server[i].backup) {
            kvr_verdict_add(&w->main, &server[i]);
            w->up++;
        }
    }

    if (u->locked) {
        (void) kvr_verdict_say(v, KVR_VERDICT_RED, KVR_VERDICT_LOCKED);
    }

    kvr_verdict_each(w, kvr_verdict_errors);
    kvr_verdict_each(w, kvr_verdict_refuses);
    kvr_verdict_states(w);
    kvr_verdict_rejects(w, u->rejects);

    kvr_verdict_each(w, kvr_verdict_silent);
    kvr_verdict_slow(w);
    kvr_verdict_hot(w);
    kvr_verdict_each(w, kvr_verdict_starved);

    kvr_verdict_common(w, KVR_VERDICT_IS_STALE, KVR_VERDICT_AMBER,
                       KVR_VERDICT_STALE);

    if (u->alone) {
        kvr_verdict_say(v, KVR_VERDICT_AMBER, KVR_VERDICT_ALONE)->n = u->alone;
    }

    kvr_verdict_common(w, KVR_VERDICT_IS_PLANNED, KVR_VERDICT_AMBER,
                       KVR_VERDICT_DRAINED);
    kvr_verdict_common(w, KVR_VERDICT_IS_UNCOUNTED, KVR_VERDICT_AMBER,
                       KVR_VERDICT_UNCOUNTED);
}


static void
kvr_verdict_add(kvr_verdict_server_t *sum, const kvr_verdict_server_t *s)
{
    sum->active += s->active;
    sum->requests += s->requests;
    sum->errors += s->errors;
    sum->refused += s->refused;
    sum->firsts += s->firsts;
    sum->ttft += s->ttft;
    sum->weight += s->weight;
}


static void
kvr_verdict_each(const kvr_verdict_view_t *w, kvr_verdict_judge_pt judge)
{
    uint32_t  i;

    for (i = 0; i < w->n; i++) {
        judge(w, &w->server[i]);
    }
}


const char *
kvr_verdict_name(kvr_verdict_e state)
{
    static const char *const  names[] = { "green", "amber", "red" };

    _Static_assert(kvr_nelts(names) == KVR_VERDICT_STATES, "names");

    return names[state];
}


const kvr_verdict_row_t *
kvr_verdict_row(kvr_verdict_reason_e reason)
{
    static const kvr_verdict_row_t  rows[] = {
        { "errors", "requests", "of", "percent", "percent_of_all" },
        { "client_errors", "requests", NULL, "percent", "percent_elsewhere" },
        { "silent", "seconds", "active", NULL, NULL },
        { "slow", "ttft_ms", "others_ms", NULL, NULL },
        { "hot", "active", "of", NULL, NULL },
        { "starved", "requests", "share", "ttft_ms", "others_ms" },
        { "locked", NULL, NULL, NULL, NULL },
        { "none_up", "number", "of", NULL, NULL },
        { "not_up", "number", "of", NULL, NULL },
        { "rejects", "rejects", "of", "percent", NULL },
        { "old_metrics", "number", "of", NULL, NULL },
        { "not_sharing", "seconds", NULL, NULL, NULL },
        { "drained", "number", "of", NULL, NULL },
        { "no_counters", "number", "of", NULL, NULL }
    };

    _Static_assert(kvr_nelts(rows) == KVR_VERDICT_REASONS, "rows");

    return &rows[reason];
}


/* Inserts a cause behind those of the same state. The last one may drop out. */
static kvr_verdict_why_t *
kvr_verdict_say(kvr_verdict_t *v, kvr_verdict_e state,
    kvr_verdict_reason_e reason)
{
    uint32_t            i;
    kvr_verdict_why_t  *why;

    for (i = v->n; i > 0 && v->why[i - 1].state < state; i--) { /* void */ }

    why = &v->why[i];

    memmove(why + 1, why, (KVR_VERDICT_WHY - i) * sizeof(kvr_verdict_why_t));
    memset(why, 0, sizeof(kvr_verdict_why_t));

    why->state = state;
    why->reason = reason;

    v->state = kvr_max(v->state, state);
    v->n = kvr_min(v->n + 1, KVR_VERDICT_WHY);

    return why;
}


/* Adds a cause of one server, with its numbers. */
static kvr_verdict_why_t *
kvr_verdict_one(const kvr_verdict_view_t *w, const kvr_verdict_server_t *s,
    kvr_verdict_e state, kvr_verdict_reason_e reason, uint64_t number,
    uint64_t all)
{
    kvr_verdict_why_t  *why;

    why = kvr_verdict_say(w->v, state, reason);

    why->server[why->servers++] = (uint32_t) (s - w->server);
    why->n = number;
    why->all = all;

    return why;
}


/* Adds one cause for all servers that have a property, if there are any. */
static void
kvr_verdict_common(const kvr_verdict_view_t *w, unsigned which,
    kvr_verdict_e state, kvr_verdict_reason_e reason)
{
    uint32_t            i;
    kvr_verdict_why_t  *why;

    why = NULL;

    for (i = 0; i < w->n; i++) {

        if (!(kvr_verdict_is(&w->server[i]) & which)) {
            continue;
        }

        if (why == NULL) {
            why = kvr_verdict_say(w->v, state, reason);
            why->all = w->n;
        }

        if (why->servers < KVR_VERDICT_NAMES) {
            why->server[why->servers++] = i;
        }

        why->n++;
    }
}


static void
kvr_verdict_states(const kvr_verdict_view_t *w)
{
    uint32_t  i, down, lost;

    for (i = 0, down = 0, lost = 0; i < w->n; i++) {
        down += !w->server[i].up;
        lost += (kvr_verdict_is(&w->server[i]) & KVR_VERDICT_IS_LOST) != 0;
    }

    if (down == w->n) {
        kvr_verdict_common(w, KVR_VERDICT_IS_DOWN, KVR_VERDICT_RED,
                           KVR_VERDICT_NONE_UP);
        return;
    }

    kvr_verdict_common(w, KVR_VERDICT_IS_LOST,
                       2 * lost >= w->n ? KVR_VERDICT_RED : KVR_VERDICT_AMBER,
                       KVR_VERDICT_NOT_UP);
}


/* Red if this share of all requests failed; amber if only of one server's. */
static void
kvr_verdict_errors(const kvr_verdict_view_t *w, const kvr_verdict_server_t *s)
{
    kvr_verdict_why_t  *why;

    if (s->errors < KVR_VERDICT_FEW
        || s->errors * 100 < s->requests * KVR_VERDICT_PERCENT)
    {
        return;
    }

    why = kvr_verdict_one(w, s,
                          w->all.errors * 100
                          >= w->all.requests * KVR_VERDICT_PERCENT
                          ? KVR_VERDICT_RED : KVR_VERDICT_AMBER,
                          KVR_VERDICT_ERRORS, s->requests, w->all.requests);

    why->percent = kvr_verdict_percent(s->errors, s->requests);
    why->of_all = kvr_verdict_percent(s->errors, w->all.requests);
}


/* Finds servers that answer 4xx while the others do not. */
static void
kvr_verdict_refuses(const kvr_verdict_view_t *w, const kvr_verdict_server_t *s)
{
    uint32_t            mine, theirs;
    kvr_verdict_why_t  *why;

    mine = kvr_verdict_percent(s->refused, s->requests);
    theirs = kvr_verdict_percent(w->all.refused - s->refused,
                                 w->all.requests - s->requests);

    if (!s->refuses
        && (s->refused < KVR_VERDICT_FEW || mine < KVR_VERDICT_REFUSED
            || theirs * 10 > mine || w->all.requests == s->requests))
    {
        return;
    }

    why = kvr_verdict_one(w, s, KVR_VERDICT_AMBER, KVR_VERDICT_REFUSES,
                          s->requests, 0);
    why->percent = mine;
    why->of_all = theirs;
}


/* a response in this minute can belong to a request of the minute before */
static uint32_t
kvr_verdict_percent(uint64_t part, uint64_t all)
{
    return (uint32_t) (kvr_min(part, all) * 100 / kvr_max(all, 1));
}


static void
kvr_verdict_rejects(const kvr_verdict_view_t *w, uint64_t rejects)
{
    uint64_t            all;
    kvr_verdict_why_t  *why;

    if (rejects == 0) {
        return;
    }

    all = rejects + w->all.requests;

    why = kvr_verdict_say(w->v, rejects * 100 >= all * KVR_VERDICT_PERCENT
                                ? KVR_VERDICT_RED : KVR_VERDICT_AMBER,
                          KVR_VERDICT_REJECTS);

    why->n = rejects;
    why->all = all;
    why->percent = kvr_verdict_percent(rejects, all);
}


/* Finds servers that have left a stream without a first token. */
static void
kvr_verdict_silent(const kvr_verdict_view_t *w, const kvr_verdict_server_t *s)
{
    if (s->up && s->mute) {
        (void) kvr_verdict_one(w, s, KVR_VERDICT_AMBER, KVR_VERDICT_SILENT,
                               s->mute / 1000, s->active);
    }
}


/* Compares the slowest server with all the others together. */
static void
kvr_verdict_slow(const kvr_verdict_view_t *w)
{
    uint32_t                     i;
    uint64_t                     firsts, mine, theirs;
    const kvr_verdict_server_t  *s, *slow;

    slow = NULL;

    for (i = 0; i < w->n; i++) {
        s = &w->server[i];

        if (s->firsts >= KVR_VERDICT_FIRSTS
            && (slow == NULL || s->ttft * slow->firsts
                                > slow->ttft * s->firsts))
        {
            slow = s;
        }
    }

    firsts = slow ? w->all.firsts - slow->firsts : 0;

    if (firsts < KVR_VERDICT_FIRSTS) {
        return;
    }

    mine = slow->ttft / slow->firsts;
    theirs = (w->all.ttft - slow->ttft) / firsts;

    if (mine < KVR_VERDICT_TIMES * theirs || mine < theirs + KVR_VERDICT_LATER)
    {
        return;
    }

    (void) kvr_verdict_one(w, slow, KVR_VERDICT_AMBER, KVR_VERDICT_SLOW, mine,
                           theirs);
}


/* Compares the busiest server with the mean of the others that are up. */
static void
kvr_verdict_hot(const kvr_verdict_view_t *w)
{
    uint32_t                     i;
    uint64_t                     others;
    const kvr_verdict_server_t  *s, *hot;

    hot = NULL;

    for (i = 0; i < w->n; i++) {
        s = &w->server[i];

        if (s->up && !s->backup && (hot == NULL || s->active > hot->active)) {
            hot = s;
        }
    }

    if (w->up < 2) {
        return;
    }

    others = (w->main.active - hot->active) / (w->up - 1);

    if (hot->active < KVR_VERDICT_BUSY * others
        || hot->active < others + KVR_VERDICT_ACTIVE)
    {
        return;
    }

    (void) kvr_verdict_one(w, hot, KVR_VERDICT_AMBER, KVR_VERDICT_HOT,
                           hot->active, w->main.active);
}


/*
 * Finds servers that get few requests for a reason: their first tokens come
 * late, or the others are busy while they have none.  Affinity alone can leave
 * a server of a quiet upstream without requests.
 */
static void
kvr_verdict_starved(const kvr_verdict_view_t *w, const kvr_verdict_server_t *s)
{
    int                 slow, idle;
    uint64_t            share, theirs;
    kvr_verdict_why_t  *why;

    if (w->up < 2 || !s->steady || s->backup) {
        return;
    }

    share = w->main.requests * s->weight / kvr_max(w->main.weight, 1);

    if (share < KVR_VERDICT_SHARE
        || s->requests * KVR_VERDICT_FIFTH >= share)
    {
        return;
    }

    theirs = (w->main.ttft - s->ttft) / kvr_max(w->main.firsts - s->firsts, 1);

    slow = s->window >= KVR_VERDICT_TIMES * theirs
           && s->window >= theirs + KVR_VERDICT_BEHIND;
    idle = s->active == 0
           && w->main.active >= KVR_VERDICT_IDLE * (w->up - 1);

    if (!slow && !idle) {
        return;
    }

    why = kvr_verdict_one(w, s, KVR_VERDICT_AMBER, KVR_VERDICT_STARVED,
                          s->requests, share);
    why->percent = (uint32_t) s->window;
    why->of_all = (uint32_t) theirs;
}


static unsigned
kvr_verdict_is(const kvr_verdict_server_t *s)
{
    unsigned  is;

    is = s->up ? 0 : KVR_VERDICT_IS_DOWN
                     | (s->planned ? KVR_VERDICT_IS_PLANNED
                                   : KVR_VERDICT_IS_LOST);

    is |= (s->up && s->stale) ? KVR_VERDICT_IS_STALE : 0;
    is |= s->uncounted ? KVR_VERDICT_IS_UNCOUNTED : 0;

    return is;
}
