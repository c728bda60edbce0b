
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_registry: slots stay with their names; which slots are reused when none
 * is free.  This test makes the state of a writer that was killed halfway by
 * hand; test_load_steps.c kills one at each step.
 */


#include "util_registry.h"
#include "util.h"
#include "core/state/kvr_registry.h"
#include "core/watch/kvr_history.h"


#define ROWS      4
#define LINES     64
#define CAPACITY  1000
#define NONE      KVR_REGISTRY_NONE


typedef struct {
    kvr_registry_t  *reg;
    kvr_load_t      *load;
    kvr_index_t     *ix;
} zone_t;


static void
zone_make(zone_t *z, uint32_t max_peers)
{
    z->reg = util_registry(max_peers);

    z->load = util_zeroed(kvr_load_size(ROWS, kvr_registry_columns(max_peers)));
    kvr_load_init(z->load, ROWS, kvr_registry_columns(max_peers));

    z->ix = util_zeroed(kvr_index_size(LINES, max_peers));
    kvr_index_init(z->ix, LINES, max_peers);

    (void) kvr_load_claim(z->load, kvr_load_owner(1, 1), 1);
    (void) kvr_load_claim(z->load, kvr_load_owner(2, 1), 1);
}


static void
zone_free(zone_t *z)
{
    free(z->reg);
    free(z->load);
    free(z->ix);
}


static uint32_t
peer(zone_t *z, uint32_t row, const char *name)
{
    return kvr_registry_peer(z->reg, z->load, row, z->ix, name, strlen(name),
                             CAPACITY);
}


static uint32_t
member(zone_t *z, uint32_t row, uint32_t id, const char *upstream)
{
    return kvr_registry_member(z->reg, z->load, row, id, upstream,
                               strlen(upstream));
}


static uint32_t
find(zone_t *z, const char *name)
{
    return kvr_registry_find_peer(z->reg, name, strlen(name));
}


/* the row has no more names */
static void
unname(zone_t *z, uint32_t row)
{
    uint64_t  names[KVR_REGISTRY_NAMES] = { 0 };

    kvr_load_rename(z->load, row, names);
}


/* inserts a block of a peer, to see whether the index keeps it */
static void
teach(zone_t *z, uint32_t id, uint64_t block)
{
    kvr_index_undo_t  undo;

    kvr_index_insert(z->ix, &block, 1, 1, id, 0, &undo);
}


static uint32_t
knows(zone_t *z, uint32_t id, uint64_t block)
{
    uint32_t  matched[KVR_PEERS];

    return kvr_index_lookup(z->ix, &block, 1, util_set(1ULL << id), matched);
}


TEST(test_registry_peers)
{
    uint32_t  a, b;
    zone_t    z;

    zone_make(&z, 64);

    util_check(find(&z, "10.0.0.1:8000") == NONE, "no slot yet");

    a = peer(&z, 0, "10.0.0.1:8000");
    b = peer(&z, 0, "10.0.0.1:80");

    util_check(a != NONE && b != NONE && a != b, "%u %u", a, b);
    util_check(peer(&z, 1, "10.0.0.1:8000") == a,
               "the slot of another process");
    util_check(peer(&z, 0, "10.0.0.1:80") == b, "the same slot again");
    util_check(find(&z, "10.0.0.1:8000") == a, "found");
    util_check(find(&z, "10.0.0.1:800") == NONE, "a part of it");
    util_check(find(&z, "") == NONE, "nothing");

    /* recorded in the callers' rows */

    util_check(kvr_load_names(z.load, 0)[0] == (1ULL << a | 1ULL << b), "row 0");
    util_check(kvr_load_names(z.load, 1)[0] == 1ULL << a, "row 1");

    /* found, but not recorded */

    unname(&z, 0);
    unname(&z, 1);
    (void) find(&z, "10.0.0.1:8000");
    util_check(!kvr_load_used(z.load, a), "find records it");

    /* a removed peer that returns has its blocks */

    teach(&z, a, 777777777777ULL);

    util_check(peer(&z, 0, "10.0.0.1:8000") == a, "another slot");
    util_check(knows(&z, a, 777777777777ULL) == 1, "forgotten");

    zone_free(&z);
}


TEST(test_registry_capacity)
{
    uint32_t  a;
    zone_t    z;

    zone_make(&z, 64);

    a = peer(&z, 0, "a:1");
    util_check(kvr_index_peer(z.ix, a)->capacity == CAPACITY, "new");

    /* another configuration has another one */

    util_check(kvr_registry_peer(z.reg, z.load, 1, z.ix, "a:1", 3, 5000) == a,
               "number");
    util_check(kvr_index_peer(z.ix, a)->capacity == 5000, "changed");

    /* a learned value stays if a new worker assumes the same */

    kvr_index_capacity(z.ix, a, 700, KVR_INDEX_ASSUMED);
    util_check(kvr_registry_peer(z.reg, z.load, 1, z.ix, "a:1", 3, 5000) == a,
               "number");
    util_check(kvr_index_peer(z.ix, a)->capacity == 700, "learned");
    util_check(peer(&z, 0, "a:1") == a && kvr_index_peer(z.ix, a)->capacity == CAPACITY,
               "changed again");

    /* the engine's report counts most */

    kvr_index_capacity(z.ix, a, 3000, KVR_INDEX_REPORTED);
    util_check(peer(&z, 0, "a:1") == a, "slot");
    util_check(kvr_index_peer(z.ix, a)->capacity == 3000 && kvr_index_peer(z.ix, a)->source == KVR_INDEX_REPORTED,
               "reported");

    zone_free(&z);
}


TEST(test_registry_names)
{
    char      name[300];
    uint32_t  a, b;
    zone_t    z;

    zone_make(&z, 64);
    memset(name, 'x', sizeof(name));

    util_check(kvr_registry_peer(z.reg, z.load, 0, z.ix, name, 0, 1) == NONE,
               "no name");
    util_check(kvr_registry_peer(z.reg, z.load, 0, z.ix, name,
                                 KVR_REGISTRY_NAME_LEN + 1, 1)
               == NONE, "a name too long");

    a = kvr_registry_peer(z.reg, z.load, 0, z.ix, name, KVR_REGISTRY_NAME_LEN,
                          1);
    util_check(a != NONE, "the longest name");
    util_check(kvr_registry_find_peer(z.reg, name, KVR_REGISTRY_NAME_LEN) == a,
               "found");
    util_check(kvr_registry_find_peer(z.reg, name, KVR_REGISTRY_NAME_LEN - 1)
               == NONE, "cut");

    /* a zero byte is an ordinary one */

    name[1] = '\0';
    b = kvr_registry_peer(z.reg, z.load, 0, z.ix, name, 3, 1);
    name[2] = 'y';
    util_check(b != NONE
               && kvr_registry_find_peer(z.reg, name, 3) == NONE, "binary");

    /* upstreams: long names that differ in the last byte are different */

    memset(name, 'u', sizeof(name));

    a = kvr_registry_member(z.reg, z.load, 0, b, name, KVR_REGISTRY_TITLE_LEN);
    name[KVR_REGISTRY_TITLE_LEN - 1] = 'v';
    util_check(a != NONE
               && kvr_registry_member(z.reg, z.load, 0, b, name,
                                      KVR_REGISTRY_TITLE_LEN) != a,
               "told apart");
    util_check(kvr_registry_member(z.reg, z.load, 0, b, name,
                                   KVR_REGISTRY_TITLE_LEN + 1) == NONE,
               "too long");
    util_check(kvr_registry_member(z.reg, z.load, 0, b, name, 0) == NONE,
               "no name");

    zone_free(&z);
}


TEST(test_registry_seats)
{
    char      name[32];
    uint32_t  a, b, i, s[4];
    zone_t    z;

    zone_make(&z, 64);

    a = peer(&z, 0, "a:1");
    b = peer(&z, 0, "b:1");

    s[0] = member(&z, 0, a, "one");
    s[1] = member(&z, 0, b, "one");
    s[2] = member(&z, 0, a, "two");
    s[3] = member(&z, 1, b, "two");

    for (i = 0; i < 4; i++) {
        util_check(s[i] < z.reg->max_members, "member %u", s[i]);
        util_check(i == 0 || s[i] != s[i - 1], "the same");
        util_check(z.reg->member[s[i]].peer == (i & 1 ? b : a), "peer");
        util_check(kvr_registry_column(z.reg, s[i]) >= z.reg->max_peers
                   && kvr_registry_column(z.reg, s[i]) < kvr_registry_columns(z.reg->max_peers),
                   "column");
        util_check(kvr_load_used(z.load, kvr_registry_column(z.reg, s[i])),
                   "recorded");
    }

    util_check(member(&z, 1, a, "one") == s[0],
               "the member of another process");
    util_check(member(&z, 0, b, "two") == s[3], "the same member again");

    util_check(z.reg->member[s[0]].upstream == z.reg->member[s[1]].upstream
               && z.reg->member[s[2]].upstream != z.reg->member[s[0]].upstream,
               "upstreams");

    /* counters stay as long as the name */

    kvr_add(&z.reg->member[s[0]].requests, 5);
    unname(&z, 0);
    unname(&z, 1);
    util_check(member(&z, 0, a, "one") == s[0]
               && z.reg->member[s[0]].requests == 5, "counters");

    /* unused slots are reused only if there are no free ones */

    unname(&z, 0);

    for (i = 4; i < 2 * KVR_REGISTRY_UPSTREAMS + 4; i++) {
        sprintf(name, "upstream%u", i / 2);

        util_check(member(&z, 0, i & 1 ? a : b, name) != NONE, "%u", i);

        util_check(i >= z.reg->max_members
                   || z.reg->member[s[0]].requests == 5, "too early: %u", i);
    }

    /* no row names the first four: they went to others, cleared */

    util_check(z.reg->member[s[0]].requests == 0, "requests of another peer");

    zone_free(&z);
}


TEST(test_registry_reserved)
{
    char      name[32];
    uint32_t  a, i, s;
    zone_t    z;

    zone_make(&z, 64);

    a = peer(&z, 0, "a:1");
    s = member(&z, 0, a, "one");

    /* an admitted request that is not sent yet */

    kvr_load_add(z.load, 1, kvr_registry_reserved(z.reg, s), 1, 0);
    unname(&z, 0);

    for (i = 0; i < 2 * z.reg->max_members; i++) {
        sprintf(name, "upstream%u", i);
        util_check(member(&z, 0, a, name) != s, "%u", i);
        unname(&z, 0);
    }

    kvr_load_add(z.load, 1, kvr_registry_reserved(z.reg, s), -1, 0);

    for (i = 0; i < 2 * z.reg->max_members; i++) {
        sprintf(name, "upstream%u", i);

        if (member(&z, 0, a, name) == s) {
            break;
        }

        unname(&z, 0);
    }

    util_check(i < 2 * z.reg->max_members, "the slot is never reused");

    zone_free(&z);
}


/* a slot is reused only if no row names it and nothing is counted there */
TEST(test_registry_reuse)
{
    unsigned  i;
    uint32_t  id[4], n, s;
    uint64_t  names[KVR_REGISTRY_NAMES] = { 0 };
    zone_t    z;

    static const char  *name[] = { "a:1", "b:1", "c:1", "d:1" };

    zone_make(&z, 4);

    for (i = 0; i < 4; i++) {
        id[i] = peer(&z, 0, name[i]);
        util_check(id[i] == i, "%u", id[i]);
        teach(&z, i, 1000000000000ULL + i);

        /* work was given in the order c a d b, so c rests longest */

        z.reg->peer[i].given = "\2\4\1\3"[i];
    }

    *z.reg->given = 4;
    s = member(&z, 0, id[2], "up");

    /* all are named: no room, and no change */

    util_check(peer(&z, 1, "new:1") == NONE, "no room");
    util_check(kvr_load_names(z.load, 1)[0] == 0, "the row is recorded");

    for (i = 0; i < 4; i++) {
        util_check(find(&z, name[i]) == i && knows(&z, i, 1000000000000ULL + i),
                   "%u", i);
    }

    /* c is not named any more, but has a request; then some bytes */

    names[0] = 0xb;
    kvr_load_rename(z.load, 0, names);

    kvr_load_add(z.load, 1, id[2], 1, 0);
    util_check(peer(&z, 1, "new:1") == NONE, "a request");
    kvr_load_add(z.load, 1, id[2], -1, 1);
    util_check(peer(&z, 1, "new:1") == NONE, "a byte");
    kvr_load_add(z.load, 1, id[2], 0, -1);

    /* another process still names it */

    kvr_load_name(z.load, 1, id[2]);
    util_check(peer(&z, 0, "new:1") == NONE, "another process");
    unname(&z, 1);

    kvr_index_capacity(z.ix, id[2], 77, KVR_INDEX_REPORTED);
    *z.reg->given = 100;

    n = peer(&z, 1, "new:1");

    util_check(n == id[2], "%u", n);
    util_check(find(&z, "c:1") == NONE && find(&z, "new:1") == n, "names");
    util_check(knows(&z, n, 1000000000002ULL) == 0, "blocks of c");
    util_check(kvr_index_peer(z.ix, n)->capacity == CAPACITY && kvr_index_peer(z.ix, n)->source == KVR_INDEX_ASSUMED,
               "c's capacity");
    util_check(z.reg->peer[n].given == 100, "c's rest");
    util_check(!z.reg->member[s].used, "c's member");
    util_check(kvr_load_used(z.load, n), "no row names it");

    /* the others are unchanged */

    util_check(knows(&z, 0, 1000000000000ULL) && find(&z, "a:1") == 0, "a");

    /* of several unused slots, the one that rests longest: a, d, b */

    unname(&z, 0);

    util_check(peer(&z, 1, "n1:1") == id[0], "a");
    util_check(peer(&z, 1, "n2:1") == id[3], "d");
    util_check(peer(&z, 1, "n3:1") == id[1], "b");
    util_check(peer(&z, 1, "n4:1") == NONE, "all names have slots again");

    zone_free(&z);
}


/* a slot that was never used comes before an unused one */
TEST(test_registry_fresh)
{
    unsigned  i;
    zone_t    z;

    zone_make(&z, 3);

    util_check(peer(&z, 0, "a:1") == 0, "a");
    unname(&z, 0);
    *z.reg->given = 50;

    util_check(peer(&z, 0, "b:1") == 1, "b");
    util_check(peer(&z, 0, "c:1") == 2, "c");
    util_check(find(&z, "a:1") == 0, "a is still known");
    util_check(peer(&z, 0, "d:1") == 0, "d");

    zone_free(&z);

    /* all slots */

    zone_make(&z, KVR_PEERS);

    for (i = 0; i < KVR_PEERS; i++) {
        char  name[8];

        sprintf(name, "p%u", i);
        util_check(peer(&z, 0, name) == i, "%u", i);
    }

    util_check(peer(&z, 0, "more") == NONE, "more");

    zone_free(&z);
}


/* returns the limit that keeps a server from a slot */
TEST(test_registry_limit)
{
    char      name[KVR_REGISTRY_TITLE_LEN + 2];
    uint32_t  i, a;
    zone_t    z;

    memset(name, 'n', sizeof(name));

    zone_make(&z, 4);

    util_check(kvr_registry_limit(z.reg, name, KVR_REGISTRY_NAME_LEN + 1,
                                  0, "u", 1) == KVR_REGISTRY_LIMIT_NAME, "name");
    util_check(kvr_registry_limit(z.reg, name, 3, 0, name,
                                  KVR_REGISTRY_TITLE_LEN + 1)
               == KVR_REGISTRY_LIMIT_TITLE, "title");

    for (i = 0; i < 4; i++) {
        sprintf(name, "p%u", i);
        util_check(peer(&z, 0, name) == i, "%u", i);
    }

    util_check(peer(&z, 0, "more") == NONE, "more");
    util_check(kvr_registry_limit(z.reg, "more", 4, 0, "u", 1)
               == KVR_REGISTRY_LIMIT_PEERS, "peers");
    util_check(kvr_registry_limit(z.reg, "p0", 2, 1, "u", 1)
               == KVR_REGISTRY_LIMIT_PEERS, "a rank of a server with a slot");

    /* one in each possible upstream, then others in all of them */

    a = 0;

    for (i = 0; i < KVR_REGISTRY_UPSTREAMS; i++) {
        sprintf(name, "u%u", i);
        util_check(member(&z, 0, a, name) != NONE, "%u", i);
    }

    util_check(member(&z, 0, a, "more") == NONE, "an upstream too many");
    util_check(kvr_registry_limit(z.reg, "p0", 2, 0, "more", 4)
               == KVR_REGISTRY_LIMIT_UPSTREAMS, "upstreams");

    for (i = KVR_REGISTRY_UPSTREAMS; i < z.reg->max_members; i++) {
        sprintf(name, "u%u", i - KVR_REGISTRY_UPSTREAMS);
        util_check(member(&z, 0, 1, name) != NONE, "%u", i);
    }

    util_check(member(&z, 0, 2, "u0") == NONE, "a member too many");
    util_check(kvr_registry_limit(z.reg, "p2", 2, 0, "u0", 2)
               == KVR_REGISTRY_LIMIT_MEMBERS, "seats");

    zone_free(&z);
}


/* configurations come and go, each with other upstreams */
TEST(test_registry_upstreams)
{
    char      name[32];
    uint32_t  a, i, s, first;
    zone_t    z;

    zone_make(&z, 64);

    a = peer(&z, 0, "a:1");
    first = member(&z, 1, a, "stays");

    for (i = 0; i < 1000; i++) {
        unname(&z, 0);
        sprintf(name, "app-%u", i);

        s = member(&z, 0, peer(&z, 0, "a:1"), name);

        util_check(s != NONE && s != first, "%u: no member", i);
        util_check(z.reg->member[s].requests == 0, "%u: not clean", i);
        kvr_add(&z.reg->member[s].requests, 1);

        util_check(member(&z, 0, a, name) == s, "%u: another member", i);
    }

    util_check(member(&z, 0, a, "stays") == first, "the named one was lost");

    /* as many as can be named at once */

    unname(&z, 0);

    for (i = 0; i < KVR_REGISTRY_UPSTREAMS; i++) {
        sprintf(name, "now-%u", i);
        s = member(&z, 0, a, name);

        util_check((s == NONE) == (i == KVR_REGISTRY_UPSTREAMS - 1), "%u", i);
    }

    zone_free(&z);
}


/* ranks have names of their own, and the properties of the address */
TEST(test_registry_ranks)
{
    zone_t    z;
    uint32_t  a, b, r1, r12;

    zone_make(&z, 8);

    a = peer(&z, 0, "a:1");
    b = peer(&z, 0, "b:1");

    r1 = kvr_registry_rank(z.reg, z.load, 0, z.ix, a, 1, CAPACITY);
    r12 = kvr_registry_rank(z.reg, z.load, 0, z.ix, a, 12, CAPACITY);

    util_check(kvr_registry_rank(z.reg, z.load, 0, z.ix, a, 0, CAPACITY) == a,
               "rank 0 is the address");
    util_check(find(&z, "a:1#1") == r1 && find(&z, "a:1#12") == r12
               && kvr_registry_find_rank(z.reg, a, 12) == r12
               && kvr_registry_find_rank(z.reg, b, 1) == NONE, "names");
    util_check(kvr_registry_behind(z.reg, r12, a)
               && kvr_registry_behind(z.reg, a, a)
               && !kvr_registry_behind(z.reg, b, a), "behind");

    util_check(kvr_registry_ranks(z.reg, a, 4) == 1
               && kvr_registry_ranks(z.reg, a, 4) == 0
               && kvr_get(z.reg->ranked) == 1, "a change is reported once");

    kvr_set(&z.reg->peer[a].engine.health, KVR_HEALTH_DOWN);
    kvr_set(&z.reg->peer[a].engine.waiting, 9);
    kvr_drain_begin(&z.reg->peer[a].drain, 500, 1000);
    kvr_registry_share(z.reg, a);

    util_check(kvr_get(&z.reg->peer[r1].engine.health) == KVR_HEALTH_DOWN
               && kvr_get(&z.reg->peer[b].engine.health) == KVR_HEALTH_UP,
               "health by address");
    util_check(kvr_drain_on(&z.reg->peer[r12].drain)
               && kvr_drain_over(&z.reg->peer[r12].drain, 1500)
               && !kvr_drain_on(&z.reg->peer[b].drain), "draining by address");
    util_check(kvr_get(&z.reg->peer[r1].engine.waiting) == 0,
               "waiting requests by rank");

    kvr_drain_end(&z.reg->peer[a].drain);
    kvr_registry_share(z.reg, a);
    util_check(!kvr_drain_on(&z.reg->peer[r12].drain), "used again");

    zone_free(&z);
}


/* size of a zone with its peers, without lines */
static size_t
memory(uint32_t max_peers, uint32_t processes)
{
    return kvr_registry_size(max_peers)
           + kvr_history_size(kvr_registry_max_members(max_peers))
           + kvr_index_size(LINES, max_peers)
           + kvr_load_size(processes, kvr_registry_columns(max_peers));
}


/* bytes of another peer */
static size_t
memory_each(uint32_t processes)
{
    return (memory(KVR_PEERS, processes) - memory(KVR_PEERS / 2, processes))
           / (KVR_PEERS / 2);
}


/*
 * As in docs/setup.md: 512 peers take at most 1 MB, without the rows of
 * processes, whose number can vary.
 */
TEST(test_registry_memory)
{
    size_t    each, row;
    uint32_t  processes;

    each = memory_each(0);

    util_note("a peer takes %zu bytes, 512 take %zu", each, 512 * each);
    util_check(each == 2024, "a peer takes %zu bytes", each);
    util_check(each * 512 <= 1 << 20, "512 take %zu", each * 512);

    for (processes = 1; processes <= 128; processes *= 2) {
        row = memory_each(processes) - each;
        util_check(row / processes == 32 || row / processes == 33,
                   "%u processes take %zu bytes of a peer", processes, row);
    }
}
