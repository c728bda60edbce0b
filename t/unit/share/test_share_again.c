
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_share: an answer counts for its own batch, even if another owner has
 * continued; help reaches a new host even if batches are lost or repeated; and
 * a slot that gets another peer starts empty.
 */


#include "share/hosts.h"


static kvr_share_owner_t  stopped;


static size_t
frame(void)
{
    return kvr_share_frame(&host[0].self, &host[0].owner, buffer, 0, now, 1000);
}


static void
arrive(size_t len)
{
    kvr_share_e  rc;

    rc = kvr_share_apply(&host[1].self, &host[1].owner, (uint8_t *) buffer, len,
                         now, 1000);

    util_check(rc == KVR_SHARE_OK || rc == KVR_SHARE_REPEATED, "%d", rc);
}


/* all published updates have arrived, each once */
static void
arrived(uint64_t taught)
{
    kvr_share_t  *s;

    s = host[0].self.share;

    while (kvr_get(&s->ring.head) != kvr_get(&s->ring.tail)) {
        arrive(frame());
        kvr_share_acked(&host[0].self, &host[0].owner);
    }

    s = host[1].self.share;

    util_check(kvr_get(&s->stats.applied) == taught, "%lu lessons of %lu",
               (unsigned long) kvr_get(&s->stats.applied),
               (unsigned long) taught);
    util_check(kvr_get(&s->stats.gaps) == 0, "%lu gaps",
               (unsigned long) kvr_get(&s->stats.gaps));
}


/* an owner is stopped after it has sent, and another one replaces it */
TEST(test_share_acked_late)
{
    unsigned          more;
    uint64_t          taught;
    kvr_index_undo_t  undo;

    taught = 0;

    for (more = 0; more < 4; more++) {

        teach(0, chain[more], 50, 0, &undo);
        taught++;
        arrive(frame());

        stopped = host[0].owner;
        memset(&host[0].owner, 0, sizeof(kvr_share_owner_t));

        /* 0: it returns before the other one has begun */

        if (more > 0) {
            arrive(frame());
        }

        /* 1: and before the other one gets an answer */

        if (more > 1) {
            kvr_share_acked(&host[0].self, &host[0].owner);
            teach(0, chain[more], 100, 0, &undo);
            taught++;
        }

        /* 3: the next batch of the other one is sent, and will be lost */

        if (more > 2) {
            (void) frame();
        }

        kvr_share_acked(&host[0].self, &stopped);

        if (more > 2) {
            util_check(kvr_get(&host[0].self.share->acked)
                       < kvr_get(&host[0].self.share->number),
                       "an answer to another batch");
        }

        arrived(taught);
    }

    /* nothing was sent, so no answer counts */

    memset(&host[0].owner, 0, sizeof(kvr_share_owner_t));
    taught = kvr_get(&host[0].self.share->acked);
    kvr_share_acked(&host[0].self, &host[0].owner);
    util_check(kvr_get(&host[0].self.share->acked) == taught, "nothing");
}


/* an owner is stopped while it makes a batch: the other used its number */
TEST(test_share_frame_late)
{
    uint64_t          number;
    kvr_share_t      *s;
    kvr_index_undo_t  undo;

    s = host[0].self.share;

    teach(0, chain[0], 50, 0, &undo);
    arrive(frame());
    kvr_share_acked(&host[0].self, &host[0].owner);

    /* as seen by a reader that has read all and stored nothing */

    number = kvr_get(&s->number);
    stopped = host[0].owner;

    teach(0, chain[2], 50, 0, &undo);
    arrive(frame());

    kvr_share_acked(&host[0].self, &stopped);
    util_check(kvr_get(&s->acked) == number
               && kvr_get(&s->number) == number + 1, "a former owner's ack");

    kvr_share_acked(&host[0].self, &host[0].owner);
    arrived(2);
}


/* batches of help are lost or repeated, and their owner dies */
TEST(test_share_help_again)
{
    size_t             len;
    unsigned           i, c, peer, batches;
    uint32_t           here, there, known;
    uint64_t           wants;
    kvr_share_t       *s, *new;
    kvr_index_undo_t   undo;

    for (i = 0; i < 400; i++) {
        teach(0, chain[util_below(&rng, CHAINS)], 1 + util_below(&rng, DEPTH),
              util_below(&rng, PEERS), &undo);

        len = frame();
        kvr_share_acked(&host[0].self, &host[0].owner);
    }

    s = host[0].self.share;
    new = host[1].self.share;

    /* an update that it reads before help has told it the clocks */

    arrive(len);
    kvr_share_help_want(new, now);
    wants = kvr_get(&new->wants);

    len = kvr_share_frame(&host[1].self, &host[1].owner, buffer, 0, now, 1000);
    kvr_share_acked(&host[1].self, &host[1].owner);
    (void) kvr_share_apply(&host[0].self, &host[0].owner, (uint8_t *) buffer,
                           len, now, 1000);

    /* a batch without help is not answered when help begins */

    arrive(frame());
    now += KVR_SHARE_TURN;

    for (batches = 0; kvr_share_help_due(&host[0].self, now); batches++) {

        util_check(batches < 1000, "the help does not end");

        len = frame();

        if (util_below(&rng, 2)) {
            arrive(len);
        }

        switch (util_below(&rng, 3)) {

        case 0:
            kvr_share_acked(&host[0].self, &host[0].owner);
            break;

        case 1:
            memset(&host[0].owner, 0, sizeof(kvr_share_owner_t));
            break;
        }

        /* the store delivers its batches */

        if (kvr_get(&s->acked) == kvr_get(&s->number)
            && kvr_get(&new->host[0].number) < kvr_get(&s->number))
        {
            arrive(len);
        }
    }

    util_check(batches >= 5, "%u batches", batches);
    util_check(wants && kvr_get(&new->wants) == 0, "the help is complete");

    known = 0;

    for (c = 0; c < CHAINS; c++) {
        for (peer = 0; peer < PEERS; peer++) {
            here = held(0, chain[c], peer);
            there = held(1, chain[c], peer);
            known += here;

            util_check(here == there, "chain %u peer %u: %u, %u", c, peer,
                       here, there);
        }
    }

    util_check(known > 1000, "known entries: %u", known);
}


/* a server is removed, and its slot gets another one */
static uint32_t
rename_peer(unsigned h, uint32_t number, const char *name)
{
    char         other[32];
    uint32_t     i, n;
    uint64_t     names[KVR_PEERS / 64 + 1];
    kvr_zone_t  *z;

    z = &host[h].zone;

    for (i = 0; i < KVR_PEERS_FEW; i++) {
        snprintf(other, sizeof(other), "10.0.1.%u:8000", i);
        (void) kvr_registry_peer(z->registry, z->load, z->row, z->index, other,
                                 strlen(other), CAPACITY);
    }

    memset(names, UINT8_MAX, sizeof(names));
    names[number / 64] &= ~(1ULL << number % 64);
    kvr_load_rename(z->load, z->row, names);

    n = kvr_registry_peer(z->registry, z->load, z->row, z->index, name,
                          strlen(name), CAPACITY);

    return n;
}


TEST(test_share_renamed)
{
    uint32_t          n, m, matched[KVR_PEERS];
    kvr_index_undo_t  undo;

    n = host[0].number[2];
    m = host[1].number[3];

    /* the other host has requests in flight there */

    kvr_load_add(host[1].zone.load, host[1].zone.row, host[1].number[2], 5,
                 1000);
    flush_all(1);
    util_check(elsewhere(0, 2).active == 5, "published");

    /* then it is silent; a local update is not published yet */

    now += LEASE + 1;
    kvr_share_tick(&host[0].self, &host[0].owner, now);
    util_check(elsewhere(0, 2).active == 0, "its load does not count");

    teach(0, chain[0], 50, 2, &undo);

    util_check(rename_peer(0, n, "10.0.0.9:8000") == n, "its number");

    now += 200;
    kvr_share_tick(&host[0].self, &host[0].owner, now);

    /* that host's requests are not at the new peer */

    teach(1, chain[2], 50, 1, &undo);
    flush(1, 0);
    util_check(elsewhere(0, 2).active == 0, "%u", elsewhere(0, 2).active);

    /* updates of the removed peer are not published */

    util_check(rename_peer(1, m, "10.0.0.9:8000") == m,
               "renamed on the other host");

    flush_all(0);
    (void) kvr_index_lookup(host[1].zone.index, chain[0], DEPTH, kvr_set_of(m),
                            matched);
    util_check(matched[m] == 0, "%u", matched[m]);

    /* updates from now on are */

    teach(0, chain[4], 30, 2, &undo);
    flush_all(0);
    (void) kvr_index_lookup(host[1].zone.index, chain[4], DEPTH, kvr_set_of(m),
                            matched);
    util_check(matched[m] == 30, "%u", matched[m]);
}


/* times of an earlier owner can be later than this one's */
TEST(test_share_clocks)
{
    size_t  len;

    len = frame();
    kvr_share_acked(&host[0].self, &host[0].owner);

    (void) kvr_share_apply(&host[0].self, &host[0].owner, (uint8_t *) buffer,
                           len, now - 1, 1000);

    util_check(kvr_get(&host[0].self.share->stats.lag_ms) == 0, "%lu ms",
               (unsigned long) kvr_get(&host[0].self.share->stats.lag_ms));
    util_check(kvr_get(&host[0].self.share->stats.late) == 0,
               "loads are recent");
}


suite_around(hosts_begin, hosts_end);
