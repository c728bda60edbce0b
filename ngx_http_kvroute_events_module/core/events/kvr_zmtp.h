
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ZMTP_H_INCLUDED_
#define _KVR_ZMTP_H_INCLUDED_


/*
 * ZMTP 3, the protocol of ZeroMQ's sockets over TCP, on the connecting side: as
 * a subscriber (SUB) of a publisher, or as a DEALER that asks a ROUTER.  The
 * mechanism is NULL: no user, no encryption.
 *
 *     published  [topic, number, payload]
 *     replayed   ["", number, payload], or ["", topic, number, payload]; the
 *                last has KVR_ZMTP_REPLAYED as number and an empty payload
 *
 * The input may be cut anywhere.  Of a message only the last frame is kept, and
 * the number that the frame before it consists of: eight bytes, big-endian.
 * Bytes to be sent are in out, answers to PING too; these are left out if the
 * other side does not read.
 *
 * Formats: https://rfc.zeromq.org/spec/23/ (ZMTP 3.0) and spec/37/ (3.1).
 */


#include "core/base/kvr_core.h"


#define KVR_ZMTP_FRAME_MAX    (64 * 1024 * 1024)
#define KVR_ZMTP_COMMAND_MAX  4096
#define KVR_ZMTP_OUT          512

#define KVR_ZMTP_REPLAYED     UINT64_MAX


typedef enum {
    KVR_ZMTP_SUB = 0,
    KVR_ZMTP_DEALER
} kvr_zmtp_role_e;


/* results of kvr_zmtp_read() */
typedef enum {
    KVR_ZMTP_AGAIN = 0,          /* all bytes are read */
    KVR_ZMTP_OPEN,               /* the handshake is done */
    KVR_ZMTP_ALIVE,              /* the other side has answered a PING */
    KVR_ZMTP_LAST,               /* a last frame begins: number, size; the
                                    caller sets memory for it, or leaves NULL,
                                    and may stop there */
    KVR_ZMTP_END,                /* a message has ended; without "numbered" it
                                    had no number, and no LAST */
    KVR_ZMTP_FAILED              /* error: the connection must be closed */
} kvr_zmtp_e;


typedef struct {
    const char        *error;
    uint8_t           *memory;   /* for the last frame */
    size_t             len;      /* bytes there */

    uint64_t           number;   /* of the message */
    uint64_t           size;     /* of the frame */
    uint64_t           left;     /* bytes of this part not received yet */
    uint32_t           have;     /* bytes of it received */
    uint32_t           out_len;

    uint8_t            role;
    uint8_t            state;
    unsigned           open:1;
    unsigned           more:1;   /* another frame of the message follows */
    unsigned           numbered:1;   /* the frame before is a number */

    uint8_t            command[256];   /* first bytes of the greeting, of a
                                          head, a command or a frame */
    uint8_t            out[KVR_ZMTP_OUT];
} kvr_zmtp_t;


/* Begins with a greeting in out.  A subscriber receives all topics. */
void kvr_zmtp_init(kvr_zmtp_t *z, kvr_zmtp_role_e role);

/* Reads and moves *p on.  The caller repeats it until AGAIN or FAILED. */
kvr_zmtp_e kvr_zmtp_read(kvr_zmtp_t *z, const uint8_t **p,
    const uint8_t *end);

/* Removes the first n bytes of out, which were sent. */
void kvr_zmtp_sent(kvr_zmtp_t *z, size_t n);

/* Sends a PING, after the handshake. */
void kvr_zmtp_ping(kvr_zmtp_t *z);

/*
 * Sends the request of a DEALER: an empty frame, and a number of eight bytes.
 */
void kvr_zmtp_request(kvr_zmtp_t *z, uint64_t number);


#endif /* _KVR_ZMTP_H_INCLUDED_ */
