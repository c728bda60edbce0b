
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_BLOCK_H_INCLUDED_
#define _KVR_BLOCK_H_INCLUDED_


/*
 * A stream of canonical prompt bytes.  It is cut into blocks of KVR_BLOCK
 * bytes, and each block is reduced to a keyed 64-bit digest that does not
 * depend on its position.  The position enters when the digests are chained,
 * after the whole body was read and the root is known.  So the sections of a
 * body can come in any order.
 *
 * A stream can be marked once and rewound to the mark later.  There are two
 * stages: the marked one keeps its bytes while the other one is filled.
 */


#include "core/base/kvr_chain.h"


#define KVR_SECRET_LEN  192

/* a text kernel always copies 64 bytes to a stage, also at its end */
#define KVR_STAGE_LEN   (KVR_BLOCK + 64)


typedef uint64_t (*kvr_digest_pt)(const uint8_t *secret, const uint8_t *p,
    size_t len);


typedef struct {
    uint64_t          *out;       /* NULL: digests are folded into one */
    size_t             n;         /* digests so far */
    size_t             max;       /* room in out[], in digests */

    uint64_t           fold;
    uint64_t           bytes;     /* in finished blocks */

    uint32_t           fill;      /* bytes staged, < KVR_BLOCK */
    uint32_t           marked;    /* stage that keeps its bytes, or 2 */
    uint32_t           cur;       /* stage in use */

    const uint8_t     *secret;    /* KVR_SECRET_LEN bytes of entropy */
    kvr_digest_pt      digest;

    uint8_t            stage[2][KVR_STAGE_LEN];
} kvr_block_t;


typedef struct {
    size_t             n;
    uint64_t           bytes;
    uint32_t           fill;
    uint32_t           cur;
} kvr_block_mark_t;


/*
 * Starts a stream.  Its digests go to out[0 .. max), or are folded into a
 * single value if out is NULL.  Digests that do not fit are dropped; bytes
 * still counts their blocks.
 */
static inline void
kvr_block_init(kvr_block_t *b, const uint8_t *secret, kvr_digest_pt digest,
    uint64_t *out, size_t max)
{
    memset(b, 0, offsetof(kvr_block_t, stage));

    b->out = out;
    b->max = max;
    b->marked = 2;
    b->secret = secret;
    b->digest = digest;
}


static inline void
kvr_block_add(kvr_block_t *b, uint64_t digest, size_t len)
{
    b->bytes += len;

    if (b->out == NULL) {
        b->fold = kvr_mix(b->fold, digest);
        b->n++;

    } else if (kvr_likely(b->n < b->max)) {
        b->out[b->n++] = digest;
    }
}


/* Empties the stage after its block was digested; a marked stage is kept. */
static inline void
kvr_block_restage(kvr_block_t *b)
{
    if (kvr_unlikely(b->cur == b->marked)) {
        b->cur ^= 1;
    }

    b->fill = 0;
}


/* Appends len bytes. */
void kvr_block_put(kvr_block_t *b, const void *data, size_t len);

/* Appends one byte. */
static inline void
kvr_block_byte(kvr_block_t *b, uint8_t c)
{
    if (kvr_likely(b->fill < KVR_BLOCK - 1)) {
        b->stage[b->cur][b->fill++] = c;
        return;
    }

    kvr_block_put(b, &c, 1);
}

/* Digests the staged bytes as a short block. */
void kvr_block_finish(kvr_block_t *b);

/* Marks the stream, see kvr_block_rewind(). */
static inline void
kvr_block_mark(kvr_block_t *b, kvr_block_mark_t *mark)
{
    mark->n = b->n;
    mark->bytes = b->bytes;
    mark->fill = b->fill;
    mark->cur = b->cur;

    b->marked = b->cur;
}

/* Removes all bytes put since the mark; allowed once per mark. */
void kvr_block_rewind(kvr_block_t *b, kvr_block_mark_t *mark);


#endif /* _KVR_BLOCK_H_INCLUDED_ */
