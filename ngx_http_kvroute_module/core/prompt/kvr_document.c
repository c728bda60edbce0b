
/*
 * Copyright (C) kvroute contributors
 */


#include "core/prompt/kvr_canon.h"
#include "core/prompt/kvr_document.h"


/*
 * Any table of random words does; it is no secret.  Word i - 1 is kvr_mix() of
 * the constant + i and of i, odd: as an expression, so that it is constant.
 */

#define kvr_gear_mul(a, b)                                                    \
    ((unsigned __int128) ((a) ^ 0x9e3779b97f4a7c15ULL)                        \
     * ((b) ^ 0xe7037ed1a0b428dbULL))

#define kvr_gear_fold(m)  ((uint64_t) ((m) ^ (m) >> 64) | 1)

#define kvr_gear_1(i)                                                         \
    kvr_gear_fold(kvr_gear_mul(0x6b76726f757465ULL + (i), (uint64_t) (i)))

#define kvr_gear_4(i)                                                         \
    kvr_gear_1(i), kvr_gear_1((i) + 1), kvr_gear_1((i) + 2),                  \
    kvr_gear_1((i) + 3)

#define kvr_gear_16(i)                                                        \
    kvr_gear_4(i), kvr_gear_4((i) + 4), kvr_gear_4((i) + 8),                  \
    kvr_gear_4((i) + 12)

#define kvr_gear_64(i)                                                        \
    kvr_gear_16(i), kvr_gear_16((i) + 16), kvr_gear_16((i) + 32),             \
    kvr_gear_16((i) + 48)

static const uint64_t  kvr_document_gear[] = {
    kvr_gear_64(1), kvr_gear_64(65), kvr_gear_64(129), kvr_gear_64(193)
};

_Static_assert(kvr_nelts(kvr_document_gear) == 256, "kvr_document_gear");


/* one place in so many is an end: documents of about 1.5 KB on the average */
#define KVR_DOCUMENT_MASK  0x3ffULL

/* what is shorter is found by accident */
#define KVR_DOCUMENT_LEAST  64


static void kvr_document_end(kvr_documents_t *c);


void
kvr_document_init(kvr_documents_t *c, const uint8_t *secret,
    kvr_digest_pt digest)
{
    c->secret = secret;
    c->digest = digest;
    c->offset = 0;
    c->hash = 0;
    c->fill = 0;
    c->n = 0;
}


void
kvr_document_put(kvr_documents_t *c, const uint8_t *data, size_t len)
{
    uint8_t          ch;
    uint64_t         hash;
    const uint8_t   *end;
    const uint64_t  *gear;

    if (c->n == KVR_DOCUMENT_COUNT) {
        return;
    }

    gear = kvr_document_gear;
    hash = c->hash;

    for (end = data + len; data < end; data++) {
        ch = *data;

        if (kvr_unlikely(ch == KVR_CANON_MESSAGE || ch == KVR_CANON_PART)
            && c->fill)
        {
            kvr_document_end(c);
            hash = 0;
        }

        c->text[c->fill++] = ch;

        if (c->fill < KVR_DOCUMENT_MIN - 64) {
            continue;
        }

        hash = (hash << 1) + gear[ch];

        if (c->fill < KVR_DOCUMENT_MIN) {
            continue;
        }

        /* a blank line is written as an escape here, as in JSON */

        if ((hash >> 54 & KVR_DOCUMENT_MASK) == 0
            || c->fill == KVR_DOCUMENT_MAX
            || (ch == 'n' && memcmp(&c->text[c->fill - 4], "\\n\\n", 4) == 0))
        {
            kvr_document_end(c);
            hash = 0;
        }
    }

    c->hash = hash;
}


void
kvr_document_finish(kvr_documents_t *c)
{
    kvr_document_end(c);
    c->hash = 0;
}


void
kvr_document_tap(void *data, const uint8_t *p, size_t len)
{
    kvr_document_put(data, p, len);
}


void
kvr_document_place(kvr_documents_t *c, uint64_t root, uint64_t offset)
{
    uint32_t  i;

    for (i = 0; i < c->n; i++) {
        c->document[i].digest = kvr_mix(root + 1, c->document[i].digest);
        c->document[i].start += offset;
    }
}


static void
kvr_document_end(kvr_documents_t *c)
{
    kvr_document_t  *document;

    if (c->fill >= KVR_DOCUMENT_LEAST && c->n < KVR_DOCUMENT_COUNT) {

        document = &c->document[c->n++];

        document->digest = c->digest(c->secret, c->text, c->fill);
        document->start = c->offset;
        document->len = c->fill;
    }

    c->offset += c->fill;
    c->fill = 0;
}
