
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_verdict: the state of an upstream in an incident, and its causes */


#include "util.h"
#include "core/watch/kvr_verdict.h"


#define SERVERS  8


static kvr_verdict_server_t    server[SERVERS];
static kvr_verdict_upstream_t  upstream;
static kvr_verdict_t           v;


/* an upstream without incidents */
static void
day(void)
{
    uint32_t  i;

    memset(&upstream, 0, sizeof(upstream));
    memset(server, 0, sizeof(server));

    for (i = 0; i < SERVERS; i++) {
        server[i].up = 1;
        server[i].requests = 100;
        server[i].firsts = 90;
        server[i].ttft = 90 * 300;
        server[i].active = 3 + i % 3;
        server[i].weight = 1;
        server[i].window = 300;
        server[i].steady = 1;
    }
}


static kvr_verdict_why_t *
is(kvr_verdict_e state, kvr_verdict_reason_e reason)
{
    kvr_verdict(&upstream, server, SERVERS, &v);

    util_check(v.state == state, "state: %s", kvr_verdict_name(v.state));
    util_check(v.n >= 1 && v.why[0].reason == reason, "reason: %u",
               v.why[0].reason);

    return &v.why[0];
}


static void
good(void)
{
    kvr_verdict(&upstream, server, SERVERS, &v);
    util_check(v.state == KVR_VERDICT_GREEN && v.n == 0, "%s, %u",
               kvr_verdict_name(v.state), v.n ? v.why[0].reason : 0);
}


TEST(test_verdict_green)
{
    day();
    good();

    /* few requests prove nothing */

    server[1].errors = KVR_VERDICT_FEW - 1;
    server[1].requests = KVR_VERDICT_FEW - 1;
    server[2].firsts = KVR_VERDICT_FIRSTS - 1;
    server[2].ttft = server[2].firsts * 60000;
    good();

    /* no requests at all, as after a start */

    memset(server, 0, sizeof(server));
    kvr_verdict(&upstream, server, 0, &v);
    util_check(v.state == KVR_VERDICT_GREEN, "no servers yet");
}


TEST(test_verdict_fails)
{
    kvr_verdict_why_t  *why;

    /* one server fails, but gets few requests: an operator should look */

    day();
    server[7].errors = 20;
    server[7].requests = 25;
    why = is(KVR_VERDICT_AMBER, KVR_VERDICT_ERRORS);
    util_check(why->server[0] == 7 && why->percent == 80 && why->n == 25
               && why->of_all == 2, "%u%% %u%%", why->percent, why->of_all);

    /* it attracts the fleet's requests */

    server[7].errors = server[7].requests = 1800;
    why = is(KVR_VERDICT_RED, KVR_VERDICT_ERRORS);
    util_check(why->percent == 100 && why->of_all == 72, "%u%%", why->of_all);

    /* errors in this minute can be of earlier requests */

    server[7].requests = 0;
    server[7].errors = 50;
    why = is(KVR_VERDICT_RED, KVR_VERDICT_ERRORS);
    util_check(why->percent <= 100 && why->of_all <= 100, "%u%%", why->percent);
}


TEST(test_verdict_states)
{
    uint32_t            i;
    kvr_verdict_why_t  *why;

    day();
    server[2].up = 0;
    why = is(KVR_VERDICT_AMBER, KVR_VERDICT_NOT_UP);
    util_check(why->n == 1 && why->all == SERVERS && why->server[0] == 2, "%lu",
               why->n);

    for (i = 0; i < SERVERS / 2; i++) {
        server[i].up = 0;
    }

    why = is(KVR_VERDICT_RED, KVR_VERDICT_NOT_UP);
    util_check(why->n == SERVERS / 2 && why->servers == KVR_VERDICT_NAMES,
               "%u named", why->servers);

    for (i = 0; i < SERVERS; i++) {
        server[i].up = 0;
    }

    (void) is(KVR_VERDICT_RED, KVR_VERDICT_NONE_UP);

    /* drained by an operator */

    day();
    server[3].up = 0;
    server[3].planned = 1;
    why = is(KVR_VERDICT_AMBER, KVR_VERDICT_DRAINED);
    util_check(v.n == 1 && why->server[0] == 3, "%u reasons", v.n);

    day();
    upstream.locked = 1;
    kvr_verdict(&upstream, server, 0, &v);
    util_check(v.state == KVR_VERDICT_RED
               && v.why[0].reason == KVR_VERDICT_LOCKED, "locked");

    day();
    server[5].stale = 1;
    (void) is(KVR_VERDICT_AMBER, KVR_VERDICT_STALE);

    day();
    upstream.alone = 40;
    util_check(is(KVR_VERDICT_AMBER, KVR_VERDICT_ALONE)->n == 40, "seconds");

    day();
    server[5].uncounted = 1;
    (void) is(KVR_VERDICT_AMBER, KVR_VERDICT_UNCOUNTED);
}


TEST(test_verdict_rejected)
{
    kvr_verdict_why_t  *why;

    day();
    upstream.rejects = 19200;
    why = is(KVR_VERDICT_RED, KVR_VERDICT_REJECTS);
    util_check(why->percent == 96 && why->n == 19200, "%u%%", why->percent);

    upstream.rejects = 1;
    why = is(KVR_VERDICT_AMBER, KVR_VERDICT_REJECTS);
}


/* red causes come first, and are never dropped to save room */
TEST(test_verdict_worst)
{
    uint32_t  i;

    day();
    server[2].up = 0;
    upstream.rejects = 19200;
    (void) is(KVR_VERDICT_RED, KVR_VERDICT_REJECTS);
    util_check(v.n == 2 && v.why[1].reason == KVR_VERDICT_NOT_UP
               && v.why[1].state == KVR_VERDICT_AMBER, "%u", v.n);

    /* 8 servers with a few errors each, and 5 more reasons */

    day();

    for (i = 0; i < SERVERS; i++) {
        server[i].errors = 5;
        server[i].stale = 1;
        server[i].uncounted = 1;
    }

    server[0].requests = 20000;
    server[0].ttft = server[0].firsts * 9000;
    server[1].active = 50;
    server[2].up = 0;
    upstream.alone = 1;
    upstream.locked = 1;
    upstream.rejects = 19200;

    kvr_verdict(&upstream, server, SERVERS, &v);
    util_check(v.n == KVR_VERDICT_WHY
               && v.why[0].reason == KVR_VERDICT_LOCKED
               && v.why[1].reason == KVR_VERDICT_REJECTS
               && v.why[2].state == KVR_VERDICT_AMBER, "%u, %u",
               v.why[0].reason, v.why[1].reason);
}


TEST(test_verdict_slow)
{
    kvr_verdict_why_t  *why;

    day();
    server[6].ttft = server[6].firsts * 1900;
    why = is(KVR_VERDICT_AMBER, KVR_VERDICT_SLOW);
    util_check(why->server[0] == 6 && why->n == 1900 && why->all == 300,
               "%lu ms, %lu ms", why->n, why->all);

    /* three times a very small time is no cause */

    day();
    server[6].ttft = server[6].firsts * 200;
    server[5].ttft = server[4].ttft = server[3].ttft = server[2].ttft = 90;
    server[1].ttft = server[0].ttft = server[7].ttft = 90;
    good();
}


TEST(test_verdict_hot)
{
    kvr_verdict_why_t  *why;

    day();
    server[4].active = 40;
    why = is(KVR_VERDICT_AMBER, KVR_VERDICT_HOT);
    util_check(why->server[0] == 4 && why->n == 40, "%lu", why->n);

    /* a single request is not hot, nor is a backup without requests */

    day();
    server[4].active = 5;
    kvr_verdict(&upstream, &server[4], 1, &v);
    util_check(v.n == 0, "one server alone");
}


/* a server gets few requests, and a cause that explains it */
TEST(test_verdict_starved)
{
    uint32_t            i;
    kvr_verdict_why_t  *why;

    /* its share is 88: it gets a tenth, and its first tokens are slow */

    day();
    server[3].requests = 10;
    server[3].firsts = 3;
    server[3].ttft = 3 * 5870;
    server[3].window = 5870;
    why = is(KVR_VERDICT_AMBER, KVR_VERDICT_STARVED);
    util_check(v.n == 1 && why->server[0] == 3 && why->n == 10
               && why->all == (7 * 100 + 10) / 8 && why->percent == 5870
               && why->of_all == 300, "%lu of %lu, %u ms, %u ms", why->n,
               why->all, why->percent, why->of_all);

    /* a fifth of its share, or its weight */

    server[3].requests = 20;
    good();

    server[3].requests = 100;
    server[3].weight = 12;
    (void) is(KVR_VERDICT_AMBER, KVR_VERDICT_STARVED);
    server[3].weight = 11;
    good();

    /* the others are not slow: affinity, in a quiet upstream */

    day();
    server[3].requests = 0;
    server[3].active = 0;
    good();

    /* the others are busy, and it has no requests */

    for (i = 0; i < SERVERS; i++) {
        server[i].active += 4 * (i != 3);
    }

    why = is(KVR_VERDICT_AMBER, KVR_VERDICT_STARVED);
    util_check(why->server[0] == 3 && why->n == 0, "%lu", why->n);

    /* it is new, a backup, or not up */

    server[3].steady = 0;
    good();

    server[3].steady = 1;
    server[3].backup = 1;
    good();

    /* few requests prove nothing */

    day();

    for (i = 0; i < SERVERS; i++) {
        server[i].requests = i == 3 ? 1 : KVR_VERDICT_SHARE;
    }

    server[3].window = 5870;
    good();
}


/* a good day: by chance some server has more requests */
TEST(test_verdict_chance)
{
    uint32_t  i, k, n, hot;
    uint64_t  x;

    x = 1;
    hot = 0;

    for (n = 1; n <= 4 * SERVERS; n++) {

        for (i = 0; i < 1000; i++) {
            day();

            for (k = 0; k < SERVERS; k++) {
                server[k].active = 0;
            }

            for (k = 0; k < n; k++) {
                x = x * 6364136223846793005 + 1442695040888963407;
                server[(x >> 33) % SERVERS].active++;
            }

            kvr_verdict(&upstream, server, SERVERS, &v);
            hot += (v.state != KVR_VERDICT_GREEN);
        }
    }

    util_check(hot == 0, "%u of %u looks", hot, 4000 * SERVERS);
}


/* with any combination, matching causes are listed, and the worst state */
TEST(test_verdict_all)
{
    uint32_t  i;

    day();
    upstream.locked = 1;
    upstream.rejects = 50;

    for (i = 0; i < SERVERS; i++) {
        server[i].errors = 50;
        server[i].stale = 1;
        server[i].uncounted = 1;
    }

    server[0].up = 0;
    server[1].up = 0;
    server[1].planned = 1;

    kvr_verdict(&upstream, server, SERVERS, &v);
    util_check(v.state == KVR_VERDICT_RED && v.n == KVR_VERDICT_WHY, "%u", v.n);
}


TEST(test_verdict_silent)
{
    kvr_verdict_why_t  *why;

    day();
    server[2].mute = 95500;
    server[2].active = 1;
    why = is(KVR_VERDICT_AMBER, KVR_VERDICT_SILENT);
    util_check(why->server[0] == 2 && why->n == 95 && why->all == 1, "%lu s",
               why->n);

    /* its state has priority */

    server[2].up = 0;
    (void) is(KVR_VERDICT_AMBER, KVR_VERDICT_NOT_UP);
    util_check(v.n == 1, "%u causes", v.n);
}
