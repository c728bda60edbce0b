
/*
 * Copyright (C) kvroute contributors
 */


#include "core/prompt/kvr_canon.h"
#include "core/prompt/kvr_document.h"


/*
 * Returns the random word of a byte for the rolling hash.  Bytes of a document
 * do not depend on each other here, so this costs about as much as a table.
 */
#define kvr_document_gear(ch)                                                 \
    (kvr_mix(0x6b76726f757465ULL + (ch) + 1, (uint64_t) (ch) + 1) | 1)

/* one position in 1,024 ends a document: about 1.5 KB on average */
#define KVR_DOCUMENT_MASK  0x3ffULL

/* shorter documents match by accident */
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
    uint8_t         ch;
    uint64_t        hash;
    const uint8_t  *end;

    if (c->n == KVR_DOCUMENT_COUNT) {
        return;
    }

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

        hash = (hash << 1) + kvr_document_gear(ch);

        if (c->fill < KVR_DOCUMENT_MIN) {
            continue;
        }

        /* a blank line is escaped, as in JSON */

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
