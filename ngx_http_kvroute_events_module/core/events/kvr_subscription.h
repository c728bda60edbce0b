
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SUBSCRIPTION_H_INCLUDED_
#define _KVR_SUBSCRIPTION_H_INCLUDED_


/*
 * A connection to a publisher of KV events, or to its replay socket: messages
 * and events out of the bytes that came.
 *
 *     published  [topic, seq, payload]
 *     replayed   ["", seq, payload], or ["", topic, seq, payload]; the last has
 *                seq 2^64 - 1 and an empty payload
 *
 * seq is a number of eight bytes, big-endian.  The payload is the last frame,
 * seq the one before it.
 *
 * A message is told before its payload is read.  So the caller may leave off
 * there, and go on when what was missed has been replayed: with the bytes that
 * were not read, wherever they are by then.  Anywhere else the bytes must stay
 * where they are until AGAIN.
 *
 * What is no such message, or has a payload that is no batch of events, is
 * passed over, and told as BAD; the connection can go on.
 */


#include "core/events/kvr_kvevent.h"
#include "core/events/kvr_zmtp.h"


#define KVR_SUBSCRIPTION_END  UINT64_MAX     /* seq after the last replayed */


/* what kvr_subscription_read() has found */
typedef enum {
    KVR_SUBSCRIPTION_AGAIN = 0,  /* all bytes are read */
    KVR_SUBSCRIPTION_OPEN,       /* the handshake is done */
    KVR_SUBSCRIPTION_ALIVE,      /* the other side has answered a PING */
    KVR_SUBSCRIPTION_MESSAGE,    /* seq: its payload is next */
    KVR_SUBSCRIPTION_EVENT,      /* reader.event */
    KVR_SUBSCRIPTION_DONE,       /* the message is over */
    KVR_SUBSCRIPTION_BAD,        /* likewise, and some of it was not read */
    KVR_SUBSCRIPTION_FAILED      /* zmtp.error */
} kvr_subscription_e;


typedef struct {
    kvr_zmtp_t            zmtp;
    kvr_kvevent_reader_t  reader;

    const uint8_t        *piece;     /* of the payload, and its end */
    const uint8_t        *end;

    uint64_t              seq;
    uint64_t              next_seq;  /* as its bytes come */
    uint32_t              seq_len;   /* bytes of it; more than 8: it is none */
    unsigned              payload:1; /* the frame is one */
    unsigned              skip:1;    /* it is not read */
    unsigned              over:1;    /* all of its batch was */
    unsigned              seq_read:1;  /* the message has a number */
    unsigned              bad:1;
} kvr_subscription_t;


void kvr_subscription_init(kvr_subscription_t *s, kvr_zmtp_role_e role,
    const void *topic, size_t len);

/*
 * Reads; *p is moved on.  To be called until it says AGAIN or FAILED, or until
 * the caller leaves off after MESSAGE.
 */
kvr_subscription_e kvr_subscription_read(kvr_subscription_t *s,
    const uint8_t **p, const uint8_t *end);

/* after MESSAGE: its events are not wanted */
static inline void
kvr_subscription_skip(kvr_subscription_t *s)
{
    s->skip = 1;
}


#endif /* _KVR_SUBSCRIPTION_H_INCLUDED_ */
