
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_kvevent: payloads of each engine and version, built as the engines send
 * them, and invalid ones.
 */


#include "pack.h"
#include "core/events/kvr_kvevent.h"


#define S   KVR_KVEVENT_STORED
#define R   KVR_KVEVENT_REMOVED
#define C   KVR_KVEVENT_CLEARED
#define U   KVR_KVEVENT_UNKNOWN


typedef struct {
    unsigned       n;
    kvr_kvevent_t  event[8];
} found_t;


static kvr_kvevent_e
take(const uint8_t *p, size_t len, found_t *found)
{
    kvr_kvevent_e  rc;

    static kvr_kvevent_reader_t  r;

    kvr_kvevent_begin(&r, p, len);

    found->n = 0;

    while ((rc = kvr_kvevent_read(&r)) == KVR_KVEVENT_FOUND) {
        util_check(found->n < kvr_nelts(found->event), "too many");
        found->event[found->n++] = r.event;
    }

    return rc;
}


/* reads a payload, then each truncation of it, which must be invalid */
static void
all(const util_buf_t *b, kvr_kvevent_e rc, found_t *found)
{
    size_t    n;
    found_t   cut;
    uint8_t  *p;

    for (n = 0; n < b->len; n++) {
        util_note("%zu bytes", n);

        p = malloc(n + 1);
        memcpy(p + 1, b->p, n);
        util_check(take(p + 1, n, &cut) == KVR_KVEVENT_INVALID, "cut");
        free(p);
    }

    util_check(take(b->p, b->len, found) == rc, "whole");
}


static void
tokens(util_buf_t *b, unsigned n)
{
    unsigned  i;

    pack_array(b, n);

    for (i = 0; i < n; i++) {
        pack_uint(b, i * 977 % 128000);
    }
}


static uint64_t
session(const char *id)
{
    return kvr_kvevent_session((const uint8_t *) id, strlen(id));
}


/* vLLM from 0.24 on: an event is a map, and default values are omitted */
TEST(test_kvevent_vllm_maps)
{
    found_t     f;
    util_buf_t  b = { 0 };

    pack_array(&b, 3);
    pack_float(&b, 1795319195.604890);
    pack_array(&b, 3);

    pack_map(&b, 1);
    pack_str(&b, "type");
    pack_str(&b, "AllBlocksCleared");

    pack_map(&b, 12);
    pack_str(&b, "type");
    pack_str(&b, "BlockStored");
    pack_str(&b, "block_hashes");
    pack_array(&b, 2);
    pack_uint(&b, 10221731738298255167ULL);
    pack_uint(&b, 10289418034272722273ULL);
    pack_str(&b, "parent_block_hash");
    pack_nil(&b);
    pack_str(&b, "token_ids");
    tokens(&b, 64);
    pack_str(&b, "block_size");
    pack_uint(&b, 32);
    pack_str(&b, "lora_id");
    pack_nil(&b);
    pack_str(&b, "medium");
    pack_str(&b, "GPU");
    pack_str(&b, "lora_name");
    pack_nil(&b);
    pack_str(&b, "extra_keys");
    pack_array(&b, 2);
    pack_array(&b, 1);
    pack_str(&b, "tenant-a");
    pack_nil(&b);
    pack_str(&b, "group_idx");
    pack_uint(&b, 0);
    pack_str(&b, "kv_cache_spec_kind");
    pack_str(&b, "full_attention");
    pack_str(&b, "session_id");
    pack_str(&b, "a session of a client, with a name longer than is kept");

    pack_map(&b, 4);
    pack_str(&b, "type");
    pack_str(&b, "BlockRemoved");
    pack_str(&b, "block_hashes");
    pack_array(&b, 1);
    pack_uint(&b, 17358267998548965696ULL);
    pack_str(&b, "medium");
    pack_str(&b, "GPU");
    pack_str(&b, "group_idx");
    pack_uint(&b, 0);

    pack_uint(&b, 0);

    all(&b, KVR_KVEVENT_DONE, &f);

    ck_assert_uint_eq(f.n, 3);
    ck_assert(f.event[0].type == C);
    ck_assert(f.event[1].type == S);
    ck_assert(f.event[1].rooted && !f.event[1].elsewhere && !f.event[1].part);
    ck_assert_uint_eq(f.event[1].blocks, 2);
    ck_assert_uint_eq(f.event[1].block, 32);
    ck_assert_uint_eq(f.event[1].tokens, 64);
    ck_assert_uint_eq(f.event[1].hash[0], 10221731738298255167ULL);
    ck_assert_uint_eq(f.event[1].last, 10289418034272722273ULL);
    ck_assert_uint_eq(f.event[1].session,
                      session("a session of a client, with a name longer than "
                              "is kept"));
    ck_assert(f.event[2].type == R);
    ck_assert_uint_eq(f.event[2].session, 0);
    ck_assert_uint_eq(f.event[2].hash[0], 17358267998548965696ULL);

    util_drop(&b);
}


/* the memory tier of an event */
TEST(test_kvevent_media)
{
    unsigned    i;
    found_t     f;
    util_buf_t  b;

    static const struct {
        const char  *medium;
        unsigned     elsewhere, below;

    } media[] = {
        { "GPU", 0, 0 }, { "device", 0, 0 }, { "CPU", 1, 1 },
        { "CPU_PINNED", 1, 1 }, { "STORAGE", 1, 1 }, { "DISK", 1, 1 },
        { "EXTERNAL", 1, 0 }, { "XPU", 1, 0 }, { "", 1, 0 }
    };

    for (i = 0; i < kvr_nelts(media); i++) {
        memset(&b, 0, sizeof(b));

        pack_array(&b, 2);
        pack_float(&b, 1);
        pack_array(&b, 1);
        pack_map(&b, 3);
        pack_str(&b, "type");
        pack_str(&b, "BlockStored");
        pack_str(&b, "block_hashes");
        pack_array(&b, 1);
        pack_uint(&b, 7);
        pack_str(&b, "medium");
        pack_str(&b, media[i].medium);

        all(&b, KVR_KVEVENT_DONE, &f);

        util_check(f.n == 1 && f.event[0].elsewhere == media[i].elsewhere
                   && f.event[0].below == media[i].below,
                   "%s", media[i].medium);

        util_drop(&b);
    }
}


/*
 * A session has the same digest in an event and in a request, at any length;
 * if one byte differs, the digest differs.
 */
TEST(test_kvevent_session)
{
    found_t     f;
    unsigned    len, i;
    uint64_t    id, seen[101];
    char        text[102];
    util_buf_t  b;

    for (len = 0; len < kvr_nelts(seen); len++) {

        util_note("%u bytes", len);

        memset(text, 'a', len);
        text[len] = '\0';
        memset(&b, 0, sizeof(b));

        pack_array(&b, 2);
        pack_float(&b, 1);
        pack_array(&b, 2);

        pack_map(&b, 2);
        pack_str(&b, "type");
        pack_str(&b, "BlockStored");
        pack_str(&b, "session_id");
        pack_str(&b, text);

        /* an invalid one */

        pack_map(&b, 2);
        pack_str(&b, "session_id");

        if (len % 2) {
            pack_uint(&b, len);
        } else {
            pack_nil(&b);
        }

        pack_str(&b, "type");
        pack_str(&b, "BlockStored");

        all(&b, KVR_KVEVENT_DONE, &f);
        util_drop(&b);

        ck_assert_uint_eq(f.n, 2);
        ck_assert_uint_eq(f.event[1].session, 0);

        id = session(text);
        seen[len] = id;

        ck_assert_uint_eq(f.event[0].session, id);
        ck_assert((id == 0) == (len == 0));

        for (i = 0; i < len; i++) {
            util_check(seen[i] != id, "as of %u bytes", i);
        }

        for (i = 0; i < len; i++) {
            text[i] ^= 1;
            util_check(session(text) != id, "byte %u", i);
            text[i] ^= 1;
        }
    }
}


/* vLLM up to 0.23 and SGLang: arrays, of any length */
TEST(test_kvevent_arrays)
{
    found_t     f;
    util_buf_t  b = { 0 };

    pack_array(&b, 2);
    pack_float(&b, 1);
    pack_array(&b, 5);

    pack_array(&b, 6);                           /* 0.9 */
    pack_str(&b, "BlockStored");
    pack_array(&b, 1);
    pack_int(&b, -9223372036854775803LL);
    pack_int(&b, -5);
    tokens(&b, 16);
    pack_uint(&b, 16);
    pack_nil(&b);

    pack_array(&b, 9);                           /* 0.12, with sha256 */
    pack_str(&b, "BlockStored");
    pack_array(&b, 1);
    pack_bin(&b, "0123456789abcdef01234567\0\0\0\0\0\0\1\2", 32);
    pack_bin(&b, "0123456789abcdef01234567\0\0\0\0\0\0\0\7", 32);
    tokens(&b, 16);
    pack_uint(&b, 16);
    pack_nil(&b);
    pack_str(&b, "CPU");
    pack_str(&b, "adapter");
    pack_nil(&b);

    pack_array(&b, 3);
    pack_str(&b, "BlockRemoved");
    pack_array(&b, 2);
    pack_uint(&b, 7);
    pack_uint(&b, 8);
    pack_str(&b, "CPU_PINNED");

    pack_array(&b, 2);
    pack_str(&b, "BlockRemoved");
    pack_array(&b, 1);
    pack_uint(&b, 9);

    pack_array(&b, 1);
    pack_str(&b, "AllBlocksCleared");

    all(&b, KVR_KVEVENT_DONE, &f);

    ck_assert_uint_eq(f.n, 5);
    ck_assert(f.event[0].type == S && !f.event[0].rooted);
    ck_assert_uint_eq(f.event[0].parent, (uint64_t) -5);
    ck_assert_uint_eq(f.event[0].hash[0], 0x8000000000000005ULL);
    ck_assert(!f.event[0].elsewhere);
    ck_assert_uint_eq(f.event[1].hash[0], 0x0102);
    ck_assert_uint_eq(f.event[1].parent, 7);
    ck_assert(f.event[1].elsewhere);
    ck_assert(f.event[2].type == R && f.event[2].elsewhere);
    ck_assert_uint_eq(f.event[2].blocks, 2);
    ck_assert(f.event[3].type == R && !f.event[3].elsewhere);
    ck_assert(f.event[4].type == C);

    util_drop(&b);
}


/* a batch that is a map; its order, unknown names and kinds */
TEST(test_kvevent_tolerant)
{
    found_t     f;
    util_buf_t  b = { 0 };

    pack_map(&b, 4);
    pack_str(&b, "data_parallel_rank");
    pack_uint(&b, 3);
    pack_str(&b, "events");
    pack_array(&b, 4);

    pack_map(&b, 6);
    pack_str(&b, "locality");
    pack_map(&b, 1);
    pack_str(&b, "type");
    pack_str(&b, "BlockRemoved");
    pack_str(&b, "block_size");
    pack_uint(&b, 64);
    pack_str(&b, "group_idx");
    pack_uint(&b, 2);
    pack_str(&b, "block_hashes");
    pack_array(&b, 3);
    pack_uint(&b, 1);
    pack_array(&b, 2);
    pack_uint(&b, 7);
    pack_nil(&b);
    pack_uint(&b, 3);
    pack_str(&b, "kv_cache_spec_kind");
    pack_str(&b, "sliding_window");
    pack_str(&b, "type");
    pack_str(&b, "BlockStored");

    pack_map(&b, 2);
    pack_str(&b, "type");
    pack_str(&b, "BlockMoved");
    pack_uint(&b, 17);
    pack_str(&b, "block_hashes");

    pack_map(&b, 0);
    pack_array(&b, 0);

    pack_str(&b, "ts");
    pack_float(&b, 2);
    pack_str(&b, "events_of_another_kind");
    pack_array(&b, 1);
    pack_nil(&b);

    all(&b, KVR_KVEVENT_DONE, &f);

    ck_assert_uint_eq(f.n, 4);
    ck_assert(f.event[0].type == S && f.event[0].part);
    ck_assert_uint_eq(f.event[0].group, 2);
    ck_assert_uint_eq(f.event[0].block, 64);
    ck_assert_uint_eq(f.event[0].blocks, 2);
    ck_assert_uint_eq(f.event[0].last, 3);
    ck_assert(f.event[1].type == U && f.event[1].blocks == 0);
    ck_assert(f.event[2].type == U);
    ck_assert(f.event[3].type == U);

    util_drop(&b);
}


/* SGLang sends its load on the same socket */
TEST(test_kvevent_load)
{
    found_t     f;
    unsigned    i;
    util_buf_t  b = { 0 };

    pack_array(&b, 7);
    pack_str(&b, "LoadStat");

    for (i = 0; i < 5; i++) {
        pack_uint(&b, i * 1000);
    }

    pack_nil(&b);

    all(&b, KVR_KVEVENT_DONE, &f);
    ck_assert_uint_eq(f.n, 0);

    util_drop(&b);
}


TEST(test_kvevent_many_hashes)
{
    found_t     f;
    unsigned    i;
    util_buf_t  b = { 0 };

    pack_array(&b, 2);
    pack_float(&b, 1);
    pack_array(&b, 1);
    pack_array(&b, 2);
    pack_str(&b, "BlockRemoved");
    pack_array(&b, 3000);

    for (i = 0; i < 3000; i++) {
        pack_uint(&b, i);
    }

    ck_assert(take(b.p, b.len, &f) == KVR_KVEVENT_DONE);
    ck_assert_uint_eq(f.event[0].blocks, 3000);
    ck_assert_uint_eq(f.event[0].last, 2999);
    ck_assert_uint_eq(f.event[0].hash[KVR_KVEVENT_HASHES - 1],
                      KVR_KVEVENT_HASHES - 1);

    util_drop(&b);
}


TEST(test_kvevent_garbage)
{
    static const struct {
        const char     *bytes;
        size_t          len;
        kvr_kvevent_e   rc;
    } cases[] = {
        { "\xc1", 1, KVR_KVEVENT_INVALID },
        { "HTTP/1.1 400 Bad Request\r\n", 26, KVR_KVEVENT_INVALID },
        { "{\"events\":[]}", 13, KVR_KVEVENT_INVALID },
        { "\x92\x01\x91\x01", 4, KVR_KVEVENT_INVALID },       /* no event */
        { "\x92\x01\x91\xa5" "event", 9, KVR_KVEVENT_INVALID },
        { "\x92\x01\x90\x00", 4, KVR_KVEVENT_INVALID },       /* too long */
        { "\x92\x01\xdd\xff\xff\xff\xff", 7, KVR_KVEVENT_INVALID },
        { "\x92\x01\x91\x92\xab" "BlockStored\xdd\xff\xff\xff\xff\x00", 22,
          KVR_KVEVENT_INVALID },
        { "\x90", 1, KVR_KVEVENT_DONE },
        { "\x92\x01\xc0", 3, KVR_KVEVENT_DONE },
        { "", 0, KVR_KVEVENT_INVALID }
    };

    found_t   f;
    unsigned  i;

    for (i = 0; i < kvr_nelts(cases); i++) {
        util_note("case %u", i);

        ck_assert_uint_eq(take((const uint8_t *) cases[i].bytes, cases[i].len,
                               &f), cases[i].rc);
    }
}
