
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_BLOCK_H_INCLUDED_
#define _KVR_BLOCK_H_INCLUDED_


/*
 * A stream of canonical prompt bytes, cut in blocks of KVR_BLOCK bytes, each
 * reduced to a keyed 64-bit digest that does not depend on its place.  The
 * place comes in when the digests are chained, after the whole body was read
 * and the root is known; so sections may stand in the body in any order.
 *
 * A stream can be marked once and put back to the mark later.  The staged
 * bytes of the marked moment are kept by going on in the other stage.
 */


#include "core/base/kvr_core.h"


#define KVR_BLOCK       256
#define KVR_SECRET_LEN  192

/* a text kernel copies 64 bytes at a time to a stage, the last time too */
#define KVR_STAGE_LEN   (KVR_BLOCK + 64)


typedef uint64_t (*kvr_digest_pt)(const uint8_t *secret, const uint8_t *p,
    size_t len);

/* is shown each block as it is finished */
typedef void (*kvr_tap_pt)(void *data, const uint8_t *p, size_t len);


typedef struct {
    uint64_t          *out;       /* NULL: digests are folded into one */
    size_t             n;         /* digests so far */
    size_t             max;       /* room in out[], in digests */

    uint64_t           fold;
    uint64_t           bytes;     /* in finished blocks */

    uint32_t           fill;      /* bytes staged, < KVR_BLOCK */
    uint32_t           marked;    /* stage to be left alone, or 2 */
    uint32_t           cur;       /* stage in use */

    const uint8_t     *secret;    /* KVR_SECRET_LEN bytes of entropy */
    kvr_digest_pt      digest;

    kvr_tap_pt         tap;       /* or NULL */
    void              *tap_data;

    uint8_t            stage[2][KVR_STAGE_LEN];
} kvr_block_t;


typedef struct {
    size_t             n;
    uint64_t           bytes;
    uint32_t           fill;
    uint32_t           cur;
} kvr_block_mark_t;


/*
 * Starts a stream whose digests go to out[0 .. max), or are folded to a single
 * value when out is NULL.  What does not fit in out[] is counted in bytes and
 * otherwise dropped.
 */
static inline void
kvr_block_init(kvr_block_t *b, const uint8_t *secret, kvr_digest_pt digest,
    uint64_t *out, size_t max)
{
    b->out = out;
    b->n = 0;
    b->max = max;
    b->fold = 0;
    b->bytes = 0;
    b->fill = 0;
    b->cur = 0;
    b->marked = 2;
    b->secret = secret;
    b->digest = digest;
    b->tap = NULL;
}


static inline void
kvr_block_add(kvr_block_t *b, uint64_t digest, const uint8_t *p, size_t len)
{
    b->bytes += len;

    if (kvr_unlikely(b->tap != NULL)) {
        b->tap(b->tap_data, p, len);
    }

    if (b->out == NULL) {
        b->fold = kvr_mix(b->fold, digest);
        b->n++;

    } else if (kvr_likely(b->n < b->max)) {
        b->out[b->n++] = digest;
    }
}


/* the staged block was digested: the stage is free unless it is marked */
static inline void
kvr_block_restage(kvr_block_t *b)
{
    if (kvr_unlikely(b->cur == b->marked)) {
        b->cur ^= 1;
    }
}


/* appends len bytes */
void kvr_block_put(kvr_block_t *b, const void *data, size_t len);

/* appends one byte */
static inline void
kvr_block_byte(kvr_block_t *b, uint8_t c)
{
    if (kvr_likely(b->fill < KVR_BLOCK - 1)) {
        b->stage[b->cur][b->fill++] = c;
        return;
    }

    kvr_block_put(b, &c, 1);
}

/* digests what is staged as a short block, so that the next starts a block */
void kvr_block_finish(kvr_block_t *b);

static inline void
kvr_block_mark(kvr_block_t *b, kvr_block_mark_t *mark)
{
    mark->n = b->n;
    mark->bytes = b->bytes;
    mark->fill = b->fill;
    mark->cur = b->cur;

    b->marked = b->cur;
}

/* takes back all that was put since the mark; good only once per mark */
void kvr_block_rewind(kvr_block_t *b, kvr_block_mark_t *mark);


#endif /* _KVR_BLOCK_H_INCLUDED_ */
