
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_since: since when a server has its state, and a cause exists */


#include "util_registry.h"
#include "util.h"
#include "core/watch/kvr_since.h"


#define NOW  1700000000


static kvr_history_t         *h;
static kvr_zone_t             zone;
static kvr_verdict_t          v;
static kvr_verdict_server_t   server[2];


static void
make(void)
{
    uint32_t         i;
    kvr_registry_t  *reg;

    reg = util_registry(4);
    zone.registry = reg;

    h = util_zeroed(kvr_history_size(reg->max_members));
    h->max_members = reg->max_members;

    memset(server, 0, sizeof(server));

    for (i = 0; i < 2; i++) {
        kvr_set(&reg->member[i].used, 1);
        server[i].member = i;
    }
}


static void
drop(void)
{
    free(zone.registry);
    free(h);
}


/*
 * judges an upstream with two causes; returns since when the last one exists
 */
static uint32_t
judge(kvr_verdict_reason_e first, kvr_verdict_reason_e last, uint32_t which,
    uint32_t now)
{
    memset(&v, 0, sizeof(v));

    v.n = 2;
    v.why[0].reason = first;
    v.why[1].reason = last;
    v.why[1].server[0] = which;
    v.why[1].n = 95;

    kvr_since_causes(h, &zone, 1, server, &v, now);

    return v.why[1].since;
}


TEST(test_since_state)
{
    make();

    util_check(kvr_since_state(h, &zone, 0, 3, NOW) == NOW, "first seen");
    util_check(kvr_since_state(h, &zone, 0, 3, NOW + 9) == NOW,
               "the state still holds");
    util_check(kvr_since_state(h, &zone, 1, 3, NOW + 9) == NOW + 9,
               "another state");
    util_check(kvr_since_state(h, &zone, 0, 0, NOW + 20) == NOW + 20, "changed");
    util_check(kvr_since_state(h, &zone, 0, 3, NOW + 30) == NOW + 30, "back");

    /* a slot that another member gets */

    kvr_set(&zone.registry->member[0].looked, 0);
    util_check(kvr_since_state(h, &zone, 0, 3, NOW + 40) == NOW + 40, "new");

    drop();
}


TEST(test_since_full)
{
    make();

    util_check(kvr_since_full(h, .95, 0, NOW) == 0, "nothing is replaced");
    util_check(kvr_since_full(h, .5, 9, NOW) == 0, "not full");
    util_check(kvr_since_full(h, .95, 1, NOW + 1) == NOW + 1, "full");
    util_check(kvr_since_full(h, .95, 7, NOW + 9) == NOW + 1, "still full");
    util_check(kvr_since_full(h, .5, 7, NOW + 20) == 0, "reset");
    util_check(kvr_since_full(h, .95, 9, NOW + 200) == NOW + 200, "full again");

    drop();
}


TEST(test_since_causes)
{
    make();

    util_check(judge(KVR_VERDICT_LOCKED, KVR_VERDICT_SLOW, 1, NOW) == NOW
               && v.why[0].since == NOW, "begin");
    util_check(judge(KVR_VERDICT_LOCKED, KVR_VERDICT_SLOW, 1, NOW + 9) == NOW
               && v.why[0].since == NOW, "go on");

    /* each server has its own */

    util_check(judge(KVR_VERDICT_LOCKED, KVR_VERDICT_SLOW, 0, NOW + 9)
               == NOW + 9, "another server");
    util_check(judge(KVR_VERDICT_LOCKED, KVR_VERDICT_HOT, 1, NOW + 9)
               == NOW + 9, "another cause");

    /* a short interruption does not count; a long one starts again */

    util_check(judge(KVR_VERDICT_LOCKED, KVR_VERDICT_SLOW, 1,
                     NOW + 9 + KVR_SINCE_HOLD) == NOW, "a minute");
    util_check(judge(KVR_VERDICT_LOCKED, KVR_VERDICT_SLOW, 1,
                     NOW + 10 + 2 * KVR_SINCE_HOLD)
               == NOW + 10 + 2 * KVR_SINCE_HOLD, "more than a minute");

    /* this cause has a time of its own */

    util_check(judge(KVR_VERDICT_LOCKED, KVR_VERDICT_SILENT, 1, NOW) == NOW - 95,
               "since the request began");

    /* without a slot it is the upstream's */

    server[0].uncounted = 1;
    server[0].member = KVR_REGISTRY_NONE;
    util_check(judge(KVR_VERDICT_LOCKED, KVR_VERDICT_HOT, 0, NOW + 200)
               == NOW + 200, "no slot");

    drop();
}
