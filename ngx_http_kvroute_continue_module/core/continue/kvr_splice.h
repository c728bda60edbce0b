
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SPLICE_H_INCLUDED_
#define _KVR_SPLICE_H_INCLUDED_


/*
 * A JSON text in one piece, some bytes of which are replaced as it is copied.
 * Which ones is found by a table of the members that matter.
 */


#include "core/text/kvr_json.h"


#define KVR_SPLICE_MAX  16


/* takes the next bytes of what is written */
typedef void (*kvr_splice_put_pt)(void *data, const uint8_t *p, size_t len);


typedef struct {
    size_t                at;
    size_t                len;       /* bytes that are left out there */
    const uint8_t        *p;         /* and written instead */
    size_t                n;
} kvr_splice_edit_t;


typedef struct {
    kvr_splice_edit_t     edit[KVR_SPLICE_MAX];  /* by offset */
    size_t                n;
} kvr_splice_t;


/* where a member stands in the text */
typedef struct {
    size_t                key;       /* its key begins, */
    size_t                at;        /* its value begins, */
    size_t                end;       /* and ends */
    size_t                next;      /* the next member, 0: it is the last */
    size_t                before;    /* the member before ends, 0: it is the
                                        first */
    int64_t               number;    /* the value, if it is one */
    uint8_t               c;         /* first byte of the value */
    unsigned              set:1;     /* it is there, and is not null, false,
                                        "" or [] */
} kvr_splice_span_t;


/* a member to look for, in objects of a kind */
typedef struct {
    const char           *name;      /* NULL: the last row */
    uint8_t               in;        /* the kind; the root is of kind 0 */
    uint8_t               into;      /* kind of the objects that it has, or 0 */
    uint8_t               field;     /* where its span goes */
} kvr_splice_row_t;


/*
 * Walks the text's root object.  Of a member that occurs several times the last
 * one counts; of the objects in an array all do.  end is set to the offset of
 * the root's closing brace.  KVR_OK, or what kvr_json.h returns.
 */
int kvr_splice_find(const kvr_splice_row_t *rows, const uint8_t *p, size_t len,
    kvr_splice_span_t *span, size_t fields, size_t *end);

/* the text of a span that is a string, without its quotes, as it is written */
static inline const uint8_t *
kvr_splice_string(const kvr_splice_span_t *s, const uint8_t *p, size_t *len)
{
    *len = s->set && s->c == '"' ? s->end - s->at - 2 : 0;

    return p + s->at + 1;
}


/* replaces len bytes at an offset by n others, which stay where they are */
void kvr_splice_add(kvr_splice_t *s, size_t at, size_t len, const void *p,
    size_t n);

/* leaves out a member with its comma */
void kvr_splice_cut(kvr_splice_t *s, const kvr_splice_span_t *span);

/* writes the text with its replacements */
void kvr_splice_put(const kvr_splice_t *s, const uint8_t *p, size_t len,
    kvr_splice_put_pt put, void *data);

/* the decimal digits of a number; dst has 20 bytes */
size_t kvr_splice_decimal(uint8_t *dst, uint64_t n);


#endif /* _KVR_SPLICE_H_INCLUDED_ */
