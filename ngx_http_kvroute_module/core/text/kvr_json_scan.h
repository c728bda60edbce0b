
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SCAN_H_INCLUDED_
#define _KVR_SCAN_H_INCLUDED_


/*
 * Searches for the next byte of a few, 16 at a time where every machine of the
 * architecture can.  What is searched is short, mostly, so that a call would
 * cost more than the search.
 */


#include "core/base/kvr_core.h"

#if (__SSE2__)
#include <emmintrin.h>
#endif


#if (__SSE2__)

/* which of 16 bytes are c, as bits */
#define kvr_scan_eq(v, c)  _mm_cmpeq_epi8(v, _mm_set1_epi8(c))

#define kvr_scan_load(p)                                                      \
    _mm_loadu_si128((const __m128i *) (const void *) (p))

#endif


/* the next quote or backslash, or the end */
static inline const uint8_t *
kvr_scan_text(const uint8_t *p, const uint8_t *end)
{
#if (__SSE2__)
    __m128i   v;
    unsigned  mask;

    for ( /* void */ ; end - p >= 16; p += 16) {
        v = kvr_scan_load(p);
        mask = (unsigned) _mm_movemask_epi8(_mm_or_si128(kvr_scan_eq(v, '"'),
                                                    kvr_scan_eq(v, '\\')));
        if (mask) {
            return p + __builtin_ctz(mask);
        }
    }
#endif

    while (p < end && *p != '"' && *p != '\\') {
        p++;
    }

    return p;
}


/* the next byte that is no white space, or the end */
static inline const uint8_t *
kvr_scan_space(const uint8_t *p, const uint8_t *end)
{
#if (__SSE2__)
    __m128i   v;
    unsigned  mask;

    for ( /* void */ ; end - p >= 16; p += 16) {
        v = kvr_scan_load(p);
        v = _mm_or_si128(_mm_or_si128(kvr_scan_eq(v, ' '),
                                      kvr_scan_eq(v, '\n')),
                         _mm_or_si128(kvr_scan_eq(v, '\t'),
                                      kvr_scan_eq(v, '\r')));

        mask = (unsigned) _mm_movemask_epi8(v);

        if (mask != 0xffff) {
            return p + __builtin_ctz(~mask);
        }
    }
#endif

    while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')) {
        p++;
    }

    return p;
}


/* the next byte that opens, closes or starts a string, or the end */
static inline const uint8_t *
kvr_scan_nest(const uint8_t *p, const uint8_t *end)
{
#if (__SSE2__)
    __m128i   v, w;
    unsigned  mask;

    for ( /* void */ ; end - p >= 16; p += 16) {
        v = kvr_scan_load(p);

        /* bit 5 makes "[" and "{" the same, and "]" and "}" */

        w = _mm_or_si128(v, _mm_set1_epi8(0x20));
        w = _mm_or_si128(kvr_scan_eq(w, '{'), kvr_scan_eq(w, '}'));

        mask = (unsigned) _mm_movemask_epi8(_mm_or_si128(kvr_scan_eq(v, '"'),
                                                         w));
        if (mask) {
            return p + __builtin_ctz(mask);
        }
    }
#endif

    for ( /* void */ ; p < end; p++) {
        if (*p == '"' || (*p | 0x20) == '{' || (*p | 0x20) == '}') {
            break;
        }
    }

    return p;
}


#endif /* _KVR_SCAN_H_INCLUDED_ */
