/*
 * Publishes decisions of hosts that have no requests, so that the cost of
 * reading them can be measured at a given rate, through a store.
 *
 *     teller ADDRESS PORT STREAM KEY HOSTS RATE SECONDS SERVER...
 *
 * KEY is a file with the zone's secret.  Each host makes RATE decisions a
 * second. A decision continues a conversation of at most 128 entries by 8 new
 * ones, at one of the servers; it is counted in flight, answered and ended.  A
 * batch is added every 5 ms, as kvroute_share does by default.  Prints the
 * number of decisions and of batches.
 */

#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench/model/zone.h"
#include "core/share/kvr_share.h"
#include "core/state/kvr_zone_snapshot.h"


#define HOSTS     16
#define SESSIONS  256
#define ENTRIES   128
#define NEW       8
#define INTERVAL  5                      /* ms */


typedef struct {
    kvs_zone_t         zone;
    kvr_share_self_t   self;
    kvr_share_owner_t  owner;
    uint32_t           session[SESSIONS];            /* entries so far */
    uint64_t           chain[SESSIONS][ENTRIES];
    double             owed;             /* decisions due */
} teller_t;


static teller_t  teller[HOSTS];
static uint8_t   secret[KVR_SECRET_LEN];
static uint64_t  state, buffer[KVR_SHARE_BATCH / 8];
static uint64_t  decisions, batches;


static uint64_t
number(void)
{
    state += 0x9e3779b97f4a7c15ULL;

    return kvr_mix(state, 1) | 1ULL << 40;
}


static void
fail(const char *what)
{
    fprintf(stderr, "teller: %s\n", what);
    exit(1);
}


static double
clocked(void)
{
    struct timespec  t;

    clock_gettime(CLOCK_MONOTONIC, &t);

    return (double) t.tv_sec + (double) t.tv_nsec / 1e9;
}


static void
decide(teller_t *t, uint32_t servers, uint64_t now)
{
    uint32_t            i, s, n, peer, held;
    kvr_zone_t         *z;
    kvr_index_undo_t    undo;
    kvr_hot_keys_t      keys;

    z = &t->zone.core;
    s = (uint32_t) (number() % SESSIONS);
    held = t->session[s];

    if (held + NEW > ENTRIES) {
        held = 0;
    }

    n = held + NEW;
    peer = s % servers;

    for (i = held; i < n; i++) {
        t->chain[s][i] = number();
    }

    t->session[s] = n;

    /* as after an insert that changed no older entries */

    memset(&undo, 0, sizeof(kvr_index_undo_t));
    undo.matched = held ? kvr_chain_depth(held - 1) : 0;
    undo.first = held;
    undo.moved = kvr_chain_depth(n - 1) - undo.matched;
    undo.peer = (uint16_t) peer;

    kvr_share_publish_update(z, t->self.share, t->chain[s], n, &undo);

    kvr_hot_keys(t->chain[s], held, &keys);
    kvr_hot_add(z->hot, &keys, now);
    kvr_share_publish_hot(z, t->self.share, &keys, peer);

    kvr_load_add(z->load, 0, peer, decisions % 2 ? 1 : -1, 0);

    decisions++;
}


static void
begin(teller_t *t, uint32_t i, char **server, uint32_t n)
{
    uint32_t     k;
    kvr_zone_t  *z;

    kvs_zone_create(&t->zone, 1, 0, 0);

    z = &t->zone.core;
    t->self.share = kvs_zone_alloc(sizeof(kvr_share_t));

    kvr_share_init(t->self.share, number());

    for (k = 0; k < n; k++) {
        if (kvr_registry_peer(z->registry, z->load, 0, z->index, server[k],
                              strlen(server[k]), 1 << 20)
            != k)
        {
            fail("unexpected slot of a server");
        }

        /* loads never go below 0 */

        kvr_load_add(z->load, 0, k, 1000, 1000000);
    }

    t->self.zone = z;
    t->self.lease = 3000;
    snprintf((char *) t->self.name, KVR_SHARE_NAME, "teller%u", i);
    kvr_share_batch_key(&t->self.key, secret, KVR_ZONE_SNAPSHOT_FORMAT);
}


int
main(int argc, char **argv)
{
    FILE           *f;
    double          rate, began, now, seconds;
    size_t          len;
    uint32_t        i, n, hosts, servers;
    uint64_t        turn;
    teller_t       *t;
    redisReply     *reply;
    redisContext   *c;
    struct timespec pause;

    if (argc < 9) {
        fail("ADDRESS PORT STREAM KEY HOSTS RATE SECONDS SERVER...");
    }

    f = fopen(argv[4], "rb");

    if (f == NULL || fread(secret, 1, sizeof(secret), f) != sizeof(secret)) {
        fail("cannot read the key");
    }

    fclose(f);

    hosts = (uint32_t) atoi(argv[5]);
    rate = atof(argv[6]);
    seconds = atof(argv[7]);
    servers = (uint32_t) argc - 8;
    state = (uint64_t) time(NULL) << 20;

    if (hosts == 0 || hosts > HOSTS) {
        fail("bad number of hosts");
    }

    for (i = 0; i < hosts; i++) {
        begin(&teller[i], i, argv + 8, servers);
    }

    c = redisConnect(argv[1], atoi(argv[2]));

    if (c == NULL || c->err) {
        fail("cannot connect to the store");
    }

    began = clocked();

    /* hosts publish at different times, as independent hosts would */

    for (turn = 1; ; turn++) {

        now = clocked();

        if (now - began > seconds) {
            break;
        }

        t = &teller[turn % hosts];
        t->owed += rate * INTERVAL / 1000;

        for ( /* void */ ; t->owed >= 1; t->owed -= 1) {
            decide(t, servers, (uint64_t) (now * 1000));
        }

        if (kvr_share_due(&t->self, &t->owner, (uint64_t) (now * 1000))) {
            len = kvr_share_frame(&t->self, &t->owner, buffer, 0,
                                  (uint64_t) (now * 1000),
                                  (uint32_t) time(NULL));

            reply = redisCommand(c, "XADD %s MAXLEN ~ 8192 * b %b", argv[3],
                                 buffer, len);

            if (reply == NULL || reply->type == REDIS_REPLY_ERROR) {
                fail("the store rejects a batch");
            }

            freeReplyObject(reply);
            kvr_share_acked(&t->self, &t->owner);
            batches++;
        }

        now = began + (double) turn * INTERVAL / 1000 / hosts - clocked();

        if (now > 0) {
            n = (uint32_t) (now * 1e9);
            pause.tv_sec = n / 1000000000;
            pause.tv_nsec = n % 1000000000;
            nanosleep(&pause, NULL);
        }
    }

    redisFree(c);

    printf("%lu %lu\n", (unsigned long) decisions, (unsigned long) batches);

    return 0;
}
