
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SPLICE_H_INCLUDED_
#define _KVR_SPLICE_H_INCLUDED_


/*
 * Copies a JSON text that is in one piece, and replaces some bytes.  A table
 * of members lists the parts of the text to find.
 */


#include "core/text/kvr_json.h"


#define KVR_SPLICE_MAX  16


/* Takes the next bytes of the output. */
typedef void (*kvr_splice_put_pt)(void *data, const uint8_t *p, size_t len);


typedef struct {
    size_t                at;
    size_t                len;       /* bytes to leave out there */
    const uint8_t        *p;         /* bytes to write instead */
    size_t                n;
} kvr_splice_edit_t;


typedef struct {
    kvr_splice_edit_t     edit[KVR_SPLICE_MAX];  /* by offset */
    size_t                n;
} kvr_splice_t;


/* offsets of a member in the text */
typedef struct {
    size_t                key;       /* of its key */
    size_t                at;        /* of its value */
    size_t                end;       /* behind its value */
    size_t                next;      /* of the next member; 0: it is the last */
    size_t                before;    /* end of the member before; 0: it is the
                                        first */
    int64_t               number;    /* the value, if it is a number */
    uint8_t               c;         /* first byte of the value */
    unsigned              set:1;     /* present, and not null, false, "" or
                                        [] */
} kvr_splice_span_t;


/* a member to find, in objects of one kind */
typedef struct {
    const char           *name;      /* NULL: the last row */
    uint8_t               in;        /* kind of the object; the root is 0 */
    uint8_t               into;      /* kind of objects in its value, or 0 */
    uint8_t               field;     /* index of its span */
} kvr_splice_row_t;


/*
 * Walks the text's root object.  If a member occurs several times in an
 * object, the last one counts.  All objects of an array are read.  Sets end to
 * the offset of the root's closing brace.  Returns KVR_OK, or an error of
 * kvr_json.h.
 */
int kvr_splice_find(const kvr_splice_row_t *rows, const uint8_t *p, size_t len,
    kvr_splice_span_t *span, size_t fields, size_t *end);

/* Returns the escaped text of a span that is a string, without its quotes. */
static inline const uint8_t *
kvr_splice_string(const kvr_splice_span_t *s, const uint8_t *p, size_t *len)
{
    *len = s->set && s->c == '"' ? s->end - s->at - 2 : 0;

    return p + s->at + 1;
}


/* Replaces len bytes at an offset by n others, which must stay valid. */
void kvr_splice_add(kvr_splice_t *s, size_t at, size_t len, const void *p,
    size_t n);

/* Leaves out a member with its comma. */
void kvr_splice_cut(kvr_splice_t *s, const kvr_splice_span_t *span);

/* Writes the text with its replacements. */
void kvr_splice_put(const kvr_splice_t *s, const uint8_t *p, size_t len,
    kvr_splice_put_pt put, void *data);


#endif /* _KVR_SPLICE_H_INCLUDED_ */
