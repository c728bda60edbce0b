
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_WINDOW_H_INCLUDED_
#define _KVR_WINDOW_H_INCLUDED_


/*
 * A text that lies in pieces, given to kvr_json in windows.  A piece is a
 * buffer in memory, or a part of a file.
 *
 * Large pieces in memory are given as they are.  What lies in small ones, or in
 * a file, is gathered in windows of KVR_WINDOW_LEN bytes, at multiples of that
 * length.  The two that were used last are kept: a reader that goes back to the
 * beginning of a message, or to and fro between both ends of an object, finds
 * both there.
 *
 * So that no step back has to walk along all pieces, where every so many bytes
 * of the text lie is remembered as the reader first passes them.  A step to any
 * offset looks at no more pieces than lie in KVR_WINDOW_NEAR bytes, and two
 * more; it gathers one window at most.
 *
 * The memory is the caller's, and may serve one text after another.
 */


#include "core/base/kvr_core.h"


#define KVR_WINDOW_LEN   65536

/* so many are kept: the window that was used last, and the one before */
#define KVR_WINDOWS      2

/* bytes of a large piece; places in a text are remembered so far apart */
#define KVR_WINDOW_NEAR  4096


/* where in the text a piece begins */
typedef struct {
    const void           *place;
    uint64_t              offset;
} kvr_window_mark_t;


typedef struct {
    const uint8_t        *data;      /* NULL: in a file */
    uint64_t              len;       /* may be 0 */
    const void           *next;      /* place of the next piece, or NULL */
} kvr_piece_t;


/* tells of the piece at a place */
typedef void (*kvr_piece_pt)(const void *place, kvr_piece_t *piece);

/*
 * Reads n bytes of a piece in a file to dst, from an offset in that piece on:
 * how many there were, 0 or less if there are none.
 */
typedef long (*kvr_piece_read_pt)(const void *place, uint64_t offset,
    uint8_t *dst, size_t n);


typedef struct {
    kvr_piece_pt          piece;
    kvr_piece_read_pt     read;

    kvr_window_mark_t     at;        /* the piece that was looked at last */

    kvr_window_mark_t    *mark;      /* places, in the order of the text */
    size_t                marks;
    size_t                max;

    /* of KVR_WINDOW_LEN bytes each, and what is in them */

    uint8_t              *buf[KVR_WINDOWS];
    uint64_t              start[KVR_WINDOWS];
    size_t                len[KVR_WINDOWS];
    unsigned              recent;    /* the one that was used last */

    unsigned              failed:1;  /* a file could not be read */

    /* work done so far */

    uint64_t              steps;     /* pieces looked at */
    uint64_t              gathered;  /* bytes */
} kvr_window_t;


/* how many places there are to remember in a text of so many bytes */
static inline size_t
kvr_window_marks(uint64_t len)
{
    return (size_t) (len / KVR_WINDOW_NEAR) + 1;
}


/*
 * Starts with a text whose first piece is at a place.  buf has KVR_WINDOWS *
 * KVR_WINDOW_LEN bytes, mark[] room for max places; with fewer than
 * kvr_window_marks() steps back are slower.
 */
void kvr_window_init(kvr_window_t *w, const void *first, kvr_piece_pt piece,
    kvr_piece_read_pt read, uint8_t *buf, kvr_window_mark_t *mark, size_t max);

/* a kvr_json_fetch_pt; data is a kvr_window_t */
const uint8_t *kvr_window_fetch(void *data, uint64_t offset, size_t *len);


#endif /* _KVR_WINDOW_H_INCLUDED_ */
