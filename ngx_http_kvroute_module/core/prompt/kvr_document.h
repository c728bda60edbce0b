
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_DOCUMENT_H_INCLUDED_
#define _KVR_DOCUMENT_H_INCLUDED_


/*
 * Parts of a prompt that stay the same when they move: documents that many
 * questions share, in another order or behind other text.  The canonical text
 * is cut where its content says so: where a message or a part begins, at blank
 * lines, and else where a rolling hash of the last 64 bytes has a certain form
 * ("gear" hashing, as in FastCDC).  An edit changes the documents it touches
 * and no others.
 */


#include "core/hash/kvr_block.h"


#define KVR_DOCUMENT_MIN    512
#define KVR_DOCUMENT_MAX    8192
#define KVR_DOCUMENT_COUNT  1024   /* of a prompt; the rest is not cut */


typedef struct {
    uint64_t           digest;     /* keyed */
    uint64_t           start;      /* byte of the stream where it begins */
    uint32_t           len;
} kvr_document_t;


typedef struct {
    const uint8_t     *secret;
    kvr_digest_pt      digest;

    uint64_t           offset;     /* of the next byte of the stream */
    uint64_t           hash;       /* rolling */
    uint32_t           fill;       /* bytes of the document in hand */
    uint32_t           n;

    kvr_document_t     document[KVR_DOCUMENT_COUNT];
    uint8_t            text[KVR_DOCUMENT_MAX];
} kvr_documents_t;


/* starts a stream; the secret is that of the blocks */
void kvr_document_init(kvr_documents_t *c, const uint8_t *secret,
    kvr_digest_pt digest);

/* reads on */
void kvr_document_put(kvr_documents_t *c, const uint8_t *data, size_t len);

/* the end of the stream ends a document */
void kvr_document_finish(kvr_documents_t *c);

/* kvr_document_put() as a tap of a stream of blocks */
void kvr_document_tap(void *data, const uint8_t *p, size_t len);

/*
 * Says where in the prompt the stream stands, and turns the digests into keys
 * for the index, which other models and tenants do not share: by their root.
 */
void kvr_document_place(kvr_documents_t *c, uint64_t root, uint64_t offset);


#endif /* _KVR_DOCUMENT_H_INCLUDED_ */
