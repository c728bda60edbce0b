
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_FRAMING_H_INCLUDED_
#define _KVR_FRAMING_H_INCLUDED_


/*
 * The framing of a chunked body (RFC 9112, 7.1) taken off.  Engines answer so
 * even to HTTP/1.0: uvicorn with httptools does when the length of an answer
 * is not known, and Prometheus' application for it never tells one.
 */


#include "core/base/kvr_core.h"


/* digits of a size at most, zeroes too: they could go on for ever */
#define KVR_FRAMING_DIGITS  16

/* what stands behind a size at most, and in all trailers */
#define KVR_FRAMING_LINE    4096


typedef enum {
    KVR_FRAMING_SIZE = 0,          /* where a reader of zeroes begins */
    KVR_FRAMING_REST,              /* of the line of a size */
    KVR_FRAMING_DATA,
    KVR_FRAMING_AFTER,             /* the line end behind data */
    KVR_FRAMING_TRAILER,
    KVR_FRAMING_DONE
} kvr_framing_e;


typedef struct {
    kvr_framing_e      state;
    uint32_t           seen;       /* digits of a size, bytes of a line */
    uint64_t           left;       /* bytes of the chunk; read of trailers */
} kvr_framing_t;


/*
 * Reads on from *p, which it moves, up to end at most.  Returns KVR_OK with
 * the next run of data in *data and *len bytes of it, KVR_AGAIN when all was
 * read and there was no more data in it, KVR_DECLINED after the end of the
 * body, and KVR_ERROR when this is not such a body, a chunk is of 2^60 bytes
 * and more, a size has too many digits, or a line is too long.  There may be
 * very much framing to little data: it is up to the caller to bound both.
 */
int kvr_framing_read(kvr_framing_t *c, const uint8_t **p, const uint8_t *end,
    const uint8_t **data, size_t *len);


#endif /* _KVR_FRAMING_H_INCLUDED_ */
