
/*
 * Copyright (C) kvroute contributors
 */


#include "core/text/kvr_window.h"


static int kvr_window_find(kvr_window_t *w, uint64_t offset,
    kvr_piece_t *piece);
static int kvr_window_next(kvr_window_t *w, kvr_piece_t *piece);
static void kvr_window_near(kvr_window_t *w, uint64_t offset);
static inline int kvr_window_large(const kvr_piece_t *piece);
static int kvr_window_alone(kvr_window_t *w, const kvr_piece_t *piece);
static const uint8_t *kvr_window_gather(kvr_window_t *w, uint64_t offset,
    size_t *len);
static size_t kvr_window_fill(kvr_window_t *w, const kvr_piece_t *piece,
    uint64_t skip, uint8_t *dst, size_t n);


void
kvr_window_init(kvr_window_t *w, const void *first, kvr_piece_pt piece,
    kvr_piece_read_pt read, uint8_t *buf, kvr_window_mark_t *mark, size_t max)
{
    memset(w, 0, sizeof(kvr_window_t));

    w->piece = piece;
    w->read = read;

    w->at.place = first;

    w->mark = mark;
    w->mark[0] = w->at;
    w->marks = 1;
    w->max = max;
    w->end = UINT64_MAX;

    w->buf[0] = buf;
    w->buf[1] = buf + KVR_WINDOW_LEN;
}


const uint8_t *
kvr_window_fetch(void *data, uint64_t offset, size_t *len)
{
    kvr_window_t *w = data;

    unsigned     i;
    uint64_t     skip;
    kvr_piece_t  piece;

    for (i = 0; i < KVR_WINDOWS; i++) {

        if (offset >= w->start[i] && offset - w->start[i] < w->len[i]) {
            w->recent = i;
            skip = offset - w->start[i];
            *len = w->len[i] - (size_t) skip;

            return w->buf[i] + skip;
        }
    }

    *len = 0;

    if (offset >= w->end || kvr_window_find(w, offset, &piece) != KVR_OK) {
        return NULL;
    }

    if (kvr_window_large(&piece) || kvr_window_alone(w, &piece)) {
        skip = offset - w->at.offset;
        *len = (size_t) (piece.len - skip);

        return piece.data + skip;
    }

    return kvr_window_gather(w, offset, len);
}


/* Moves to the piece of an offset; KVR_DECLINED: the text ends before it. */
static int
kvr_window_find(kvr_window_t *w, uint64_t offset, kvr_piece_t *piece)
{
    if (offset < w->at.offset || offset - w->at.offset >= KVR_WINDOW_NEAR) {
        kvr_window_near(w, offset);
    }

    if (w->at.place == NULL) {
        return KVR_DECLINED;
    }

    w->piece(w->at.place, piece);
    w->steps++;

    while (offset - w->at.offset >= piece->len) {
        if (kvr_window_next(w, piece) != KVR_OK) {
            return KVR_DECLINED;
        }
    }

    return KVR_OK;
}


/* Moves to the next piece; KVR_DECLINED: there is none. */
static int
kvr_window_next(kvr_window_t *w, kvr_piece_t *piece)
{
    kvr_window_mark_t  *last;

    if (piece->next == NULL) {
        w->end = w->at.offset + piece->len;
        return KVR_DECLINED;
    }

    w->at.place = piece->next;
    w->at.offset += piece->len;

    w->piece(w->at.place, piece);
    w->steps++;

    last = &w->mark[w->marks - 1];

    if (w->at.offset >= last->offset + KVR_WINDOW_NEAR && w->marks < w->max) {
        w->mark[w->marks++] = w->at;
    }

    return KVR_OK;
}


/* Moves to the last mark before an offset, if that is nearer. */
static void
kvr_window_near(kvr_window_t *w, uint64_t offset)
{
    size_t  first, n, half;

    first = 0;
    n = w->marks;

    while (n > 1) {
        half = n / 2;

        if (w->mark[first + half].offset <= offset) {
            first += half;
            n -= half;

        } else {
            n = half;
        }
    }

    if (offset < w->at.offset || w->mark[first].offset > w->at.offset) {
        w->at = w->mark[first];
    }
}


static inline int
kvr_window_large(const kvr_piece_t *piece)
{
    return piece->data && piece->len >= KVR_WINDOW_NEAR;
}


/*
 * Returns whether no small piece follows, so that copying is useless: usually
 * only the first bytes of a body, which came with the header, are small.
 */
static int
kvr_window_alone(kvr_window_t *w, const kvr_piece_t *piece)
{
    kvr_piece_t  next;

    if (piece->data == NULL) {
        return 0;
    }

    if (piece->next == NULL) {
        return 1;
    }

    w->piece(piece->next, &next);
    w->steps++;

    return kvr_window_large(&next);
}


/* Copies the text around an offset to the older window. */
static const uint8_t *
kvr_window_gather(kvr_window_t *w, uint64_t offset, size_t *len)
{
    int          rc;
    size_t       n, skip;
    uint8_t     *buf;
    uint64_t     start;
    kvr_piece_t  piece;

    w->recent ^= 1;
    w->len[w->recent] = 0;

    buf = w->buf[w->recent];
    start = offset - offset % KVR_WINDOW_LEN;
    n = 0;

    rc = kvr_window_find(w, start, &piece);

    while (rc == KVR_OK && n < KVR_WINDOW_LEN) {

        n += kvr_window_fill(w, &piece, start + n - w->at.offset, buf + n,
                             KVR_WINDOW_LEN - n);

        if (w->failed) {
            break;
        }

        if (start + n - w->at.offset >= piece.len) {
            rc = kvr_window_next(w, &piece);
        }
    }

    w->start[w->recent] = start;
    w->len[w->recent] = n;
    w->gathered += n;

    skip = (size_t) (offset - start);

    if (skip >= n) {
        return NULL;
    }

    *len = n - skip;

    return buf + skip;
}


/* Copies up to n bytes of a piece, after those skipped. */
static size_t
kvr_window_fill(kvr_window_t *w, const kvr_piece_t *piece, uint64_t skip,
    uint8_t *dst, size_t n)
{
    long  got;

    n = (size_t) kvr_min(piece->len - skip, (uint64_t) n);

    if (n == 0) {
        return 0;
    }

    if (piece->data) {
        memcpy(dst, piece->data + skip, n);
        return n;
    }

    got = w->read(w->at.place, skip, dst, n);

    if (got <= 0) {
        w->failed = 1;
        return 0;
    }

    return (size_t) got;
}
