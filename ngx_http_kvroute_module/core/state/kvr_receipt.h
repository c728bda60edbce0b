
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_RECEIPT_H_INCLUDED_
#define _KVR_RECEIPT_H_INCLUDED_


/*
 * Records of decisions.  The last ones of a zone are kept in a ring in shared
 * memory, which any process writes without a lock.  A record has hashes and
 * sizes, and no text; of the client's data only the trace id, as a number.
 */


#include "core/policy/kvr_policy.h"


#define KVR_RECEIPTS  128       /* in the ring, a power of two */


/* 8-byte words without gaps, as it is copied word by word */
typedef struct {
    uint64_t           number;      /* from 1 */
    uint64_t           time;        /* ms since the epoch */
    uint64_t           hash;        /* of the whole prompt; keyed */
    uint64_t           prompt;      /* bytes */
    uint64_t           matched;
    uint64_t           best;
    uint32_t           ttft;        /* ms + 1, 0: not yet known */
    uint32_t           stream;      /* of ttft */
    uint16_t           peer;
    uint16_t           upstream;
    uint16_t           policy;
    uint16_t           reason;
    uint64_t           trace[2];    /* id of the trace, 0 0: none */
    uint32_t           waited;      /* ms in the queue */
    uint32_t           tokens[3];   /* of the prompt, cached, generated; plus
                                       1, 0: not reported */
} kvr_receipt_t;

#define KVR_RECEIPT_WORDS  (sizeof(kvr_receipt_t) / sizeof(uint64_t))
#define KVR_RECEIPT_TTFT   (offsetof(kvr_receipt_t, ttft) / sizeof(uint64_t))
#define KVR_RECEIPT_USAGE  (offsetof(kvr_receipt_t, waited) / sizeof(uint64_t))

_Static_assert(sizeof(kvr_receipt_t) == 12 * sizeof(uint64_t), "receipt");


/*
 * An entry of the ring.  Its number, the first word, is 0 while it is written.
 * A reader uses an entry only if the number is the same before and after.
 */
typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t   word[KVR_RECEIPT_WORDS];
} kvr_receipt_entry_t;


typedef struct {
    _Atomic uint64_t     last;      /* last number that was used */
    kvr_receipt_entry_t  entry[KVR_RECEIPTS];
} kvr_receipts_t;


/*
 * Writes a record except number, ttft, stream and tokens.  Returns the number.
 */
uint64_t kvr_receipt_put(kvr_receipts_t *ring, const kvr_receipt_t *receipt);

/*
 * Reads the trace id of a "traceparent" header (W3C Trace Context): version, 32
 * hex digits, 16 hex digits, flags.  KVR_DECLINED, and zeros, if the value is
 * invalid; of a later version only this part is read.
 */
int kvr_receipt_trace(const uint8_t *value, size_t len, uint64_t trace[2]);

/*
 * Adds the time to the first event, and whether it was one of a stream, if the
 * record still exists.
 */
void kvr_receipt_ttft(kvr_receipts_t *ring, uint64_t number, uint32_t ms,
    int stream);

/* Adds what the engine reported, -1: nothing, if the record still exists. */
void kvr_receipt_usage(kvr_receipts_t *ring, uint64_t number,
    int64_t prompt, int64_t cached, int64_t output);

/*
 * Reads the record with a number.  KVR_DECLINED if it was overwritten or is
 * being written.
 */
int kvr_receipt_get(kvr_receipts_t *ring, uint64_t number,
    kvr_receipt_t *receipt);


#endif /* _KVR_RECEIPT_H_INCLUDED_ */
