
/*
 * Copyright (C) kvroute contributors
 */


#include "kvr_push.h"
#include "kvr_scan.h"


#define KVR_PUSH_IN_ARRAY  0x80
#define KVR_PUSH_NONE      0xff
#define KVR_PUSH_SKIP_MAX  4096  /* no engine nests as deep */


typedef enum {
    KVR_PUSH_START = 0,
    KVR_PUSH_BEFORE,             /* a member or item, or the end */
    KVR_PUSH_KEY,
    KVR_PUSH_KEY_ESCAPE,
    KVR_PUSH_COLON,
    KVR_PUSH_BEGIN,              /* a value */
    KVR_PUSH_IN_TEXT,
    KVR_PUSH_TEXT_ESCAPE,
    KVR_PUSH_DIGITS,
    KVR_PUSH_SKIP,
    KVR_PUSH_SKIP_TEXT,
    KVR_PUSH_SKIP_ESCAPE,
    KVR_PUSH_AFTER,              /* a value, or inside a scalar */
    KVR_PUSH_END,
    KVR_PUSH_BAD
} kvr_push_state_e;


static void kvr_push_find(kvr_push_t *p, const kvr_push_entry_t *table);
static void kvr_push_begin(kvr_push_t *p, const kvr_push_entry_t *table,
    uint8_t c, kvr_push_pt handler, void *ctx);
static void kvr_push_close(kvr_push_t *p);


void
kvr_push_init(kvr_push_t *p, unsigned level)
{
    p->state = KVR_PUSH_START;
    p->level = (uint8_t) level;
    p->depth = 0;
    p->skip = 0;
}


int
kvr_push_feed(kvr_push_t *p, const kvr_push_entry_t *table,
    const uint8_t *data, size_t len, kvr_push_pt handler, void *ctx)
{
    size_t          n;
    uint8_t         c;
    const uint8_t  *end, *s;

    for (end = data + len; data < end; data++) {
        c = *data;

        switch (p->state) {

        case KVR_PUSH_START:

            if (c <= ' ') {
                break;
            }

            if (c != '{' && c != '[') {
                p->state = KVR_PUSH_BAD;
                return KVR_ERROR;
            }

            p->node[0] = (c == '[') ? KVR_PUSH_IN_ARRAY : 0;
            p->depth = 1;
            p->state = KVR_PUSH_BEFORE;
            break;

        case KVR_PUSH_BEFORE:

            if (c <= ' ' || c == ',') {
                break;
            }

            if (c == '}' || c == ']') {
                kvr_push_close(p);
                break;
            }

            if (p->node[p->depth - 1] & KVR_PUSH_IN_ARRAY) {
                p->entry = KVR_PUSH_NONE;
                kvr_push_begin(p, table, c, handler, ctx);
                break;
            }

            if (c != '"') {
                p->state = KVR_PUSH_BAD;
                return KVR_ERROR;
            }

            p->key_len = 0;
            p->state = KVR_PUSH_KEY;
            break;

        case KVR_PUSH_KEY:

            s = data;
            data = kvr_scan_text(data, end);
            n = (size_t) (data - s);

            if (kvr_likely(p->key_len + n <= KVR_PUSH_KEY_LEN)) {
                memcpy(&p->key[p->key_len], s, n);
                p->key_len += (uint8_t) n;

            } else {
                p->key_len = KVR_PUSH_KEY_LEN + 1;
            }

            if (data == end) {
                return KVR_AGAIN;
            }

            if (*data == '"') {
                kvr_push_find(p, table);
                p->state = KVR_PUSH_COLON;

                /* as a rule the value is here as well */

                n = 2U + (end - data > 2 && data[2] == ' ');

                if (end - data > (ptrdiff_t) n && data[1] == ':'
                    && data[n] > ' ')
                {
                    data += n;
                    kvr_push_begin(p, table, *data, handler, ctx);
                }

                break;
            }

            /* no name that is looked for has an escape */

            p->key_len = KVR_PUSH_KEY_LEN + 1;
            p->state = KVR_PUSH_KEY_ESCAPE;
            break;

        case KVR_PUSH_KEY_ESCAPE:
            p->state = KVR_PUSH_KEY;
            break;

        case KVR_PUSH_COLON:

            if (c <= ' ') {
                break;
            }

            if (c != ':') {
                p->state = KVR_PUSH_BAD;
                return KVR_ERROR;
            }

            p->state = KVR_PUSH_BEGIN;
            break;

        case KVR_PUSH_BEGIN:

            if (c > ' ') {
                kvr_push_begin(p, table, c, handler, ctx);
            }

            break;

        case KVR_PUSH_IN_TEXT:

            s = data;
            data = kvr_scan_text(data, end);

            if (data > s) {
                handler(ctx, table[p->entry].leaf, KVR_PUSH_TEXT, s,
                        (size_t) (data - s), 0);
            }

            if (data == end) {
                return KVR_AGAIN;
            }

            if (*data == '"') {
                p->state = KVR_PUSH_AFTER;
                handler(ctx, table[p->entry].leaf, KVR_PUSH_TEXT_END, NULL, 0,
                        0);
                break;
            }

            handler(ctx, table[p->entry].leaf, KVR_PUSH_TEXT, data, 1, 0);
            p->state = KVR_PUSH_TEXT_ESCAPE;
            break;

        case KVR_PUSH_TEXT_ESCAPE:
            handler(ctx, table[p->entry].leaf, KVR_PUSH_TEXT, data, 1, 0);
            p->state = KVR_PUSH_IN_TEXT;
            break;

        case KVR_PUSH_DIGITS:

            if (c >= '0' && c <= '9') {
                if (p->number < UINT32_MAX) {
                    p->number = p->number * 10 + (c - '0');
                }

                break;
            }

            handler(ctx, table[p->entry].leaf, KVR_PUSH_VALUE, NULL, 0,
                    p->number);

            p->state = KVR_PUSH_AFTER;

            /* fall through */

        case KVR_PUSH_AFTER:

            while (c != ',' && c != '}' && c != ']') {

                if (++data == end) {
                    return KVR_AGAIN;
                }

                c = *data;
            }

            if (c == ',') {
                p->state = KVR_PUSH_BEFORE;

            } else if (c == '}' || c == ']') {
                kvr_push_close(p);
            }

            break;

        case KVR_PUSH_SKIP:

            data = kvr_scan_nest(data, end);

            if (data == end) {
                return KVR_AGAIN;
            }

            switch (*data) {

            case '"':
                p->state = KVR_PUSH_SKIP_TEXT;
                break;

            case '{':
            case '[':
                if (++p->skip > KVR_PUSH_SKIP_MAX) {
                    p->state = KVR_PUSH_BAD;
                    return KVR_ERROR;
                }

                break;

            default:
                if (--p->skip == 0) {
                    p->state = KVR_PUSH_AFTER;
                }

                break;
            }

            break;

        case KVR_PUSH_SKIP_TEXT:

            data = kvr_scan_text(data, end);

            if (data == end) {
                return KVR_AGAIN;
            }

            if (*data == '\\') {
                p->state = KVR_PUSH_SKIP_ESCAPE;

            } else {
                p->state = p->skip ? KVR_PUSH_SKIP : KVR_PUSH_AFTER;
            }

            break;

        case KVR_PUSH_SKIP_ESCAPE:
            p->state = KVR_PUSH_SKIP_TEXT;
            break;

        case KVR_PUSH_END:
            return KVR_OK;

        default:
            return KVR_ERROR;
        }
    }

    return p->state == KVR_PUSH_END ? KVR_OK : KVR_AGAIN;
}


/*
 * Entries of the same node and length follow one another: mostly there is none
 * or one.  They are put in order when a table is first used.
 */
static void
kvr_push_find(kvr_push_t *p, const kvr_push_entry_t *table)
{
    unsigned                 node, i;
    const kvr_push_entry_t  *e;

    /* numbers of entries, from 1 */

    static uint8_t                  head[KVR_PUSH_NODES][KVR_PUSH_KEY_LEN + 2];
    static uint8_t                  next[KVR_PUSH_ENTRIES + 1];
    static const kvr_push_entry_t  *known;

    if (kvr_unlikely(known != table)) {

        memset(head, 0, sizeof(head));

        for (i = 0; i < KVR_PUSH_ENTRIES && table[i].name; i++) {
            /* void */
        }

        for ( /* void */ ; i; i--) {
            e = &table[i - 1];
            next[i] = head[e->node][e->len];
            head[e->node][e->len] = (uint8_t) i;
        }

        known = table;
    }

    node = p->node[p->depth - 1];

    p->entry = KVR_PUSH_NONE;

    for (i = head[node][p->key_len]; i; i = next[i]) {

        e = &table[i - 1];

        if (e->level <= p->level && memcmp(e->name, p->key, e->len) == 0) {
            p->entry = (uint8_t) (i - 1);
            return;
        }
    }
}


/* a value begins: to be followed, told of, or passed over */
static void
kvr_push_begin(kvr_push_t *p, const kvr_push_entry_t *table, uint8_t c,
    kvr_push_pt handler, void *ctx)
{
    unsigned                 kind, into;
    const kvr_push_entry_t  *e;

    e = NULL;
    kind = 0;
    into = 0;

    if (p->entry != KVR_PUSH_NONE) {
        e = &table[p->entry];
        kind = e->kind;
        into = e->into;

    } else if (p->node[p->depth - 1] & KVR_PUSH_IN_ARRAY) {

        /* an item */

        kind = KVR_PUSH_OBJECT;
        into = p->node[p->depth - 1] & ~KVR_PUSH_IN_ARRAY;
    }

    switch (c) {

    case '"':

        if (kind & KVR_PUSH_STRING) {
            p->state = KVR_PUSH_IN_TEXT;
            return;
        }

        p->skip = 0;
        p->state = KVR_PUSH_SKIP_TEXT;
        return;

    case '{':
    case '[':

        if (e && kind & (c == '{' ? KVR_PUSH_OBJECT : KVR_PUSH_ARRAY)) {
            handler(ctx, e->leaf, KVR_PUSH_OPEN, NULL, 0, 0);

        } else if (e || c != '{' || !(kind & KVR_PUSH_OBJECT)) {
            kind = 0;
        }

        if (kind && p->depth < KVR_PUSH_DEPTH) {
            p->node[p->depth++] = (uint8_t) (c == '[' ? into | KVR_PUSH_IN_ARRAY
                                                      : into);
            p->state = KVR_PUSH_BEFORE;
            return;
        }

        p->skip = 1;
        p->state = KVR_PUSH_SKIP;
        return;

    case '}':
    case ']':
        kvr_push_close(p);
        return;

    case ',':
        p->state = KVR_PUSH_BEFORE;
        return;
    }

    if (kind & KVR_PUSH_NUMBER && c >= '0' && c <= '9') {
        p->number = c - '0';
        p->state = KVR_PUSH_DIGITS;
        return;
    }

    p->state = KVR_PUSH_AFTER;
}


static void
kvr_push_close(kvr_push_t *p)
{
    p->state = --p->depth ? KVR_PUSH_AFTER : KVR_PUSH_END;
}
