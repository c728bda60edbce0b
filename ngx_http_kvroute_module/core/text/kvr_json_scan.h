
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SCAN_H_INCLUDED_
#define _KVR_SCAN_H_INCLUDED_


/*
 * Finds the next one of a few bytes.  The text searched is usually short, so
 * these functions are inline.
 */


#include "core/hash/kvr_vec.h"


/* Returns the next quote or backslash, or the end. */
static inline const uint8_t *
kvr_scan_text(const uint8_t *p, const uint8_t *end)
{
    uint32_t         mask;
    kvr_vec_bytes_t  v;

    for ( /* void */ ; end - p >= KVR_VEC_WIDTH; p += KVR_VEC_WIDTH) {

        v = kvr_vec_bytes(p);
        mask = kvr_vec_bits((kvr_vec_bytes_t) ((v == kvr_vec_fill('"'))
                                               | (v == kvr_vec_fill('\\'))));
        if (mask) {
            return p + __builtin_ctz(mask);
        }
    }

    while (p < end && *p != '"' && *p != '\\') {
        p++;
    }

    return p;
}


/* Returns the next bracket, brace or quote, or the end. */
static inline const uint8_t *
kvr_scan_nest(const uint8_t *p, const uint8_t *end)
{
    uint32_t         mask;
    kvr_vec_bytes_t  v, w;

    for ( /* void */ ; end - p >= KVR_VEC_WIDTH; p += KVR_VEC_WIDTH) {

        v = kvr_vec_bytes(p);

        /* bit 5 turns brackets into braces */

        w = v | kvr_vec_fill(0x20);
        mask = kvr_vec_bits((kvr_vec_bytes_t) ((v == kvr_vec_fill('"'))
                                               | (w == kvr_vec_fill('{'))
                                               | (w == kvr_vec_fill('}'))));
        if (mask) {
            return p + __builtin_ctz(mask);
        }
    }

    while (p < end && *p != '"' && (*p | 0x20) != '{' && (*p | 0x20) != '}') {
        p++;
    }

    return p;
}


#endif /* _KVR_SCAN_H_INCLUDED_ */
