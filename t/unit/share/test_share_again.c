
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_share: an answer counts for the batch that it is of, whoever has gone on
 * meanwhile; what is told to a host that is new arrives though batches are lost
 * or come twice; and a number that gets another name begins with nothing.
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


/* what was told by now has arrived, each of it once */
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


/* an owner is stopped after it has sent, and another one takes its place */
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

        /* 0: it is back before the other one has begun */

        if (more > 0) {
            arrive(frame());
        }

        /* 1: and before that one is answered */

        if (more > 1) {
            kvr_share_acked(&host[0].self, &host[0].owner);
            teach(0, chain[more], 100, 0, &undo);
            taught++;
        }

        /* 3: whose next batch is on its way, and will not arrive */

        if (more > 2) {
            (void) frame();
        }

        kvr_share_acked(&host[0].self, &stopped);

        if (more > 2) {
            util_check(kvr_get(&host[0].self.share->acked)
                       < kvr_get(&host[0].self.share->number),
                       "that is no answer to it");
        }

        arrived(taught);
    }

    /* nothing was sent: nothing can be answered */

    memset(&host[0].owner, 0, sizeof(kvr_share_owner_t));
    taught = kvr_get(&host[0].self.share->acked);
    kvr_share_acked(&host[0].self, &host[0].owner);
    util_check(kvr_get(&host[0].self.share->acked) == taught, "nothing");
}


/* an owner is stopped while it frames: the other has used its number */
TEST(test_share_frame_late)
{
    uint64_t          number;
    kvr_share_t      *s;
    kvr_index_undo_t  undo;

    s = host[0].self.share;

    teach(0, chain[0], 50, 0, &undo);
    arrive(frame());
    kvr_share_acked(&host[0].self, &host[0].owner);

    /* as seen by one that has read all, and not stored anything */

    number = kvr_get(&s->number);
    stopped = host[0].owner;

    teach(0, chain[2], 50, 0, &undo);
    arrive(frame());

    kvr_share_acked(&host[0].self, &stopped);
    util_check(kvr_get(&s->acked) == number
               && kvr_get(&s->number) == number + 1, "not answered");

    kvr_share_acked(&host[0].self, &host[0].owner);
    arrived(2);
}


/* batches of help are lost, or come twice, and their owner dies */
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

    /* a lesson that it hears before it is told how far clocks are */

    arrive(len);
    kvr_share_help_want(new, now);
    wants = kvr_get(&new->wants);

    len = kvr_share_frame(&host[1].self, &host[1].owner, buffer, 0, now, 1000);
    kvr_share_acked(&host[1].self, &host[1].owner);
    (void) kvr_share_apply(&host[0].self, &host[0].owner, (uint8_t *) buffer,
                           len, now, 1000);

    /* one without help is not answered when that begins */

    arrive(frame());
    now += KVR_SHARE_TURN;

    for (batches = 0; kvr_share_help_due(&host[0].self, now); batches++) {

        util_check(batches < 1000, "it goes on for ever");

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

        /* what the store has arrives */

        if (kvr_get(&s->acked) == kvr_get(&s->number)
            && kvr_get(&new->host[0].number) < kvr_get(&s->number))
        {
            arrive(len);
        }
    }

    util_check(batches >= 5, "%u batches", batches);
    util_check(wants && kvr_get(&new->wants) == 0, "it was told all");

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

    util_check(known > 1000, "there is something: %u", known);
}


/* a server goes, and its number is given to another one */
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

    /* the other host has something in flight there */

    kvr_load_add(host[1].zone.load, host[1].zone.row, host[1].number[2], 5,
                 1000);
    flush_all(1);
    util_check(elsewhere(0, 2).active == 5, "told");

    /* and is silent; a lesson of a worker here is still to be told */

    now += LEASE + 1;
    kvr_share_tick(&host[0].self, &host[0].owner, now);
    util_check(elsewhere(0, 2).active == 0, "it does not count");

    teach(0, chain[0], 50, 2, &undo);

    util_check(rename_peer(0, n, "10.0.0.9:8000") == n, "its number");

    now += 200;
    kvr_share_tick(&host[0].self, &host[0].owner, now);

    /* what that host has in flight is not at the one that has come */

    teach(1, chain[2], 50, 1, &undo);
    flush(1, 0);
    util_check(elsewhere(0, 2).active == 0, "%u", elsewhere(0, 2).active);

    /* what was said of the one that has gone is told of nobody */

    util_check(rename_peer(1, m, "10.0.0.9:8000") == m, "there as well");

    flush_all(0);
    (void) kvr_index_lookup(host[1].zone.index, chain[0], DEPTH, kvr_set_of(m),
                            matched);
    util_check(matched[m] == 0, "%u", matched[m]);

    /* but what is said from now on is */

    teach(0, chain[4], 30, 2, &undo);
    flush_all(0);
    (void) kvr_index_lookup(host[1].zone.index, chain[4], DEPTH, kvr_set_of(m),
                            matched);
    util_check(matched[m] == 30, "%u", matched[m]);
}


/* times that an owner before has written may be later than this one's */
TEST(test_share_clocks)
{
    size_t  len;

    len = frame();
    kvr_share_acked(&host[0].self, &host[0].owner);

    (void) kvr_share_apply(&host[0].self, &host[0].owner, (uint8_t *) buffer,
                           len, now - 1, 1000);

    util_check(kvr_get(&host[0].self.share->stats.lag_ms) == 0, "%lu ms",
               (unsigned long) kvr_get(&host[0].self.share->stats.lag_ms));
    util_check(kvr_get(&host[0].self.share->stats.late) == 0, "it is not late");
}


suite_around(hosts_begin, hosts_end);
