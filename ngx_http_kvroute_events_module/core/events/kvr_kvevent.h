
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_KVEVENT_H_INCLUDED_
#define _KVR_KVEVENT_H_INCLUDED_


/*
 * The payload of a message of KV events, read event by event from bytes that
 * may be cut anywhere.  It is MessagePack:
 *
 *     a batch    [ts, [event, ...], rank], or a map with "events"
 *     an event   ["BlockStored", hashes, parent, tokens, block_size, lora_id,
 *                 medium, lora_name, extra_keys, group, kind, ...]
 *                ["BlockRemoved", hashes, medium, group]
 *                ["AllBlocksCleared"]
 *                or a map with "type" and the names of these fields
 *     a hash     an integer, or bytes, of which the last eight count
 *     a session  a string; of the maps only, as "session_id"
 *
 * vLLM writes arrays up to 0.23, then maps; SGLang arrays, TensorRT-LLM maps.
 * What is left out has its default; what is not known is passed over, so other
 * fields may be added, or come in another order.
 *
 * Tokens themselves are not read: only how many there are.
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
    unsigned            rooted:1;    /* it has no parent: a prompt begins */
    unsigned            elsewhere:1; /* not in the memory of the GPU */
    unsigned            part:1;      /* layers that see a window, or a state */
    uint32_t            group;       /* of layers */
    uint32_t            block;       /* tokens of a block, 0: not said */
    uint64_t            blocks;      /* hashes, all of them */
    uint64_t            tokens;      /* token ids */
    uint64_t            parent;
    uint64_t            last;        /* the last hash */
    uint64_t            session;     /* of the request that stored it, as of
                                        kvr_kvevent_session(); 0: not told */
    uint64_t            hash[KVR_KVEVENT_HASHES];
} kvr_kvevent_t;


/* what kvr_kvevent_read() has found */
typedef enum {
    KVR_KVEVENT_AGAIN = 0,           /* all bytes are read */
    KVR_KVEVENT_FOUND,               /* event */
    KVR_KVEVENT_DONE,                /* the batch is over */
    KVR_KVEVENT_GARBLED              /* it is no batch: pass over the rest */
} kvr_kvevent_e;


typedef struct {
    kvr_msgpack_t       msgpack;

    uint8_t             state;
    uint8_t             field;
    unsigned            map:1;       /* the batch is a map, */
    unsigned            event_map:1; /* the event is one */
    unsigned            value:1;     /* of the pair whose key was read */
    unsigned            skipping:1;
    uint32_t            place;       /* of a field in its array */
    uint64_t            items;       /* that the batch still has, */
    uint64_t            events;      /* events still to come, */
    uint64_t            fields;      /* fields of the event, */
    uint64_t            hashes;      /* hashes of the field */

    kvr_kvevent_t       event;
} kvr_kvevent_reader_t;


/*
 * What a session's id is known by: its length, its first 32 bytes and its last
 * eight; 0 if it is empty, and never else.  An id that has to be told apart from
 * others has what differs there.
 */
uint64_t kvr_kvevent_session(const uint8_t *id, size_t len);

/* begins a payload */
void kvr_kvevent_begin(kvr_kvevent_reader_t *r);

/* reads; *p is moved on.  To be called until it says something but FOUND. */
kvr_kvevent_e kvr_kvevent_read(kvr_kvevent_reader_t *r, const uint8_t **p,
    const uint8_t *end);


#endif /* _KVR_KVEVENT_H_INCLUDED_ */
