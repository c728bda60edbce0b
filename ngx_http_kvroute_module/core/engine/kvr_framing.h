
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_FRAMING_H_INCLUDED_
#define _KVR_FRAMING_H_INCLUDED_


/*
 * Removes the framing of a chunked body (RFC 9112, 7.1).  Some engines use it
 * even for HTTP/1.0: uvicorn with httptools if it does not know the length,
 * and Prometheus' application, which never sends a length.
 */


#include "core/base/kvr_core.h"


/* maximum digits of a size, with leading zeroes */
#define KVR_FRAMING_DIGITS  16

/* maximum bytes after a size */
#define KVR_FRAMING_LINE    4096


typedef enum {
    KVR_FRAMING_SIZE = 0,
    KVR_FRAMING_REST,              /* the rest of the line of a size */
    KVR_FRAMING_DATA,
    KVR_FRAMING_AFTER,             /* the line end after data */
    KVR_FRAMING_DONE
} kvr_framing_e;


typedef struct {
    kvr_framing_e      state;
    uint32_t           seen;       /* digits of a size, bytes after it */
    uint64_t           left;       /* bytes of the chunk */
} kvr_framing_t;


/*
 * Reads from *p up to end and advances *p.  A reader starts with all bytes 0.
 * KVR_OK: *data and *len are the next data.  KVR_AGAIN: everything was read.
 * KVR_DECLINED: the last chunk was read; the trailers after it are not needed,
 * since the connection is closed.  KVR_ERROR: not a chunked body, a chunk of
 * 2^60 bytes or more, too many digits, or a line is too long.  A body can have
 * much framing for little data: the caller limits both.
 */
int kvr_framing_read(kvr_framing_t *c, const uint8_t **p, const uint8_t *end,
    const uint8_t **data, size_t *len);


#endif /* _KVR_FRAMING_H_INCLUDED_ */
