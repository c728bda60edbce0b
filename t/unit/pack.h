
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _PACK_H_INCLUDED_
#define _PACK_H_INCLUDED_


/* Writes MessagePack and frames of ZMTP, for the tests of their readers. */


#include "util.h"

#define PACK_BUF  util_buf_t
#define PACK_PUT  util_put

#include "../msgpack.h"


/* Adds a random value of about this depth. */
void pack_any(util_buf_t *b, util_rng_t *r, unsigned depth);

/* Adds a frame, with the flags of ZMTP except LONG. */
void pack_frame(util_buf_t *b, unsigned flags, const void *data, size_t len);

/* Adds the greeting and READY of a socket of this type. */
void pack_handshake(util_buf_t *b, const char *type);

/* Adds a message of three frames. */
void pack_message(util_buf_t *b, const char *topic, uint64_t seq,
    const util_buf_t *payload);


#endif /* _PACK_H_INCLUDED_ */
