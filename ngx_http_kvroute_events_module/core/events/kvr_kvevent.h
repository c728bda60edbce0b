
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_KVEVENT_H_INCLUDED_
#define _KVR_KVEVENT_H_INCLUDED_


/*
 * Reads the payload of a message of KV events, event by event.  It is
 * MessagePack:
 *
 *     a batch    [ts, [event, ...], rank], or a map with "events"
 *     an event   ["BlockStored", hashes, parent, tokens, block_size, lora_id,
 *                 medium, lora_name, extra_keys, group, kind, ...]
 *                ["BlockRemoved", hashes, medium, group]
 *                ["AllBlocksCleared"]
 *                or a map with "type" and the names of these fields
 *     a hash     an integer, or bytes, of which the last eight count
 *     a session  a string, "session_id", in maps only
 *
 * vLLM writes arrays up to 0.23, then maps; SGLang writes arrays.  A missing
 * field has its default, an unknown one is skipped, and maps have any order.
 *
 * Tokens are counted, not read.
 */


#include "core/events/kvr_msgpack.h"


/* hashes of an event that are kept; further ones are counted */
#define KVR_KVEVENT_HASHES  512


typedef enum {
    KVR_KVEVENT_UNKNOWN = 0,
    KVR_KVEVENT_STORED,
    KVR_KVEVENT_REMOVED,
    KVR_KVEVENT_CLEARED
} kvr_kvevent_type_e;


typedef struct {
    kvr_kvevent_type_e  type;
    unsigned            rooted:1;    /* no parent: a prompt begins here */
    unsigned            elsewhere:1; /* not in the memory of the GPU, */
    unsigned            below:1;     /* but in host memory or on a disk */
    unsigned            part:1;      /* of layers with a window or a state */
    uint32_t            group;       /* of layers */
    uint32_t            block;       /* tokens of a block; 0: not reported */
    uint64_t            blocks;      /* number of hashes */
    uint64_t            tokens;      /* number of token ids */
    uint64_t            parent;
    uint64_t            last;        /* the last hash */
    uint64_t            session;     /* kvr_kvevent_session() of the request
                                        that stored it; 0: not reported */
    uint64_t            hash[KVR_KVEVENT_HASHES];
} kvr_kvevent_t;


/* results of kvr_kvevent_read() */
typedef enum {
    KVR_KVEVENT_FOUND = 0,           /* event */
    KVR_KVEVENT_DONE,                /* no further event */
    KVR_KVEVENT_INVALID              /* not a batch, or cut off */
} kvr_kvevent_e;


typedef struct {
    kvr_msgpack_t       msgpack;
    uint64_t            events;      /* still to be read */
    uint64_t            behind;      /* values of the batch behind them */
    kvr_kvevent_t       event;
} kvr_kvevent_reader_t;


/*
 * Returns a digest of a session's id, which is never 0; 0 if the id is empty.
 */
uint64_t kvr_kvevent_session(const uint8_t *id, size_t len);

/* Begins to read a payload.  It must not move until all events are read. */
void kvr_kvevent_begin(kvr_kvevent_reader_t *r, const uint8_t *p, size_t len);

/* Reads the next event. */
kvr_kvevent_e kvr_kvevent_read(kvr_kvevent_reader_t *r);


#endif /* _KVR_KVEVENT_H_INCLUDED_ */
