
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_WINDOW_H_INCLUDED_
#define _KVR_WINDOW_H_INCLUDED_


/*
 * Passes a text in pieces to kvr_json in windows.  A piece is a buffer in
 * memory or a part of a file.
 *
 * A large piece in memory is its own window.  Small pieces and files are copied
 * to windows of KVR_WINDOW_LEN bytes, at multiples of that length.  The last
 * two windows are kept, for a reader that goes back to the start of a message
 * or reads both ends of an object in turn.
 *
 * Marks remember the piece at regular offsets as the reader first passes them.
 * So a seek reads only the pieces in KVR_WINDOW_NEAR bytes and two more, and
 * copies at most one window.
 *
 * The caller owns the memory and can use it for several texts in turn.
 */


#include "core/base/kvr_core.h"


#define KVR_WINDOW_LEN   65536

/* windows that are kept */
#define KVR_WINDOWS      2

/* minimum size of a large piece, and distance of marks */
#define KVR_WINDOW_NEAR  4096


/* the offset of a piece in the text */
typedef struct {
    const void           *place;
    uint64_t              offset;
} kvr_window_mark_t;


typedef struct {
    const uint8_t        *data;      /* NULL: in a file */
    uint64_t              len;       /* can be 0 */
    const void           *next;      /* place of the next piece, or NULL */
} kvr_piece_t;


/* Describes the piece at a place. */
typedef void (*kvr_piece_pt)(const void *place, kvr_piece_t *piece);

/*
 * Reads n bytes at an offset of a piece in a file.  Returns the number of bytes
 * read; 0 or less: none.
 */
typedef long (*kvr_piece_read_pt)(const void *place, uint64_t offset,
    uint8_t *dst, size_t n);


typedef struct {
    kvr_piece_pt          piece;
    kvr_piece_read_pt     read;

    kvr_window_mark_t     at;        /* the current piece */
    uint64_t              end;       /* of the text, once it is known */

    kvr_window_mark_t    *mark;      /* in the order of the text */
    size_t                marks;
    size_t                max;

    /* windows, the offset and the length of their text */

    uint8_t              *buf[KVR_WINDOWS];
    uint64_t              start[KVR_WINDOWS];
    size_t                len[KVR_WINDOWS];
    unsigned              recent;    /* the window used last */

    unsigned              failed:1;  /* a file could not be read */

    /* work so far, for tests */

    uint64_t              steps;     /* pieces visited */
    uint64_t              gathered;  /* bytes copied */
} kvr_window_t;


/* Returns the number of marks of a text. */
static inline size_t
kvr_window_marks(uint64_t len)
{
    return (size_t) (len / KVR_WINDOW_NEAR) + 1;
}


/*
 * Starts a text at its first piece.  buf has KVR_WINDOWS windows.
 * mark[] has max elements; if these are fewer than kvr_window_marks(), seeks
 * back are slower.
 */
void kvr_window_init(kvr_window_t *w, const void *first, kvr_piece_pt piece,
    kvr_piece_read_pt read, uint8_t *buf, kvr_window_mark_t *mark, size_t max);

/* A kvr_json_fetch_pt; data is a kvr_window_t. */
const uint8_t *kvr_window_fetch(void *data, uint64_t offset, size_t *len);


#endif /* _KVR_WINDOW_H_INCLUDED_ */
