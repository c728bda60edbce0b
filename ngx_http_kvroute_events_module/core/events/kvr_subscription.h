
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SUBSCRIPTION_H_INCLUDED_
#define _KVR_SUBSCRIPTION_H_INCLUDED_


/*
 * A connection to a publisher of KV events, or to its replay socket: turns the
 * bytes received into messages and events.
 *
 *     published  [topic, seq, payload]
 *     replayed   ["", seq, payload], or ["", topic, seq, payload]; the last has
 *                seq 2^64 - 1 and an empty payload
 *
 * seq is a number of eight bytes, big-endian.  The payload is the last frame,
 * seq the one before it.
 *
 * MESSAGE is returned before the payload is read.  The caller then sets
 * zmtp.memory for it, of zmtp.size bytes, or leaves NULL: then the message is
 * skipped.  It
 * may stop there and continue later with the bytes that were not read.  Events
 * are returned when the payload is complete.
 *
 * A message without a number, or whose payload is not a batch of events, ends
 * with BAD; the connection can continue.
 */


#include "core/events/kvr_kvevent.h"
#include "core/events/kvr_zmtp.h"


#define KVR_SUBSCRIPTION_END  UINT64_MAX     /* seq after the last replayed */


/* results of kvr_subscription_read() */
typedef enum {
    KVR_SUBSCRIPTION_AGAIN = 0,  /* all bytes are read */
    KVR_SUBSCRIPTION_OPEN,       /* the handshake is done */
    KVR_SUBSCRIPTION_ALIVE,      /* the other side has answered a PING */
    KVR_SUBSCRIPTION_MESSAGE,    /* seq: its payload is next */
    KVR_SUBSCRIPTION_EVENT,      /* reader.event */
    KVR_SUBSCRIPTION_DONE,       /* the message has ended */
    KVR_SUBSCRIPTION_BAD,        /* likewise, but some of it is invalid */
    KVR_SUBSCRIPTION_FAILED      /* zmtp.error */
} kvr_subscription_e;


typedef struct {
    kvr_zmtp_t            zmtp;
    kvr_kvevent_reader_t  reader;

    uint64_t              seq;
    unsigned              payload:1; /* it is being received */
    unsigned              reading:1; /* events of a complete payload */
    unsigned              seq_read:1;  /* the message has a number */
} kvr_subscription_t;


void kvr_subscription_init(kvr_subscription_t *s, kvr_zmtp_role_e role);

/*
 * Reads and moves *p on.  The caller repeats it until AGAIN or FAILED, or stops
 * after MESSAGE.
 */
kvr_subscription_e kvr_subscription_read(kvr_subscription_t *s,
    const uint8_t **p, const uint8_t *end);


#endif /* _KVR_SUBSCRIPTION_H_INCLUDED_ */
