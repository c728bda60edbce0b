
/*
 * Copyright (C) kvroute contributors
 */


#include "core/share/kvr_share_batch.h"
#include "core/share/kvr_share_index.h"
#include "core/hot/kvr_hot.h"

#define XXH_INLINE_ALL
#include <xxhash.h>


#define KVR_SHARE_BATCH_MAGIC   0x6572616873726b76ULL

/* places in the head, in words */
#define KVR_SHARE_BATCH_CHECK   1
#define KVR_SHARE_BATCH_INFO    2
#define KVR_SHARE_BATCH_FINGER  3
#define KVR_SHARE_BATCH_HOST    4
#define KVR_SHARE_BATCH_NUMBER  5
#define KVR_SHARE_BATCH_TITLE   6
#define KVR_SHARE_BATCH_HEAD    (KVR_SHARE_BATCH_TITLE + KVR_SHARE_NAME / 8)


static int kvr_share_batch_good(const uint8_t *p, size_t len, uint32_t npeers);
static int kvr_share_batch_record(const kvr_share_record_t *r);


static inline uint64_t
kvr_share_batch_word_at(const uint8_t *p, size_t n)
{
    uint64_t  word;

    memcpy(&word, p + n * 8, 8);

    return word;
}


void
kvr_share_batch_key(kvr_share_key_t *key, const uint8_t *secret,
    uint32_t format)
{
    struct {
        char      label[16];
        uint64_t  block;
        uint64_t  format;
    } all = { "kvroute share", KVR_BLOCK, format };

    key->secret = secret;
    key->fingerprint = XXH3_64bits_withSecret(&all, sizeof(all), secret,
                                              KVR_SECRET_LEN);
}


uint64_t
kvr_share_batch_peer(const kvr_share_key_t *key, const uint8_t *name,
    size_t len)
{
    return kvr_mix(key->fingerprint,
                   XXH3_64bits_withSecret(name, len, key->secret,
                                          KVR_SECRET_LEN));
}


void
kvr_share_batch_begin(kvr_share_writer_t *w, void *buf, size_t size,
    const uint64_t *digest)
{
    memset(w->peer, 0, sizeof(w->peer));

    w->word = buf;
    w->digest = digest;
    w->max = (uint32_t) (size / 8);
    w->n = KVR_SHARE_BATCH_HEAD;
    w->npeers = 0;
}


uint32_t
kvr_share_batch_place(kvr_share_writer_t *w, uint32_t peer)
{
    if (w->peer[peer] == 0 && w->digest[peer] && w->n < w->max) {
        w->placed[w->npeers] = (uint16_t) peer;
        w->peer[peer] = (uint16_t) ++w->npeers;
        w->max--;
    }

    return w->peer[peer];
}


void
kvr_share_batch_accept(kvr_share_writer_t *w, uint32_t n)
{
    uint32_t   place;
    uint64_t  *head;

    head = &w->word[w->n];
    place = kvr_share_batch_place(w, *head >> 8 & (KVR_PEERS - 1));

    /* a peer without a name is left out: its slot was freed */

    if (place) {
        *head = kvr_share_head(*head & UINT8_MAX, place - 1, n - 1);
        w->n += n;
    }
}


int
kvr_share_batch_put(kvr_share_writer_t *w, const uint64_t *words, uint32_t n)
{
    if (w->max - w->n < n + 1) {
        return 0;
    }

    memcpy(&w->word[w->n], words, n * 8);
    kvr_share_batch_accept(w, n);

    return 1;
}


void
kvr_share_batch_known(kvr_share_writer_t *w, uint64_t *words, uint32_t n)
{
    words[0] = kvr_share_head(KVR_SHARE_KNOWN, 0, n - 1);

    memcpy(&w->word[w->n], words, n * 8);
    w->n += n;
}


size_t
kvr_share_batch_finish(kvr_share_writer_t *w, const kvr_share_key_t *key,
    uint64_t host, uint64_t number, const uint8_t name[KVR_SHARE_NAME],
    unsigned flags)
{
    uint32_t  i;

    for (i = 0; i < w->npeers; i++) {
        w->word[w->n++] = w->digest[w->placed[i]];
    }

    w->word[0] = KVR_SHARE_BATCH_MAGIC;
    w->word[KVR_SHARE_BATCH_INFO] = KVR_SHARE_VERSION | flags << 8
                                    | w->npeers << 16 | (uint64_t) w->n << 32;
    w->word[KVR_SHARE_BATCH_FINGER] = key->fingerprint;
    w->word[KVR_SHARE_BATCH_HOST] = host;
    w->word[KVR_SHARE_BATCH_NUMBER] = number;

    memcpy(&w->word[KVR_SHARE_BATCH_TITLE], name, KVR_SHARE_NAME);

    w->word[KVR_SHARE_BATCH_CHECK] =
        XXH3_64bits_withSecret(&w->word[KVR_SHARE_BATCH_INFO],
                               (w->n - KVR_SHARE_BATCH_INFO) * 8, key->secret,
                               KVR_SECRET_LEN);

    return (size_t) w->n * 8;
}


kvr_share_e
kvr_share_batch_open(kvr_share_reader_t *r, const kvr_share_key_t *key,
    const uint8_t *data, size_t len)
{
    size_t    i;
    uint64_t  info;

    memset(r, 0, sizeof(kvr_share_reader_t));

    if (len < 8 * (KVR_SHARE_BATCH_INFO + 1) || (uintptr_t) data % 8
        || kvr_share_batch_word_at(data, 0) != KVR_SHARE_BATCH_MAGIC)
    {
        return KVR_SHARE_NONE;
    }

    info = kvr_share_batch_word_at(data, KVR_SHARE_BATCH_INFO);

    if ((info & UINT8_MAX) != KVR_SHARE_VERSION) {
        return KVR_SHARE_OTHER;
    }

    if (len > KVR_SHARE_MAX || len != (size_t) (info >> 32) * 8
        || len < 8 * KVR_SHARE_BATCH_HEAD)
    {
        return KVR_SHARE_LENGTH;
    }

    r->host = kvr_share_batch_word_at(data, KVR_SHARE_BATCH_HOST);
    r->number = kvr_share_batch_word_at(data, KVR_SHARE_BATCH_NUMBER);
    r->flags = info >> 8 & UINT8_MAX;
    r->npeers = info >> 16 & UINT16_MAX;

    memcpy(r->name, data + 8 * KVR_SHARE_BATCH_TITLE, KVR_SHARE_NAME);

    for (i = 0; i < KVR_SHARE_NAME; i++) {
        if (i == KVR_SHARE_NAME - 1 || r->name[i] <= ' ' || r->name[i] > '~'
            || r->name[i] == '"' || r->name[i] == '\\')
        {
            memset(r->name + i, 0, KVR_SHARE_NAME - i);
            break;
        }
    }

    if (kvr_share_batch_word_at(data, KVR_SHARE_BATCH_FINGER)
        != key->fingerprint)
    {
        return KVR_SHARE_FOREIGN;
    }

    if (kvr_share_batch_word_at(data, KVR_SHARE_BATCH_CHECK)
        != XXH3_64bits_withSecret(data + 8 * KVR_SHARE_BATCH_INFO,
                                  len - 8 * KVR_SHARE_BATCH_INFO, key->secret,
                                  KVR_SECRET_LEN))
    {
        return KVR_SHARE_DAMAGED;
    }

    if (r->npeers > KVR_PEERS
        || len / 8 - KVR_SHARE_BATCH_HEAD < r->npeers
        || r->host == 0 || r->number == 0)
    {
        return KVR_SHARE_LENGTH;
    }

    r->p = data + 8 * KVR_SHARE_BATCH_HEAD;
    r->end = data + len - 8 * r->npeers;
    r->peers = r->end;

    return kvr_share_batch_good(r->p, (size_t) (r->end - r->p), r->npeers)
           ? KVR_SHARE_OK : KVR_SHARE_LENGTH;
}


/* whether all records are complete and name a peer of the batch */
static int
kvr_share_batch_good(const uint8_t *p, size_t len, uint32_t npeers)
{
    size_t    n;
    uint64_t  head;

    for (len /= 8; len; p += 8 * n, len -= n) {

        head = kvr_share_batch_word_at(p, 0);
        n = 1 + (size_t) (head >> 32);

        if (n > len || (head >> 8 & UINT16_MAX) >= npeers) {
            return 0;
        }
    }

    return 1;
}


int
kvr_share_batch_next(kvr_share_reader_t *r, kvr_share_record_t *record)
{
    uint64_t  head;

    while (r->p < r->end) {

        head = kvr_share_batch_word_at(r->p, 0);

        record->type = head & UINT8_MAX;
        record->peer = head >> 8 & UINT16_MAX;
        record->n = head >> 32;

        r->p += 8;

        record->word = (const uint64_t *) (const void *) r->p;

        r->p += 8 * (size_t) record->n;

        if (record->n <= KVR_SHARE_WORDS && kvr_share_batch_record(record)) {
            return 1;
        }
    }

    return 0;
}


/* whether its type is known and its values are valid */
static int
kvr_share_batch_record(const kvr_share_record_t *r)
{
    uint32_t  i, earlier, from, first;

    switch (r->type) {

    case KVR_SHARE_UPDATE:

        if (r->n < 2) {
            return 0;
        }

        from = kvr_share_upper(r->word[0]);
        first = kvr_share_lower(r->word[1]);

        if (from > first || first > KVR_SHARE_ENTRIES
            || kvr_share_lower(r->word[0]) > KVR_SHARE_UNITS)
        {
            return 0;
        }

        earlier = kvr_share_index_count(from, first);

        return earlier <= r->n - 2 && r->n - 2 <= KVR_SHARE_VALUES;

    case KVR_SHARE_UNDO:
        return r->n >= 1 && r->n - 1 <= KVR_SHARE_VALUES
               && kvr_share_upper(r->word[0]) <= KVR_SHARE_ENTRIES;

    case KVR_SHARE_BIND:
        return r->n == 2;

    case KVR_SHARE_FLOOR:
        return r->n == 1;

    case KVR_SHARE_LOAD:
        return r->n == 3;

    case KVR_SHARE_KNOWN:
        return r->n % 2 == 0;

    case KVR_SHARE_HOT:

        for (i = 0; i < r->n; i++) {
            if (r->word[i] >= KVR_HOT_KEYS) {
                return 0;
            }
        }

        return r->n > 0 && r->n <= KVR_HOT_POINTS;

    default:
        return 0;
    }
}


uint64_t
kvr_share_batch_digest(const kvr_share_reader_t *r, uint32_t peer)
{
    return kvr_share_batch_word_at(r->peers, peer);
}
