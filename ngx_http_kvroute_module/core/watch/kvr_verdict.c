
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


static kvr_verdict_why_t *kvr_verdict_say(kvr_verdict_t *v,
    kvr_verdict_e state, kvr_verdict_reason_e reason);
static void kvr_verdict_common(const kvr_verdict_server_t *server, uint32_t n,
    unsigned which, kvr_verdict_e state, kvr_verdict_reason_e reason,
    kvr_verdict_t *v);
static void kvr_verdict_states(const kvr_verdict_server_t *server, uint32_t n,
    kvr_verdict_t *v);
static void kvr_verdict_errors(const kvr_verdict_server_t *server, uint32_t n,
    kvr_verdict_t *v);
static void kvr_verdict_refuses(const kvr_verdict_server_t *server, uint32_t n,
    kvr_verdict_t *v);
static void kvr_verdict_rejects(const kvr_verdict_upstream_t *u,
    const kvr_verdict_server_t *server, uint32_t n, kvr_verdict_t *v);
static uint32_t kvr_verdict_percent(uint64_t part, uint64_t all);
static void kvr_verdict_silent(const kvr_verdict_server_t *server, uint32_t n,
    kvr_verdict_t *v);
static void kvr_verdict_slow(const kvr_verdict_server_t *server, uint32_t n,
    kvr_verdict_t *v);
static void kvr_verdict_hot(const kvr_verdict_server_t *server, uint32_t n,
    kvr_verdict_t *v);
static void kvr_verdict_starved(const kvr_verdict_server_t *server, uint32_t n,
    kvr_verdict_t *v);
static unsigned kvr_verdict_is(const kvr_verdict_server_t *s);


void
kvr_verdict(const kvr_verdict_upstream_t *u,
    const kvr_verdict_server_t *server, uint32_t n, kvr_verdict_t *v)
{
    v->state = KVR_VERDICT_GREEN;
    v->n = 0;

    if (u->locked) {
        (void) kvr_verdict_say(v, KVR_VERDICT_RED, KVR_VERDICT_LOCKED);
    }

    kvr_verdict_errors(server, n, v);
    kvr_verdict_refuses(server, n, v);
    kvr_verdict_states(server, n, v);
    kvr_verdict_rejects(u, server, n, v);

    kvr_verdict_silent(server, n, v);
    kvr_verdict_slow(server, n, v);
    kvr_verdict_hot(server, n, v);
    kvr_verdict_starved(server, n, v);

    kvr_verdict_common(server, n, KVR_VERDICT_IS_STALE, KVR_VERDICT_AMBER,
                       KVR_VERDICT_STALE, v);

    if (u->alone) {
        kvr_verdict_say(v, KVR_VERDICT_AMBER, KVR_VERDICT_ALONE)->n = u->alone;
    }

    kvr_verdict_common(server, n, KVR_VERDICT_IS_PLANNED, KVR_VERDICT_AMBER,
                       KVR_VERDICT_DRAINED, v);
    kvr_verdict_common(server, n, KVR_VERDICT_IS_UNCOUNTED, KVR_VERDICT_AMBER,
                       KVR_VERDICT_UNCOUNTED, v);
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


/* Adds one cause for all servers that have a property, if there are any. */
static void
kvr_verdict_common(const kvr_verdict_server_t *server, uint32_t n,
    unsigned which, kvr_verdict_e state, kvr_verdict_reason_e reason,
    kvr_verdict_t *v)
{
    uint32_t            i;
    kvr_verdict_why_t  *why;

    why = NULL;

    for (i = 0; i < n; i++) {

        if (!(kvr_verdict_is(&server[i]) & which)) {
            continue;
        }

        if (why == NULL) {
            why = kvr_verdict_say(v, state, reason);
            why->all = n;
        }

        if (why->servers < KVR_VERDICT_NAMES) {
            why->server[why->servers++] = i;
        }

        why->n++;
    }
}


static void
kvr_verdict_states(const kvr_verdict_server_t *server, uint32_t n,
    kvr_verdict_t *v)
{
    uint32_t  i, up, lost;

    for (i = 0, up = 0, lost = 0; i < n; i++) {
        up += server[i].up;
        lost += (kvr_verdict_is(&server[i]) & KVR_VERDICT_IS_LOST) != 0;
    }

    if (n && up == 0) {
        kvr_verdict_common(server, n, KVR_VERDICT_IS_DOWN, KVR_VERDICT_RED,
                           KVR_VERDICT_NONE_UP, v);
        return;
    }

    kvr_verdict_common(server, n, KVR_VERDICT_IS_LOST,
                       2 * lost >= n ? KVR_VERDICT_RED : KVR_VERDICT_AMBER,
                       KVR_VERDICT_NOT_UP, v);
}


/* Red if this share of all requests failed; amber if only of one server's. */
static void
kvr_verdict_errors(const kvr_verdict_server_t *server, uint32_t n,
    kvr_verdict_t *v)
{
    uint32_t                     i;
    uint64_t                     requests, errors;
    kvr_verdict_e                state;
    kvr_verdict_why_t           *why;
    const kvr_verdict_server_t  *s;

    for (i = 0, requests = 0, errors = 0; i < n; i++) {
        requests += server[i].requests;
        errors += server[i].errors;
    }

    state = (errors * 100 >= requests * KVR_VERDICT_PERCENT)
            ? KVR_VERDICT_RED : KVR_VERDICT_AMBER;

    for (i = 0; i < n; i++) {
        s = &server[i];

        if (s->errors < KVR_VERDICT_FEW
            || s->errors * 100 < s->requests * KVR_VERDICT_PERCENT)
        {
            continue;
        }

        why = kvr_verdict_say(v, state, KVR_VERDICT_ERRORS);

        why->server[why->servers++] = i;
        why->n = s->requests;
        why->all = requests;

        why->percent = kvr_verdict_percent(s->errors, s->requests);
        why->of_all = kvr_verdict_percent(s->errors, requests);
    }
}


/* Finds servers that answer 4xx while the others do not. */
static void
kvr_verdict_refuses(const kvr_verdict_server_t *server, uint32_t n,
    kvr_verdict_t *v)
{
    uint32_t                     i, mine, theirs;
    uint64_t                     requests, refused;
    kvr_verdict_why_t           *why;
    const kvr_verdict_server_t  *s;

    for (i = 0, requests = 0, refused = 0; i < n; i++) {
        requests += server[i].requests;
        refused += server[i].refused;
    }

    for (i = 0; i < n; i++) {
        s = &server[i];

        mine = kvr_verdict_percent(s->refused, s->requests);
        theirs = kvr_verdict_percent(refused - s->refused,
                                     requests - s->requests);

        if (!s->refuses
            && (s->refused < KVR_VERDICT_FEW || mine < KVR_VERDICT_REFUSED
                || theirs * 10 > mine || requests == s->requests))
        {
            continue;
        }

        why = kvr_verdict_say(v, KVR_VERDICT_AMBER, KVR_VERDICT_REFUSES);

        why->server[why->servers++] = i;
        why->n = s->requests;
        why->percent = mine;
        why->of_all = theirs;
    }
}


/* a response in this minute can belong to a request of the minute before */
static uint32_t
kvr_verdict_percent(uint64_t part, uint64_t all)
{
    return (uint32_t) (kvr_min(part, all) * 100 / kvr_max(all, 1));
}


static void
kvr_verdict_rejects(const kvr_verdict_upstream_t *u,
    const kvr_verdict_server_t *server, uint32_t n, kvr_verdict_t *v)
{
    uint32_t            i;
    uint64_t            all;
    kvr_verdict_why_t  *why;

    if (u->rejects == 0) {
        return;
    }

    for (i = 0, all = u->rejects; i < n; i++) {
        all += server[i].requests;
    }

    why = kvr_verdict_say(v, u->rejects * 100 >= all * KVR_VERDICT_PERCENT
                             ? KVR_VERDICT_RED : KVR_VERDICT_AMBER,
                          KVR_VERDICT_REJECTS);

    why->n = u->rejects;
    why->all = all;
    why->percent = (uint32_t) (u->rejects * 100 / all);
}


/* Finds servers that have left a stream without a first token. */
static void
kvr_verdict_silent(const kvr_verdict_server_t *server, uint32_t n,
    kvr_verdict_t *v)
{
    uint32_t                     i;
    kvr_verdict_why_t           *why;
    const kvr_verdict_server_t  *s;

    for (i = 0; i < n; i++) {
        s = &server[i];

        if (!s->up || s->mute == 0) {
            continue;
        }

        why = kvr_verdict_say(v, KVR_VERDICT_AMBER, KVR_VERDICT_SILENT);

        why->server[why->servers++] = i;
        why->n = s->mute / 1000;
        why->all = s->active;
    }
}


/* Compares the slowest server with all the others together. */
static void
kvr_verdict_slow(const kvr_verdict_server_t *server, uint32_t n,
    kvr_verdict_t *v)
{
    uint32_t                     i, k;
    uint64_t                     firsts, ttft, mine, theirs;
    kvr_verdict_why_t           *why;
    const kvr_verdict_server_t  *s, *slow;

    slow = NULL;
    firsts = ttft = 0;
    k = 0;

    for (i = 0; i < n; i++) {
        s = &server[i];
        firsts += s->firsts;
        ttft += s->ttft;

        if (s->firsts >= KVR_VERDICT_FIRSTS
            && (slow == NULL || s->ttft * slow->firsts
                                > slow->ttft * s->firsts))
        {
            slow = s;
            k = i;
        }
    }

    if (slow == NULL || firsts - slow->firsts < KVR_VERDICT_FIRSTS) {
        return;
    }

    mine = slow->ttft / slow->firsts;
    theirs = (ttft - slow->ttft) / (firsts - slow->firsts);

    if (mine < KVR_VERDICT_TIMES * theirs || mine < theirs + KVR_VERDICT_LATER)
    {
        return;
    }

    why = kvr_verdict_say(v, KVR_VERDICT_AMBER, KVR_VERDICT_SLOW);

    why->server[why->servers++] = k;
    why->n = mine;
    why->all = theirs;
}


/* Compares the busiest server with the mean of the others that are up. */
static void
kvr_verdict_hot(const kvr_verdict_server_t *server, uint32_t n,
    kvr_verdict_t *v)
{
    uint32_t                     i, k, up;
    uint64_t                     all, others;
    kvr_verdict_why_t           *why;
    const kvr_verdict_server_t  *s, *hot;

    hot = NULL;
    all = 0;
    up = 0;
    k = 0;

    for (i = 0; i < n; i++) {
        s = &server[i];

        if (!s->up || s->backup) {
            continue;
        }

        up++;
        all += s->active;

        if (hot == NULL || s->active > hot->active) {
            hot = s;
            k = i;
        }
    }

    if (up < 2) {
        return;
    }

    others = (all - hot->active) / (up - 1);

    if (hot->active < KVR_VERDICT_BUSY * others
        || hot->active < others + KVR_VERDICT_ACTIVE)
    {
        return;
    }

    why = kvr_verdict_say(v, KVR_VERDICT_AMBER, KVR_VERDICT_HOT);

    why->server[why->servers++] = k;
    why->n = hot->active;
    why->all = all;
}


/*
 * Finds servers that get few requests for a reason: their first tokens come
 * late, or the others are busy while they have none.  Affinity alone can leave
 * a server of a quiet upstream without requests.
 */
static void
kvr_verdict_starved(const kvr_verdict_server_t *server, uint32_t n,
    kvr_verdict_t *v)
{
    int                          late, idle;
    uint32_t                     i, up;
    uint64_t                     weights, requests, active, firsts, ttft;
    uint64_t                     share, theirs;
    kvr_verdict_why_t           *why;
    const kvr_verdict_server_t  *s;

    weights = requests = active = firsts = ttft = 0;

    for (i = 0, up = 0; i < n; i++) {
        s = &server[i];

        if (s->up && !s->backup) {
            up++;
            weights += s->weight;
            requests += s->requests;
            active += s->active;
            firsts += s->firsts;
            ttft += s->ttft;
        }
    }

    for (i = 0; i < n && up > 1; i++) {
        s = &server[i];

        if (!s->steady || s->backup) {
            continue;
        }

        share = requests * s->weight / kvr_max(weights, 1);

        if (share < KVR_VERDICT_SHARE
            || s->requests * KVR_VERDICT_FIFTH >= share)
        {
            continue;
        }

        theirs = (ttft - s->ttft) / kvr_max(firsts - s->firsts, 1);

        late = s->window >= KVR_VERDICT_TIMES * theirs
               && s->window >= theirs + KVR_VERDICT_BEHIND;
        idle = s->active == 0 && active >= KVR_VERDICT_IDLE * (up - 1);

        if (!late && !idle) {
            continue;
        }

        why = kvr_verdict_say(v, KVR_VERDICT_AMBER, KVR_VERDICT_STARVED);

        why->server[why->servers++] = i;
        why->n = s->requests;
        why->all = share;
        why->percent = (uint32_t) s->window;
        why->of_all = (uint32_t) theirs;
    }
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
