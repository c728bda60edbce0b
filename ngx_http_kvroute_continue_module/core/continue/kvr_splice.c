
/*
 * Copyright (C) kvroute contributors
 */


#include "core/continue/kvr_splice.h"
#include "core/text/kvr_text.h"


/* most levels of nested objects that are read */
#define KVR_SPLICE_DEPTH  5


typedef struct {
    kvr_json_t               json;
    const kvr_splice_row_t  *rows;
    kvr_splice_span_t       *span;
} kvr_splice_walk_t;


static int kvr_splice_object(kvr_splice_walk_t *w, unsigned kind,
    unsigned depth);
static int kvr_splice_value(kvr_splice_walk_t *w, const kvr_splice_row_t *row,
    unsigned depth);
static const kvr_splice_row_t *kvr_splice_row(kvr_splice_walk_t *w,
    unsigned kind);


int
kvr_splice_find(const kvr_splice_row_t *rows, const uint8_t *p, size_t len,
    kvr_splice_span_t *span, size_t fields, size_t *end)
{
    int                rc;
    kvr_json_text_t    text;
    kvr_splice_walk_t  w;

    memset(span, 0, fields * sizeof(kvr_splice_span_t));

    text.data = p;
    text.len = len;

    w.rows = rows;
    w.span = span;

    kvr_json_init(&w.json, kvr_text_ops(), kvr_json_fetch_text, &text);

    rc = kvr_json_peek(&w.json);

    if (rc != '{') {
        return rc < 0 ? rc : KVR_ERROR;
    }

    rc = kvr_splice_object(&w, 0, 0);

    if (rc != KVR_OK) {
        return rc;
    }

    *end = (size_t) kvr_json_offset(&w.json) - 1;

    return kvr_json_peek(&w.json) == KVR_AGAIN ? KVR_OK : KVR_ERROR;
}


/* Walks an object; its brace is the next byte. */
static int
kvr_splice_object(kvr_splice_walk_t *w, unsigned kind, unsigned depth)
{
    int                      c, rc, first;
    size_t                   start, before;
    kvr_json_t              *j;
    kvr_splice_span_t       *span, *last;
    const kvr_splice_row_t  *row;

    j = &w->json;
    j->p++;

    first = 1;
    before = 0;
    last = NULL;

    for ( ;; ) {
        rc = kvr_json_peek(j);

        if (rc == ',') {
            j->p++;
            rc = kvr_json_peek(j);
            first = 1;
        }

        if (rc < 0) {
            return rc;
        }

        start = (size_t) kvr_json_offset(j);

        if (last && rc == '"') {
            last->next = start;
        }

        rc = kvr_json_key(j, &first);

        if (rc != KVR_OK) {
            return rc == KVR_DECLINED ? KVR_OK : rc;
        }

        if (kvr_json_spend(j, 1) != KVR_OK) {
            return KVR_JSON_COSTLY;
        }

        row = kvr_splice_row(w, kind);
        last = NULL;

        if (row == NULL) {
            rc = kvr_json_skip(j);

        } else {
            c = kvr_json_peek(j);

            if (c < 0) {
                return c;
            }

            span = &w->span[row->field];

            span->key = start;
            span->before = before;
            span->next = 0;
            span->c = (uint8_t) c;
            span->at = (size_t) kvr_json_offset(j);

            rc = kvr_splice_value(w, row, depth);

            span->end = (size_t) kvr_json_offset(j);
            span->set = (c == '{' || c == 't' || c == '-'
                         || (c >= '0' && c <= '9')
                         || ((c == '"' || c == '[')
                             && span->end - span->at > 2));
            last = span;
        }

        if (rc != KVR_OK) {
            return rc;
        }

        before = (size_t) kvr_json_offset(j);
    }
}


static int
kvr_splice_value(kvr_splice_walk_t *w, const kvr_splice_row_t *row,
    unsigned depth)
{
    int          rc, first;
    kvr_json_t  *j;

    j = &w->json;

    switch (kvr_json_peek(j)) {

    case '{':
        return row->into && depth < KVR_SPLICE_DEPTH
               ? kvr_splice_object(w, row->into, depth + 1) : kvr_json_skip(j);

    case '[':

        if (row->into == 0) {
            return kvr_json_skip(j);
        }

        j->p++;

        for (first = 1; (rc = kvr_json_item(j, &first)) == KVR_OK; ) {

            rc = kvr_json_spend(j, 1);

            if (rc == KVR_OK) {
                rc = kvr_json_peek(j) == '{' && depth < KVR_SPLICE_DEPTH
                     ? kvr_splice_object(w, row->into, depth + 1)
                     : kvr_json_skip(j);
            }

            if (rc != KVR_OK) {
                return rc;
            }
        }

        return rc == KVR_DECLINED ? KVR_OK : rc;

    case '"':
        return kvr_json_skip(j);

    default:
        rc = kvr_json_integer(j, &w->span[row->field].number);

        return rc == KVR_DECLINED ? KVR_OK : rc;
    }
}


static const kvr_splice_row_t *
kvr_splice_row(kvr_splice_walk_t *w, unsigned kind)
{
    size_t                   len;
    const kvr_splice_row_t  *row;

    len = w->json.key_len;

    for (row = w->rows; row->name; row++) {

        if (row->in == kind && row->name[0] == (char) w->json.key[0]
            && strlen(row->name) == len
            && memcmp(row->name, w->json.key, len) == 0)
        {
            return row;
        }
    }

    return NULL;
}


void
kvr_splice_add(kvr_splice_t *s, size_t at, size_t len, const void *p, size_t n)
{
    size_t  i;

    if (s->n == KVR_SPLICE_MAX) {
        return;
    }

    for (i = s->n++; i && s->edit[i - 1].at > at; i--) {
        s->edit[i] = s->edit[i - 1];
    }

    s->edit[i].at = at;
    s->edit[i].len = len;
    s->edit[i].p = p;
    s->edit[i].n = n;
}


void
kvr_splice_cut(kvr_splice_t *s, const kvr_splice_span_t *span)
{
    size_t  from, to;

    from = span->next || span->before == 0 ? span->key : span->before;
    to = span->next ? span->next : span->end;

    kvr_splice_add(s, from, to - from, NULL, 0);
}


void
kvr_splice_put(const kvr_splice_t *s, const uint8_t *p, size_t len,
    kvr_splice_put_pt put, void *data)
{
    size_t                    i, from;
    const kvr_splice_edit_t  *e;

    for (i = 0, from = 0; i < s->n; i++) {
        e = &s->edit[i];

        if (e->at > from) {
            put(data, p + from, e->at - from);
        }

        if (e->n) {
            put(data, e->p, e->n);
        }

        from = e->at + e->len;
    }

    if (len > from) {
        put(data, p + from, len - from);
    }
}
