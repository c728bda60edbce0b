
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_share: hosts know each other's updates, by their own slots of the peers,
 * and nothing else.  Load is that of live hosts.  If the owner dies at any
 * point, nothing is applied twice.
 */


#include "share/hosts.h"


TEST(test_share_lessons)
{
    unsigned          i, h, c, peer;
    uint32_t          entries, here, there;
    kvr_index_undo_t  undo;

    for (i = 0; i < util_cases(2000); i++) {
        h = util_below(&rng, HOSTS);
        c = util_below(&rng, CHAINS);
        peer = util_below(&rng, PEERS);
        entries = 1 + util_below(&rng, DEPTH);

        teach(h, chain[c], entries, peer, &undo);
        flush_all(h);
    }

    /*
     * no host knows less than the others, except between two published entries
     */

    for (c = 0; c < CHAINS; c++) {
        for (peer = 0; peer < PEERS; peer++) {
            here = held(0, chain[c], peer);

            for (h = 1; h < HOSTS; h++) {
                there = held(h, chain[c], peer);
                util_check(here < there + SLACK && there < here + SLACK,
                           "chain %u peer %u: %u, %u", c, peer, here, there);
            }
        }
    }

    for (h = 1; h < HOSTS; h++) {
        for (peer = 0; peer < PEERS; peer++) {
            util_check(kvr_index_clock(host[0].zone.index,
                                       host[0].number[peer])
                       == kvr_index_clock(host[h].zone.index,
                                          host[h].number[peer]),
                       "clocks are equal");
        }

        util_check(kvr_get(&host[h].self.share->stats.gaps) == 0
                   && kvr_get(&host[h].self.share->stats.unknown) == 0,
                   "no gaps");
        util_check(kvr_get(&host[h].self.share->stats.applied) > 0, "applied");
    }
}


/* updates are lost, and later ones are applied all the same */
TEST(test_share_lost)
{
    unsigned          turn;
    uint32_t          entries;
    kvr_index_undo_t  undo;

    /* without updates: the heartbeat moves the clock as far */

    for (turn = 10; turn < 20; turn++) {
        teach(0, chain[turn], DEPTH, 1, &undo);
    }

    (void) kvr_share_frame(&host[0].self, &host[0].owner, buffer, 0, now, 1000);
    kvr_share_acked(&host[0].self, &host[0].owner);
    now += KVR_SHARE_BEAT;
    flush(0, 0);

    util_check(kvr_share_index_units(host[1].zone.index, host[1].number[1])
               == kvr_share_index_units(host[0].zone.index, host[0].number[1]),
               "clocks");

    /* of a conversation another host gets only the last turn */

    for (turn = 1; turn <= 10; turn++) {
        entries = turn * 20;
        teach(0, chain[0], entries, 1, &undo);

        if (turn == 10) {
            break;
        }

        (void) kvr_share_frame(&host[0].self, &host[0].owner, buffer, 0, now, 1000);
        kvr_share_acked(&host[0].self, &host[0].owner);
        util_check(held(1, chain[0], 1) == 0, "no updates yet");
    }

    flush_all(0);

    util_check(held(1, chain[0], 1) == kvr_chain_depth(199),
               "all blocks are known: %u", held(1, chain[0], 1));
    util_check(kvr_get(&host[1].self.share->stats.gaps) == 9, "seen");

    /* also where two prompts branch */

    util_check(held(1, chain[1], 1) >= kvr_chain_depth(36) - 12
               && held(1, chain[1], 1) <= kvr_chain_depth(37),
               "the common part: %u", held(1, chain[1], 1));
}


TEST(test_share_void)
{
    kvr_index_undo_t  undo;

    teach(0, chain[0], 100, 2, &undo);
    flush_all(0);
    teach(0, chain[0], 150, 2, &undo);
    flush_all(0);

    util_check(held(1, chain[0], 2) == kvr_chain_depth(149), "inserted");

    kvr_index_undo(host[0].zone.index, chain[0], 150, &undo);
    kvr_share_publish_undo(&host[0].zone, host[0].self.share, chain[0], 150, &undo);
    flush_all(0);

    util_check(held(0, chain[0], 2) == kvr_chain_depth(99), "%u", held(0, chain[0], 2));
    util_check(held(1, chain[0], 2) == kvr_chain_depth(99), "%u", held(1, chain[0], 2));
    util_check(held(1, chain[0], 1) == 0, "no other peer");

    /* blocks that a peer computed earlier stay */

    teach(1, chain[2], 30, 3, &undo);
    flush_all(1);
    teach(2, chain[4], DEPTH, 3, &undo);
    teach(2, chain[6], DEPTH, 3, &undo);
    flush_all(2);

    undo.matched = 0;
    undo.moved = 30;
    undo.peer = (uint16_t) host[0].number[3];
    undo.clock = (uint32_t) kvr_index_clock(host[0].zone.index, undo.peer)
                 << KVR_INDEX_STAMP;
    kvr_share_publish_undo(&host[0].zone, host[0].self.share, chain[2], 30, &undo);
    flush_all(0);

    util_check(held(1, chain[2], 3) == 30, "%u", held(1, chain[2], 3));
}


TEST(test_share_extend)
{
    kvr_index_undo_t  undo;

    teach(0, chain[0], 100, 2, &undo);
    kvr_index_extend(host[0].zone.index, &chain[0][100], 100, 30, 240,
                     host[0].number[2], 0);
    kvr_share_publish_reply(&host[0].zone, host[0].self.share, &chain[0][100],
                          100, 30, 240, host[0].number[2], 0);
    flush_all(0);

    util_check(held(0, chain[0], 2) == kvr_chain_depth(129), "%u",
               held(0, chain[0], 2));
    util_check(held(2, chain[0], 2) == kvr_chain_depth(129), "%u",
               held(2, chain[0], 2));
}


/* a prompt with more entries than a record has room for */
TEST(test_share_long)
{
    uint32_t           i, n, matched[KVR_PEERS];
    uint64_t          *c;
    kvr_index_undo_t   undo;

    n = 3 * KVR_SHARE_VALUES + 17;
    c = util_zeroed((n + 20000) * 8);

    for (i = 0; i < n + 20000; i++) {
        c[i] = util_next(&rng) | 1ULL << 40;
    }

    kvr_index_insert(host[0].zone.index, c, n, kvr_chain_depth(n - 1),
                     host[0].number[0], 0, &undo);
    kvr_share_publish_update(&host[0].zone, host[0].self.share, c, n, &undo);
    flush_all(0);

    (void) kvr_index_lookup(host[1].zone.index, c, n,
                            kvr_set_of(host[1].number[0]), matched);
    util_check(matched[host[1].number[0]] == kvr_chain_depth(n - 1), "%u",
               matched[host[1].number[0]]);

    /*
     * most of it is known: the published part is bounded, and ends in the new
     * part
     */

    n += 20000;
    undo.first = 0;
    undo.matched = kvr_chain_depth(n - 11);
    kvr_share_publish_update(&host[0].zone, host[0].self.share, c, n, &undo);
    flush_all(0);

    util_check(kvr_get(&host[1].self.share->stats.applied) == 5, "%lu",
               (unsigned long) kvr_get(&host[1].self.share->stats.applied));
    free(c);
}


/* an owner dies at any point between two acks; another continues */
TEST(test_share_once)
{
    size_t            len;
    unsigned          i, cut;
    uint64_t          before, taught;
    kvr_share_e       rc;
    kvr_share_t      *s;
    kvr_index_undo_t  undo;

    s = host[0].self.share;
    taught = 0;

    for (i = 0; i < util_cases(3000); i++) {

        teach(0, chain[i % CHAINS], 1 + util_below(&rng, DEPTH), 0, &undo);
        taught++;

        cut = util_below(&rng, 6);

        len = kvr_share_frame(&host[0].self, &host[0].owner, buffer, 0, now, 1000);

        /* 0: before it was sent; 1: before the answer */

        if (cut > 0) {
            rc = kvr_share_apply(&host[1].self, &host[1].owner,
                                 (uint8_t *) buffer, len, now, 1);
            util_check(rc == KVR_SHARE_OK || rc == KVR_SHARE_REPEATED, "%d",
                       rc);
        }

        /* 2: during the ack */

        if (cut == 2) {
            kvr_set(&s->ring.tail, kvr_get(&s->end));
        }

        if (cut > 2) {
            kvr_share_acked(&host[0].self, &host[0].owner);
        }

        if (cut < 4) {
            memset(&host[0].owner, 0, sizeof(kvr_share_owner_t));
        }
    }

    do {
        len = kvr_share_frame(&host[0].self, &host[0].owner, buffer, 0, now, 1000);
        (void) kvr_share_apply(&host[1].self, &host[1].owner,
                               (uint8_t *) buffer, len, now, 1);
        kvr_share_acked(&host[0].self, &host[0].owner);
    } while (kvr_get(&s->ring.head) != kvr_get(&s->ring.tail));

    s = host[1].self.share;

    util_check(kvr_get(&s->stats.applied) == taught, "%lu of %lu lessons",
               (unsigned long) kvr_get(&s->stats.applied),
               (unsigned long) taught);
    util_check(kvr_get(&s->stats.gaps) == 0, "no gaps");
    util_check(kvr_get(&s->stats.repeated) > 0, "some were repeated");

    /* a reader that dies in the middle of a batch continues there */

    for (i = 0; i < 20; i++) {
        teach(0, chain[i], 50, 1, &undo);
    }

    len = kvr_share_frame(&host[0].self, &host[0].owner, buffer, 0, now, 1000);
    kvr_share_acked(&host[0].self, &host[0].owner);

    kvr_set(&s->current, kvr_mix(1000, kvr_get(&host[0].self.share->number)));
    kvr_set(&s->done, 12);
    before = kvr_get(&s->stats.applied);

    rc = kvr_share_apply(&host[1].self, &host[1].owner, (uint8_t *) buffer,
                         len, now, 1);
    util_check(rc == KVR_SHARE_OK, "%d", rc);
    util_check(kvr_get(&s->stats.applied) - before == 8, "the rest of it");
}


/* a host reads a batch of one that has other peers and another key */
TEST(test_share_ignored)
{
    size_t            len;
    kvr_share_t      *s;
    kvr_index_undo_t  undo;

    s = host[1].self.share;

    teach(0, chain[0], 50, 0, &undo);
    len = kvr_share_frame(&host[0].self, &host[0].owner, buffer, 0, now, 1000);

    secret[0]++;
    kvr_share_batch_key(&host[1].self.key, secret, 1);
    util_check(kvr_share_apply(&host[1].self, &host[1].owner,
                               (uint8_t *) buffer, len, now, 1)
               == KVR_SHARE_FOREIGN, "another key");
    util_check(kvr_get(&s->stats.ignored[1 + KVR_SHARE_OTHER
                                         - KVR_SHARE_NONE]) == 1, "counted");
    util_check(memcmp((char *) s->foreign_name, "h0", 3) == 0, "its name");
    util_check(kvr_get(&s->stats.applied) == 0
               && kvr_get(&s->host[0].id) == 0, "nothing was taken");

    secret[0]--;
    kvr_share_batch_key(&host[1].self.key, secret, 1);

    /* that host has another name for the engine */

    host[1].zone.registry->peer[host[1].number[0]].name[0] = '2';
    util_check(kvr_share_apply(&host[1].self, &host[1].owner,
                               (uint8_t *) buffer, len, now, 1)
               == KVR_SHARE_OK, "taken");
    util_check(kvr_get(&s->stats.unknown) > 0
               && kvr_get(&s->stats.applied) == 0,
               "an update for an unknown peer");

    util_check(kvr_share_apply(&host[1].self, &host[1].owner,
                               (uint8_t *) buffer, len, now, 1)
               == KVR_SHARE_REPEATED && kvr_get(&s->stats.repeated) == 1,
               "twice");
    util_check(kvr_share_apply(&host[0].self, &host[0].owner,
                               (uint8_t *) buffer, len, now, 1)
               == KVR_SHARE_ECHO
               && kvr_get(&host[0].self.share->stats.echoes) == 1, "echo");
    util_check(kvr_share_apply(&host[1].self, &host[1].owner,
                               (uint8_t *) "kvroute", 7, now, 1)
               == KVR_SHARE_NONE, "no batch");
}


/* more hosts than slots; old ones are replaced */
TEST(test_share_crowd)
{
    size_t        len;
    unsigned      i;
    kvr_share_e   rc;
    kvr_share_t  *s;

    s = host[1].self.share;

    for (i = 0; i < KVR_SHARE_HOSTS + 3; i++) {
        host[0].self.share->id = 5000 + i;
        len = kvr_share_frame(&host[0].self, &host[0].owner, buffer, 0,
                              now + i, 1000);
        kvr_share_acked(&host[0].self, &host[0].owner);

        rc = kvr_share_apply(&host[1].self, &host[1].owner,
                             (uint8_t *) buffer, len, now + i, 1);
        util_check(rc == (i < KVR_SHARE_HOSTS ? KVR_SHARE_OK
                                              : KVR_SHARE_CROWDED),
                   "host %u: %d", i, rc);
    }

    kvr_share_tick(&host[1].self, &host[1].owner, now + LEASE + 5);

    rc = kvr_share_apply(&host[1].self, &host[1].owner, (uint8_t *) buffer,
                         len, now + LEASE + 5, 1);
    util_check(rc == KVR_SHARE_OK, "the first ones are silent");
    util_check(kvr_get(&s->host[0].id) == 5000 + i - 1, "its place");
}


static unsigned
bound(unsigned h, uint64_t key)
{
    uint32_t  i, generation, peer;

    peer = kvr_index_bound(host[h].zone.index, key, 1000, &generation);

    for (i = 0; i < PEERS; i++) {
        if (host[h].number[i] == peer) {
            return i;
        }
    }

    return KVR_PEERS;
}


static void
bind(unsigned h, uint64_t key, unsigned peer, uint32_t seconds)
{
    kvr_share_publish_bind(&host[h].zone, host[h].self.share, key, host[h].number[peer], seconds,
                        1000);
    kvr_index_bind(host[h].zone.index, key, host[h].number[peer], 1,
                   1000 + seconds);
}


TEST(test_share_bind)
{
    unsigned  h;
    uint64_t  head;

    bind(0, 1ULL << 50, 3, 60);
    flush_all(0);

    for (h = 0; h < HOSTS; h++) {
        util_check(bound(h, 1ULL << 50) == 3, "host %u", h);
    }

    /* not with each request */

    head = kvr_get(&host[1].self.share->ring.head);
    bind(1, 1ULL << 50, 3, 61);
    util_check(kvr_get(&host[1].self.share->ring.head) == head, "refreshed");
    bind(1, 1ULL << 50, 3, 80);
    util_check(kvr_get(&host[1].self.share->ring.head) > head, "for long");
    flush_all(1);

    /* two hosts at a time: the first in the stream wins, on all hosts */

    bind(0, 2ULL << 50, 1, 60);
    bind(1, 2ULL << 50, 2, 60);
    flush_all(1);
    flush_all(0);

    for (h = 0; h < HOSTS; h++) {
        util_check(bound(h, 2ULL << 50) == 2, "host %u: %u", h,
                   bound(h, 2ULL << 50));
    }

    /* the session is moved, because its peer was removed */

    bind(0, 2ULL << 50, 4, 60);
    flush_all(0);

    for (h = 0; h < HOSTS; h++) {
        util_check(bound(h, 2ULL << 50) == 4, "host %u", h);
    }
}


TEST(test_share_floor)
{
    unsigned          h;
    uint64_t          clock;
    kvr_index_undo_t  undo;

    teach(0, chain[0], 100, 2, &undo);
    flush_all(0);
    teach(0, chain[2], 100, 2, &undo);
    flush_all(0);

    /* prompts older than the second one are lost */

    clock = kvr_index_clock(host[0].zone.index, host[0].number[2]);

    kvr_share_publish_floor(&host[0].zone, host[0].self.share, host[0].number[2], clock - 100);
    kvr_index_floor(host[0].zone.index, host[0].number[2], clock - 100);
    flush_all(0);

    for (h = 0; h < HOSTS; h++) {
        util_check(held(h, chain[0], 2) == 0, "host %u: the older one", h);
        util_check(held(h, chain[2], 2) == 100, "host %u: the younger one: %u",
                   h, held(h, chain[2], 2));
    }

    /* at most once in a while */

    kvr_share_publish_floor(&host[0].zone, host[0].self.share, host[0].number[2], UINT64_MAX);
    flush_all(0);
    util_check(held(1, chain[2], 2) == 100, "too soon");

    now += KVR_SHARE_FLOORS;
    kvr_share_publish_floor(&host[0].zone, host[0].self.share, host[0].number[2], UINT64_MAX);
    flush_all(0);
    util_check(held(1, chain[2], 2) == 0, "all are removed");
}


/* a new host gets the others' index from one of them */
TEST(test_share_help)
{
    unsigned          i, h, c, peer, told;
    uint32_t          here, there, known;
    kvr_index_undo_t  undo;

    for (i = 0; i < 400; i++) {
        teach(i % 2, chain[util_below(&rng, CHAINS)], 1 + util_below(&rng, DEPTH),
              util_below(&rng, PEERS), &undo);
        flush_all(i % 2);
    }

    bind(0, 1ULL << 50, 3, 600);
    flush_all(0);

    /* the third one starts empty */

    kvr_index_init(memset((void *) host[2].zone.index, 0,
                          kvr_index_size(LINES, KVR_PEERS_FEW)),
                   LINES, KVR_PEERS_FEW);

    for (i = 0; i < PEERS; i++) {
        kvr_index_capacity(host[2].zone.index, i, CAPACITY, KVR_INDEX_ASSUMED);
    }

    util_check(!kvr_share_help_due(&host[0].self, now),
               "no host wants help");

    kvr_share_help_want(host[2].self.share, now);
    flush(2, 0);

    told = 0;

    for (i = 0; i < 2000 && kvr_get(&host[2].self.share->wants); i++) {
        now += 5;

        for (h = 0; h < 2; h++) {
            if (kvr_share_help_due(&host[h].self, now)) {
                told |= 1U << h;
                flush(h, 0);
            }
        }
    }

    util_check(told == 1 || told == 2, "one host has helped: %x", told);
    util_check(kvr_get(&host[2].self.share->wants) == 0,
               "the help is complete");

    flush(2, 0);
    util_check(!kvr_share_help_due(&host[0].self, now + 1000)
               && !kvr_share_help_due(&host[1].self, now + 1000), "once");

    known = 0;

    for (c = 0; c < CHAINS; c++) {
        for (peer = 0; peer < PEERS; peer++) {
            here = held(0, chain[c], peer);
            there = held(2, chain[c], peer);
            known += here;

            util_check(here == there, "chain %u peer %u: %u, %u", c, peer,
                       here, there);
        }
    }

    util_check(known > 1000, "known entries: %u", known);
    util_check(bound(2, 1ULL << 50) == 3, "sessions as well");

    /* no host helps: after a while it stops asking */

    kvr_share_help_want(host[0].self.share, now);
    kvr_share_tick(&host[0].self, &host[0].owner, now + KVR_SHARE_WANTS);
    util_check(kvr_get(&host[0].self.share->wants) == 0, "given up");
}


/* all hosts are new: one that has learned something publishes it, once */
TEST(test_share_help_new)
{
    unsigned          i, h, told;
    kvr_index_undo_t  undo;

    for (h = 0; h < 2; h++) {
        kvr_share_help_want(host[h].self.share, now);
    }

    /* the second one has not read it */

    teach(0, chain[0], 30, 2, &undo);
    (void) kvr_share_frame(&host[0].self, &host[0].owner, buffer, 0, now, 1000);
    kvr_share_acked(&host[0].self, &host[0].owner);

    for (h = 0; h < 2; h++) {
        flush(h, 0);
    }

    told = 0;

    for (i = 0; i < 20 && kvr_get(&host[1].self.share->wants); i++) {
        now += 5;
        told++;

        if (kvr_share_help_due(&host[0].self, now)) {
            flush(0, 0);
        }
    }

    util_check(held(1, chain[0], 2) == 30, "known after %u batches", told);

    /* the end of the help is lost: it asks, and is not helped again */

    kvr_share_help_want(host[1].self.share, now);

    for (i = 0; i < 400; i++) {
        now += 5;
        flush(1, 0);

        if (kvr_share_help_due(&host[0].self, now)) {
            (void) kvr_share_frame(&host[0].self, &host[0].owner, buffer, 0,
                                   now, 1000);
            kvr_share_acked(&host[0].self, &host[0].owner);
            told++;
        }
    }

    util_check(told < 20, "%u batches", told);
}


/* an entry can name any of the peers in a batch */
TEST(test_share_known)
{
    unsigned            i;
    uint16_t            peer[KVR_PEERS];
    uint64_t            words[2];
    kvr_index_undo_t    undo;
    kvr_share_record_t  r;

    teach(0, chain[2], DEPTH, 1, &undo);
    teach(0, chain[2], DEPTH, 2, &undo);

    for (i = 0; i < KVR_PEERS; i++) {
        peer[i] = (uint16_t) host[0].number[1];
    }

    peer[KVR_PEERS - 1] = (uint16_t) host[0].number[2];

    for (i = 0; i < 4; i++) {
        words[0] = chain[0][i];
        words[1] = kvr_share_known(5 - i, KVR_PEERS - 1, i & 1);

        r.type = KVR_SHARE_KNOWN;
        r.n = 2;
        r.word = words;

        kvr_share_help_take(&host[0].self, &r, peer, KVR_PEERS);
    }

    util_check(held(0, chain[0], 2) == 4, "blocks of the last peer: %u",
               held(0, chain[0], 2));
    util_check(held(0, chain[0], 1) == 0, "no blocks of another peer");
}


suite_around(hosts_begin, hosts_end);
