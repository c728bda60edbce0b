
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Published state of a decision besides cached blocks: the load of other
 * hosts, unless it is old; the number of requests with a prefix; the peers
 * that got work.
 */


#include "util_hot.h"
#include "share/hosts.h"


/* returns a host's requests of the last minute with the prefix c */
static double
hot(unsigned h, const uint64_t *c)
{
    kvr_hot_keys_t      keys;

    kvr_hot_keys(c, 40, &keys);

    return util_hot_count(host[h].zone.hot, keys.key[keys.n - 1], now);
}


TEST(test_share_load)
{
    unsigned        h, i;
    kvr_load_sum_t  sum;

    /* all hosts know each other */

    for (h = 0; h < HOSTS; h++) {
        flush(h, 0);
        kvr_load_add(host[h].zone.load, host[h].zone.row, host[h].number[1],
                     (int32_t) h + 1, 1000 * (h + 1));
        kvr_load_add(host[h].zone.load, host[h].zone.row,
                     kvr_registry_resident(host[h].zone.registry,
                                           host[h].number[1]), 1, 5000);
        util_check(kvr_share_due(&host[h].self, &host[h].owner, now),
                   "a change is due");
        flush(h, 0);
        util_check(!kvr_share_due(&host[h].self, &host[h].owner, now),
                   "nothing is due");
    }

    for (i = 0; i < 3; i++) {
        for (h = 0; h < HOSTS; h++) {
            kvr_share_tick(&host[h].self, &host[h].owner, now);
            sum = elsewhere(h, 1);
            util_check(sum.active == 6 - (h + 1)
                       && sum.pending == 6000 - 1000 * (h + 1),
                       "host %u: %u, %lu", h, sum.active,
                       (unsigned long) sum.pending);
            util_check(kvr_load_get(host[h].zone.load, host[h].number[1])
                       .active == 6, "requests of all hosts");
            util_check(kvr_load_here(host[h].zone.load, host[h].number[1])
                       .active == h + 1, "requests of this host");
            util_check(elsewhere(h, 2).active == 0, "another peer");
            util_check(kvr_get(&host[h].self.share->stats.hosts) == 2, "hosts");
        }

        /* loads of others are not published as its own */

        now += KVR_SHARE_BEAT;

        for (h = 0; h < HOSTS; h++) {
            util_check(kvr_share_due(&host[h].self, &host[h].owner, now),
                       "a heartbeat is due");
            flush(h, 0);
        }
    }

    /* one host is silent, one leaves */

    now += LEASE;
    flush(0, 0);
    flush(2, KVR_SHARE_BYE);
    kvr_share_tick(&host[0].self, &host[0].owner, now);
    kvr_share_tick(&host[2].self, &host[2].owner, now);

    util_check(elsewhere(0, 1).active == 0, "both have left");
    util_check(elsewhere(2, 1).active == 1, "one host is left");

    now += KVR_SHARE_FORGET;
    kvr_share_tick(&host[0].self, &host[0].owner, now);
    util_check(kvr_get(&host[0].self.share->host[0].id) == 0, "forgotten");

    /* a sweep leaves the row of other hosts alone */

    flush(1, 0);
    kvr_share_tick(&host[0].self, &host[0].owner, now);
    util_check(elsewhere(0, 1).active == 2, "back again");
    (void) kvr_load_sweep(host[0].zone.load, kvr_load_owner(1, 1), NULL, NULL,
                          NULL, NULL);
    util_check(elsewhere(0, 1).active == 2, "still there");
}


/* loads count when they are read, not only at a tick */
TEST(test_share_load_now)
{
    kvr_load_add(host[0].zone.load, host[0].zone.row, host[0].number[3], 4,
                 4000);
    flush(0, 0);
    kvr_share_tick(&host[1].self, &host[1].owner, now);

    kvr_load_add(host[0].zone.load, host[0].zone.row, host[0].number[3], -3,
                 -3000);
    flush(0, 0);
    util_check(elsewhere(1, 3).active == 1 && elsewhere(1, 3).pending == 1000,
               "%u", elsewhere(1, 3).active);

    kvr_load_add(host[2].zone.load, host[2].zone.row, host[2].number[3], 1,
                 500);
    flush(2, 0);
    util_check(elsewhere(1, 3).active == 2 && elsewhere(1, 3).pending == 1500,
               "%u", elsewhere(1, 3).active);

    /* a host that leaves has nothing in flight */

    flush(0, KVR_SHARE_BYE);
    util_check(elsewhere(1, 3).active == 1, "%u", elsewhere(1, 3).active);
}


/*
 * Old loads are worse than none.  A host that reads its own batches late uses
 * no other host's loads, and a host that publishes late is not used.
 */
TEST(test_share_load_late)
{
    size_t  len;

    /* all hosts know each other */

    flush(0, 0);
    flush(1, 0);
    flush(2, 0);

    kvr_load_add(host[0].zone.load, host[0].zone.row, host[0].number[3], 4,
                 4000);
    flush(0, 0);
    util_check(elsewhere(1, 3).active == 4, "published");

    /* host 1 has published a batch that it does not read back */

    len = kvr_share_frame(&host[1].self, &host[1].owner, buffer, 0, now, 1000);
    kvr_share_acked(&host[1].self, &host[1].owner);

    now += KVR_SHARE_OLD;
    kvr_share_tick(&host[1].self, &host[1].owner, now);
    util_check(elsewhere(1, 3).active == 4, "not late yet");
    now++;
    kvr_share_tick(&host[1].self, &host[1].owner, now);
    util_check(elsewhere(1, 3).active == 0, "late");
    util_check(kvr_get(&host[1].self.share->stats.late) == 1,
               "reported as late");

    /* it reads its batch after all, and knows the lag of all others */

    (void) kvr_share_apply(&host[1].self, &host[1].owner, (uint8_t *) buffer,
                           len, now, 1000);
    flush(0, 0);
    util_check(elsewhere(1, 3).active == 0, "still late");
    util_check(kvr_get(&host[1].self.share->stats.lag_ms)
               == KVR_SHARE_OLD + 1, "%lu ms", (unsigned long)
               kvr_get(&host[1].self.share->stats.lag_ms));

    /* its lag is published, so its loads are not used */

    kvr_load_add(host[1].zone.load, host[1].zone.row, host[1].number[2], 7, 70);
    len = kvr_share_frame(&host[1].self, &host[1].owner, buffer, 0, now, 1000);
    kvr_share_acked(&host[1].self, &host[1].owner);
    (void) kvr_share_apply(&host[0].self, &host[0].owner, (uint8_t *) buffer,
                           len, now, 1000);
    util_check(elsewhere(0, 2).active == 0, "old loads are not used");

    /* its index updates are */

    util_check(kvr_get(&host[0].self.share->stats.batches_applied) >= 3,
               "heard");

    /* a batch that returns at once ends this */

    (void) kvr_share_apply(&host[1].self, &host[1].owner, (uint8_t *) buffer,
                           len, now, 1000);
    util_check(elsewhere(1, 3).active == 4, "in time again");
    flush(1, 0);
    util_check(elsewhere(0, 2).active == 7, "recent loads are used");
}


/* a prefix of a third of the requests here counts for all hosts */
TEST(test_share_hot)
{
    double              there;
    unsigned            i, h;
    kvr_hot_keys_t      keys, odd;

    kvr_hot_keys(chain[0], 40, &keys);
    kvr_hot_keys(chain[2], 40, &odd);

    for (i = 0; i < 30; i++) {
        h = i % HOSTS;
        kvr_hot_add(host[h].zone.hot, &keys, now);
        kvr_share_publish_hot(&host[h].zone, host[h].self.share, &keys,
                              host[h].number[i % PEERS]);
        flush_all(h);
    }

    kvr_hot_add(host[0].zone.hot, &odd, now);

    for (h = 0; h < HOSTS; h++) {
        there = hot(h, chain[0]);
        util_check(there > 29.5 && there < 30.5, "host %u: %.2f", h, there);

        for (i = 0; i < keys.n; i++) {
            there = util_hot_count(host[h].zone.hot, keys.key[i], now);
            util_check(there > 29.5 && there < 30.5, "%u: %.2f", i, there);
        }
    }

    util_check(hot(0, chain[2]) > 0 && hot(1, chain[2]) < 0.5,
               "not published");
    util_check(kvr_get(&host[0].self.share->stats.applied) == 0,
               "not an index update");
}


/* a peer with work from another host does not rest, and is not next */
TEST(test_share_given)
{
    uint32_t           a, b;
    kvr_registry_t    *registry;
    kvr_index_undo_t   undo;

    registry = host[1].zone.registry;
    a = host[1].number[0];
    b = host[1].number[1];

    kvr_registry_given(registry, a);
    kvr_registry_given(registry, b);
    (void) kvr_prefill_rest(&registry->peer[a].prefill, now);
    (void) kvr_prefill_rest(&registry->peer[b].prefill, now);

    now += 200000;

    teach(0, chain[0], 50, 0, &undo);
    flush_all(0);

    util_check(*registry->given - kvr_get(&registry->peer[a].given)
               < *registry->given - kvr_get(&registry->peer[b].given),
               "given after the other");
    util_check(kvr_prefill_rest(&registry->peer[a].prefill, now) == 0, "busy");
    util_check(kvr_prefill_rest(&registry->peer[b].prefill, now) == 3, "rests");
}


suite_around(hosts_begin, hosts_end);
