
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_DOCUMENT_H_INCLUDED_
#define _KVR_DOCUMENT_H_INCLUDED_


/*
 * Documents: parts of a prompt that stay the same when they move.  Many
 * questions share them, in another order or after other text.  The canonical
 * text is cut at the start of a message or a part, at blank lines, and where a
 * rolling hash of the last 64 bytes has a certain form ("gear" hashing, as in
 * FastCDC).  So an edit changes only the documents that it touches.
 */


#include "core/hash/kvr_block.h"


#define KVR_DOCUMENT_MIN    512
#define KVR_DOCUMENT_MAX    8192
#define KVR_DOCUMENT_COUNT  1024   /* of a prompt; the rest is not cut */


typedef struct {
    uint64_t           digest;     /* keyed */
    uint64_t           start;      /* offset in the stream */
    uint32_t           len;
} kvr_document_t;


typedef struct {
    const uint8_t     *secret;
    kvr_digest_pt      digest;

    uint64_t           offset;     /* of the next byte of the stream */
    uint64_t           hash;       /* rolling */
    uint32_t           fill;       /* bytes of the current document */
    uint32_t           n;

    kvr_document_t     document[KVR_DOCUMENT_COUNT];
    uint8_t            text[KVR_DOCUMENT_MAX];
} kvr_documents_t;


/* Starts a stream; the secret is that of the blocks. */
void kvr_document_init(kvr_documents_t *c, const uint8_t *secret,
    kvr_digest_pt digest);

/* Reads the next bytes. */
void kvr_document_put(kvr_documents_t *c, const uint8_t *data, size_t len);

/* Ends the last document. */
void kvr_document_finish(kvr_documents_t *c);

/* kvr_document_put() as the tap of a stream of blocks. */
void kvr_document_tap(void *data, const uint8_t *p, size_t len);

/*
 * Adds the offset of the stream in the prompt.  Mixes the root into the digests
 * to make them keys of the index: models and tenants do not share documents.
 */
void kvr_document_place(kvr_documents_t *c, uint64_t root, uint64_t offset);


#endif /* _KVR_DOCUMENT_H_INCLUDED_ */
