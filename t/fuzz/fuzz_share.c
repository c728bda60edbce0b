
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The input is a batch of another host.  It is read unchanged, and again as
 * the records of a batch with the right head, length and digest, as a sender
 * with the key could make.  It may only change peers that the batch names, and
 * the zone must still accept look-ups, updates and batches.  There are 300
 * peers; a batch names two of them, or most, whose places take two bytes: the
 * last slots first.
 */


#include "util_registry.h"
#include "util.h"
#include "core/share/kvr_share.h"


#define LINES  256
#define PEERS  300
#define TOLD   260                       /* the first ones are never named */
#define MANY   128                       /* in the first byte: all of these */
#define LOOK   4096                      /* runs between two full checks */


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


static kvr_zone_t         zone;
static kvr_share_self_t   self;
static kvr_share_owner_t  owner;
static uint8_t            secret[KVR_SECRET_LEN];
static uint64_t           batch[KVR_SHARE_BATCH / 8];
static uint64_t           now, number;


static void
begin(void)
{
    char      name[8];
    unsigned  i;

    for (i = 0; i < KVR_SECRET_LEN; i++) {
        secret[i] = (uint8_t) (i * 167 + 13);
    }

    zone.registry = util_registry(PEERS);
    zone.load = util_zeroed(kvr_load_size(2, kvr_registry_columns(PEERS)));
    kvr_load_init(zone.load, 2, kvr_registry_columns(PEERS));
    zone.index = util_zeroed(kvr_index_size(LINES, PEERS));
    kvr_index_init(zone.index, LINES, PEERS);
    zone.hot = util_zeroed(sizeof(kvr_hot_t));
    self.share = util_zeroed(sizeof(kvr_share_t));
    zone.row = kvr_load_claim(zone.load, kvr_load_owner(1, 1), 1);

    kvr_share_init(self.share, 1);

    for (i = 0; i < PEERS; i++) {
        snprintf(name, sizeof(name), "a:%u", i);
        (void) kvr_registry_peer(zone.registry, zone.load, zone.row,
                                 zone.index, name, strlen(name), 1000);
    }

    self.zone = &zone;
    self.lease = 3000;
    kvr_share_batch_key(&self.key, secret, 1);
    kvr_share_names(&self, &owner.names, now);
}


/* peers that no batch names are unchanged */
static void
look(void)
{
    uint32_t  i, k, n, matched[KVR_PEERS] = { 0 };
    uint64_t  chain[8];

    for (i = 0; i < LINES; i += 8) {

        for (k = 0; k < 8; k++) {
            chain[k] = kvr_get(&zone.index->line[i + k].key);
        }

        (void) kvr_index_lookup(zone.index, chain, 8,
                                kvr_set_below(PEERS), matched);

        for (k = 0; k < PEERS - TOLD; k++) {
            util_check(matched[k] == 0, "peer %u has a block", k);
        }
    }

    for (k = 0; k < PEERS - TOLD; k++) {
        util_check(kvr_load_get(zone.load, k).active == 0
                   && !kvr_drain_on(&zone.registry->peer[k].drain),
                   "peer %u has changed", k);
    }

    /* and the host can still publish, within its buffer */

    do {
        n = (uint32_t) kvr_share_frame(&self, &owner, batch, 0, now, 1000);
        util_check(n <= KVR_SHARE_BATCH, "%u bytes", n);
        kvr_share_acked(&self, &owner);
    } while (kvr_get(&self.share->ring.head) != kvr_get(&self.share->ring.tail));
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t              n;
    uint32_t            i;
    kvr_share_e         rc;
    kvr_share_writer_t  w;

    if (self.share == NULL) {
        begin();
    }

    now += 10;

    /* unchanged: without the key it is ignored */

    rc = kvr_share_apply(&self, &owner, data, size, now, 1000);
    util_check(rc > KVR_SHARE_REPEATED, "%d", rc);

    /* the first byte is the host */

    kvr_share_batch_begin(&w, batch, sizeof(batch), owner.names.digest);

    for (i = 0; i < (size && (data[0] & MANY) ? TOLD : 2); i++) {
        (void) kvr_share_batch_place(&w, PEERS - 1 - i);
    }

    n = kvr_min(size / 8, w.max - w.n);

    memcpy(&w.word[w.n], data, n * 8);
    w.n += (uint32_t) n;

    rc = kvr_share_apply(&self, &owner, (uint8_t *) batch,
                         kvr_share_batch_finish(&w, &self.key,
                                                size ? 1 + data[0] % 40 : 2,
                                                ++number, self.name,
                                                size ? data[size - 1] : 0),
                         now, 1000);

    util_check(rc <= KVR_SHARE_REPEATED || rc == KVR_SHARE_LENGTH
               || rc == KVR_SHARE_CROWDED, "%d", rc);

    if (number % 64 == 0) {
        kvr_share_tick(&self, &owner, now);
        kvr_share_help_want(self.share, now);
    }

    if (number % LOOK == 1) {
        look();
    }

    return 0;
}


#include "main.h"
