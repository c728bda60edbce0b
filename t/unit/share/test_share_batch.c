
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_share_batch: a batch is read as it was written; a changed batch is
 * rejected, with the right reason.
 */


#include "util.h"
#include "core/index/kvr_index.h"
#include "core/hot/kvr_hot.h"
#include "core/share/kvr_share_batch.h"
#include "core/share/kvr_share_index.h"


static uint64_t            memory[KVR_SHARE_BATCH / 8];
static uint8_t             secret[2][KVR_SECRET_LEN];
static kvr_share_key_t     key;
static kvr_share_record_t  record;

/* by slot of the peer */
static uint64_t            digest[KVR_PEERS];

static const uint8_t       name[KVR_SHARE_NAME] = "host-one";


static void
begin(void)
{
    unsigned  i;

    for (i = 0; i < KVR_SECRET_LEN; i++) {
        secret[0][i] = (uint8_t) (i * 167 + 13);
        secret[1][i] = (uint8_t) (i * 59 + 7);
    }

    kvr_share_batch_key(&key, secret[0], 1);

    for (i = 0; i < 3; i++) {
        digest[10 + i] = 100 + i;
    }
}


/* a batch of three peers with one record of each type */
static size_t
make(void)
{
    uint64_t            words[8];
    kvr_share_writer_t  w;

    kvr_share_batch_begin(&w, memory, sizeof(memory), digest);

    words[0] = kvr_share_head(KVR_SHARE_UPDATE, 11, 6);
    words[1] = kvr_share_pair(5, 9);
    words[2] = kvr_share_pair(12, 0);
    words[3] = 1;
    words[4] = 2;
    words[5] = 3;
    words[6] = 4;
    util_check(kvr_share_batch_put(&w, words, 7), "room");

    words[0] = kvr_share_head(KVR_SHARE_UNDO, 12, 2);
    util_check(kvr_share_batch_put(&w, words, 3), "room");

    words[0] = kvr_share_head(KVR_SHARE_BIND, 10, 2);
    util_check(kvr_share_batch_put(&w, words, 3), "room");

    words[0] = kvr_share_head(KVR_SHARE_FLOOR, 10, 1);
    util_check(kvr_share_batch_put(&w, words, 2), "room");

    words[0] = kvr_share_head(KVR_SHARE_LOAD, 10, 3);
    util_check(kvr_share_batch_put(&w, words, 4), "room");

    words[0] = kvr_share_head(KVR_SHARE_KNOWN, 12, 2);
    util_check(kvr_share_batch_put(&w, words, 3), "room");

    words[0] = kvr_share_head(KVR_SHARE_HOT, 11, 2);
    words[1] = 3;
    words[2] = KVR_HOT_KEYS - 1;
    util_check(kvr_share_batch_put(&w, words, 3), "room");

    /* a peer without a name is omitted */

    words[0] = kvr_share_head(KVR_SHARE_FLOOR, 1, 1);
    util_check(kvr_share_batch_put(&w, words, 2), "left out");

    return kvr_share_batch_finish(&w, &key, 77, 5, name, KVR_SHARE_WANT);
}


TEST(test_share_batch_round)
{
    size_t              len;
    unsigned            i;
    kvr_share_reader_t  r;

    static const unsigned  peers[] = { 11, 12, 10, 10, 10, 12, 11 };
    static const unsigned  places[] = { 0, 1, 2, 2, 2, 1, 0 };

    len = make();

    util_check(kvr_share_batch_open(&r, &key, (uint8_t *) memory, len)
               == KVR_SHARE_OK, "good");
    util_check(r.host == 77 && r.number == 5 && r.npeers == 3
               && r.flags == KVR_SHARE_WANT, "head");
    util_check(memcmp(r.name, name, KVR_SHARE_NAME) == 0, "name");

    for (i = 0; i < kvr_nelts(peers); i++) {
        util_check(kvr_share_batch_next(&r, &record), "record %u", i);
        util_check(record.type == KVR_SHARE_UPDATE + i, "type %u", i);
        util_check(record.peer == places[i], "peer of %u", i);
        util_check(kvr_share_batch_digest(&r, record.peer) == 90 + peers[i],
                   "digest");

        if (i == 0) {
            util_check(record.n == 6 && record.word[5] == 4
                       && kvr_share_upper(record.word[0]) == 9, "lesson");
        }
    }

    util_check(!kvr_share_batch_next(&r, &record), "no further record");
}


TEST(test_share_batch_full)
{
    unsigned            i;
    uint64_t            words[101] = { 0 };
    kvr_share_writer_t  w;

    kvr_share_batch_begin(&w, memory, 8000, digest);

    words[0] = kvr_share_head(KVR_SHARE_UPDATE, 10, 100);

    for (i = 0; kvr_share_batch_put(&w, words, 101); i++) { /* void */ }

    util_check(i == (8000 / 8 - 11) / 101, "%u records", i);
    util_check(kvr_share_batch_finish(&w, &key, 1, 1, name, 0)
               == 8 * (11 + 101 * i), "length");
}


/* each bit of it */
TEST(test_share_batch_changed)
{
    size_t              i, len;
    uint8_t            *p;
    kvr_share_e         rc;
    kvr_share_reader_t  r;

    len = make();
    p = (uint8_t *) memory;

    for (i = 0; i < len * 8; i++) {
        p[i / 8] ^= (uint8_t) (1 << i % 8);

        rc = kvr_share_batch_open(&r, &key, p, len);
        util_check(rc > KVR_SHARE_REPEATED, "bit %zu: %d", i, rc);

        p[i / 8] ^= (uint8_t) (1 << i % 8);
    }

    for (i = 0; i < len; i++) {
        rc = kvr_share_batch_open(&r, &key, p, i);
        util_check(rc == KVR_SHARE_NONE || rc == KVR_SHARE_LENGTH,
                   "%zu bytes: %d", i, rc);
    }
}


TEST(test_share_batch_foreign)
{
    size_t              len;
    uint8_t            *p;
    kvr_share_key_t     other;
    kvr_share_reader_t  r;

    len = make();
    p = (uint8_t *) memory;

    kvr_share_batch_key(&other, secret[1], 1);
    util_check(kvr_share_batch_open(&r, &other, p, len) == KVR_SHARE_FOREIGN,
               "another key");
    util_check(r.host == 77 && memcmp(r.name, name, KVR_SHARE_NAME) == 0,
               "sender");

    kvr_share_batch_key(&other, secret[0], 2);
    util_check(kvr_share_batch_open(&r, &other, p, len) == KVR_SHARE_FOREIGN,
               "another version of prompts");

    /* hosts with different keys have different names for a peer */

    kvr_share_batch_key(&other, secret[1], 1);
    util_check(kvr_share_batch_peer(&key, (uint8_t *) "a:1", 3)
               != kvr_share_batch_peer(&other, (uint8_t *) "a:1", 3), "peer");

    p[16]++;
    util_check(kvr_share_batch_open(&r, &key, p, len) == KVR_SHARE_OTHER,
               "another version");
    p[16]--;

    p[24]++;
    p[8 * 6 + 2] = '\n';
    util_check(kvr_share_batch_open(&r, &key, p, len) == KVR_SHARE_FOREIGN,
               "foreign");
    util_check(strcmp((char *) r.name, "ho") == 0, "no control characters");
}


/* a host with the key sends wrong lengths, peers or positions */
TEST(test_share_batch_lies)
{
    unsigned            i;
    uint64_t            words[8];
    kvr_share_e         rc;
    kvr_share_writer_t  w;
    kvr_share_reader_t  r;

    static const struct {
        uint64_t     head, a, b;
        kvr_share_e  open;
    } lies[] = {
        { kvr_share_head(KVR_SHARE_UPDATE, 0, 3), 0, 0, KVR_SHARE_LENGTH },
        { kvr_share_head(KVR_SHARE_UPDATE, 0, UINT32_MAX), 0, 0,
          KVR_SHARE_LENGTH },
        { kvr_share_head(KVR_SHARE_UPDATE, 1, 2), 0, 0, KVR_SHARE_LENGTH },
        { kvr_share_head(KVR_SHARE_UPDATE, 255, 2), 0, 0, KVR_SHARE_LENGTH },
        { kvr_share_head(KVR_SHARE_UPDATE, 0, 1), 0, 0, KVR_SHARE_OK },
        { kvr_share_head(KVR_SHARE_UPDATE, 0, 1), 0,
          kvr_share_head(KVR_SHARE_FLOOR, 0, 1), KVR_SHARE_LENGTH },
        { kvr_share_head(KVR_SHARE_UPDATE, 0, 2), kvr_share_pair(1, 0), 24,
          KVR_SHARE_OK },
        { kvr_share_head(KVR_SHARE_UPDATE, 0, 2), kvr_share_pair(1, 9), 8,
          KVR_SHARE_OK },
        { kvr_share_head(KVR_SHARE_UPDATE, 0, 2), UINT32_MAX, 0,
          KVR_SHARE_OK },
        { kvr_share_head(KVR_SHARE_UPDATE, 0, 2),
          kvr_share_pair(1, UINT32_MAX), UINT32_MAX, KVR_SHARE_OK },
        { kvr_share_head(KVR_SHARE_UNDO, 0, 2),
          kvr_share_pair(1, UINT32_MAX), 0, KVR_SHARE_OK },
        { kvr_share_head(KVR_SHARE_FLOOR, 0, 2), 0, 0, KVR_SHARE_OK },
        { kvr_share_head(0, 0, 2), 0, 0, KVR_SHARE_OK },
        { kvr_share_head(KVR_SHARE_HOT, 0, 0), 0, 0, KVR_SHARE_OK },
        { kvr_share_head(KVR_SHARE_HOT, 0, 2), KVR_HOT_KEYS, 0,
          KVR_SHARE_OK },
        { kvr_share_head(KVR_SHARE_HOT, 0, 2), 0, 1ULL << 32,
          KVR_SHARE_OK },
        { kvr_share_head(KVR_SHARE_TYPES, 0, 2), 0, 0, KVR_SHARE_OK },
        { kvr_share_head(255, 0, 2), 0, 0, KVR_SHARE_OK },
    };

    for (i = 0; i < kvr_nelts(lies); i++) {

        kvr_share_batch_begin(&w, memory, sizeof(memory), digest);

        words[0] = kvr_share_head(KVR_SHARE_UPDATE, 10, 2);
        words[1] = lies[i].a;
        words[2] = lies[i].b;
        (void) kvr_share_batch_put(&w, words, 3);

        /* changed after the write, so that it stays like this */

        w.word[w.n - 3] = lies[i].head;

        rc = kvr_share_batch_open(&r, &key, (uint8_t *) memory,
                                  kvr_share_batch_finish(&w, &key, 1, 1, name,
                                                         0));
        util_check(rc == lies[i].open, "lie %u: %d", i, rc);

        if (rc == KVR_SHARE_OK) {
            util_check(!kvr_share_batch_next(&r, &record), "lie %u", i);
        }
    }

    /* no peer, and no slot */

    (void) make();
    kvr_share_batch_begin(&w, memory, sizeof(memory), digest);
    util_check(kvr_share_batch_open(&r, &key, (uint8_t *) memory,
                                    kvr_share_batch_finish(&w, &key, 0, 1,
                                                           name, 0))
               == KVR_SHARE_LENGTH, "no host");
    util_check(kvr_share_batch_open(&r, &key, (uint8_t *) memory,
                                    kvr_share_batch_finish(&w, &key, 1, 0,
                                                           name, 0))
               == KVR_SHARE_LENGTH, "no number");
}


/* compares the formula of the count with the rule */
TEST(test_share_batch_told)
{
    uint32_t  i, from, end, n;

    for (end = 0; end < 200; end++) {
        for (from = 0; from <= end; from++) {

            for (n = 0, i = from; i < end; i++) {
                n += kvr_index_published(i, end) != 0;
            }

            util_check(kvr_share_index_count(from, end) == n, "%u..%u: %u",
                       from, end, n);
        }
    }
}


suite_around(begin, NULL);
