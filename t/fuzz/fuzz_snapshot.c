
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The input is the file of a zone without its head: lines, peers with their
 * clocks, lengths.  The second run corrects length and digest, as a writer with
 * the key could.  Accepted data can be looked up and written again, and the
 * written file is accepted.
 */


#include "util_registry.h"
#include "util.h"
#include "core/state/kvr_zone_snapshot.h"


#define LINES  256
#define PEERS  300
#define HEAD   24
#define NOW    1700000000ULL


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


static uint8_t     secret[KVR_SECRET_LEN];
static uint8_t     slice[KVR_ZONE_SNAPSHOT_SLICE];
static kvr_zone_t  zone[2];


/* Clears it in place. */
static void
clear(kvr_zone_t *z)
{
    if (z->index == NULL) {
        z->registry = util_registry(PEERS);
        z->index = util_zeroed(kvr_index_size(LINES, PEERS));
    }

    util_registry_clear(z->registry, PEERS);
    memset((void *) z->index, 0, kvr_index_size(LINES, PEERS));

    kvr_index_init(z->index, LINES, PEERS);
}


static void
save(kvr_zone_t *z, util_buf_t *file)
{
    size_t               n;
    kvr_zone_snapshot_t  s;

    kvr_zone_snapshot_begin(&s, z, secret);

    while (!s.done) {
        n = kvr_zone_snapshot_next(&s, NOW, slice);
        util_put(file, slice, n);
    }
}


static void
try(const util_buf_t *file)
{
    uint32_t                  i, generation, matched[KVR_PEERS];
    uint64_t                  chain[8];
    util_buf_t                again = { 0 };
    kvr_zone_snapshot_read_t  r;

    clear(&zone[0]);

    if (kvr_zone_snapshot_read(&zone[0], secret, file->p, file->len, NOW, &r)
        != KVR_ZONE_SNAPSHOT_OK)
    {
        for (i = 0; i < LINES; i++) {
            util_check(kvr_get(&zone[0].index->line[i].key) == 0, "line %u", i);
        }

        return;
    }

    util_check(r.lines <= LINES * 4 || r.lines <= file->len, "lines");

    for (i = 0; i < LINES; i += 8) {
        chain[0] = kvr_get(&zone[0].index->line[i].key);
        chain[1] = kvr_get(&zone[0].index->line[i + 1].key);

        (void) kvr_index_lookup(zone[0].index, chain, 2, util_set(UINT64_MAX),
                                matched);
        (void) kvr_index_bound(zone[0].index, chain[0], NOW, &generation);
        kvr_index_note(zone[0].index, chain[0] + 2, i % PEERS);
    }

    save(&zone[0], &again);
    clear(&zone[1]);

    util_check(kvr_zone_snapshot_read(&zone[1], secret, again.p, again.len,
                                      NOW, &r)
               == KVR_ZONE_SNAPSHOT_OK, "the written file is read");

    util_drop(&again);
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t      i, tail;
    uint64_t    word;
    util_buf_t  empty = { 0 }, file = { 0 };

    for (i = 0; i < KVR_SECRET_LEN; i++) {
        secret[i] = (uint8_t) (i * 167 + 13);
    }

    clear(&zone[0]);
    save(&zone[0], &empty);

    /* unchanged, after a good head */

    util_put(&file, empty.p, HEAD);
    util_put(&file, data, size);
    try(&file);

    /* input too short for a tail is lines without peers */

    tail = empty.len - HEAD;

    if (size < tail) {
        util_put(&file, empty.p + HEAD, tail);
    }

    word = NOW;
    memcpy(file.p + file.len - 32, &word, 8);
    word = file.len - HEAD - tail;
    memcpy(file.p + file.len - 16, &word, 8);
    word = XXH3_64bits_withSecret(file.p, file.len - 8, secret,
                                  KVR_SECRET_LEN);
    memcpy(file.p + file.len - 8, &word, 8);

    try(&file);

    util_drop(&file);
    util_drop(&empty);

    return 0;
}


#include "main.h"
