
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _PACK_H_INCLUDED_
#define _PACK_H_INCLUDED_


/* MessagePack and frames of ZMTP, written for the tests of what reads them. */


#include "util.h"

#define PACK_BUF  util_buf_t
#define PACK_PUT  util_put

#include "../msgpack.h"


/* a random value with all that is in it, about so deep */
void pack_any(util_buf_t *b, util_rng_t *r, unsigned depth);

/* a frame, its flags those of ZMTP but for LONG */
void pack_frame(util_buf_t *b, unsigned flags, const void *data, size_t len);

/* greeting and READY of a socket of this type */
void pack_handshake(util_buf_t *b, const char *type);

/* a message of three frames */
void pack_message(util_buf_t *b, const char *topic, uint64_t seq,
    const util_buf_t *payload);


#endif /* _PACK_H_INCLUDED_ */
