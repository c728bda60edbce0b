
/*
 * Copyright (C) kvroute contributors
 */


#include "core/text/kvr_json_push.h"
#include "core/text/kvr_json_scan.h"


#define KVR_PUSH_IN_ARRAY  0x80
#define KVR_PUSH_NONE      0xff
#define KVR_PUSH_SKIP_MAX  4096  /* no engine nests as deep */

/* the handler's number for the member being read */
#define kvr_push_leaf(p, table)                                               \
    kvr_push_inside(p, table)->entry[(p)->entry].leaf

_Static_assert(KVR_PUSH_NODES <= KVR_PUSH_IN_ARRAY, "a bit beside the node");


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


static const uint8_t *kvr_push_members(kvr_push_t *p,
    const kvr_push_node_t *table, const uint8_t *data, const uint8_t *end,
    kvr_push_pt handler, void *ctx);
static inline const kvr_push_node_t *kvr_push_member_next(const kvr_push_t *p,
    const kvr_push_node_t *table, const uint8_t *data, const uint8_t *end);
static const uint8_t *kvr_push_over(const uint8_t *p, const uint8_t *end);
static const uint8_t *kvr_push_over_text(const uint8_t *p, const uint8_t *end);
static inline const kvr_push_node_t *kvr_push_inside(const kvr_push_t *p,
    const kvr_push_node_t *table);
static inline const kvr_push_entry_t *kvr_push_find(const kvr_push_t *p,
    const kvr_push_node_t *node, const uint8_t *key, size_t len);
static void kvr_push_begin(kvr_push_t *p, const kvr_push_node_t *table,
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
kvr_push_feed(kvr_push_t *p, const kvr_push_node_t *table,
    const uint8_t *data, size_t len, kvr_push_pt handler, void *ctx)
{
    size_t                   n;
    uint8_t                  c;
    unsigned                 over;
    const uint8_t           *end, *s;
    const kvr_push_node_t   *node;
    const kvr_push_entry_t  *e;

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

            s = kvr_push_members(p, table, data, end, handler, ctx);

            if (kvr_likely(s != NULL)) {
                data = s;
                break;
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
                node = kvr_push_inside(p, table);
                e = kvr_push_find(p, node, p->key, p->key_len);
                p->entry = e ? (uint8_t) (e - node->entry) : KVR_PUSH_NONE;
                p->state = KVR_PUSH_COLON;
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
            data = kvr_push_over_text(data, end);

            over = (data < end && *data == '"');
            n = (size_t) ((over ? data : end) - s);

            if (n) {
                handler(ctx, kvr_push_leaf(p, table), KVR_PUSH_TEXT, s, n, 0);
            }

            if (!over) {
                p->state = (data < end) ? KVR_PUSH_TEXT_ESCAPE
                                        : KVR_PUSH_IN_TEXT;
                return KVR_AGAIN;
            }

            p->state = KVR_PUSH_AFTER;
            handler(ctx, kvr_push_leaf(p, table), KVR_PUSH_TEXT_END, NULL, 0,
                    0);
            break;

        case KVR_PUSH_TEXT_ESCAPE:
            handler(ctx, kvr_push_leaf(p, table), KVR_PUSH_TEXT, data, 1, 0);
            p->state = KVR_PUSH_IN_TEXT;
            break;

        case KVR_PUSH_DIGITS:

            if (c >= '0' && c <= '9') {
                if (p->number < UINT32_MAX) {
                    p->number = p->number * 10 + (c - '0');
                }

                break;
            }

            handler(ctx, kvr_push_leaf(p, table), KVR_PUSH_VALUE, NULL, 0,
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

            data = kvr_push_over_text(data, end);

            if (data == end || *data != '"') {
                p->state = (data < end) ? KVR_PUSH_SKIP_ESCAPE
                                        : KVR_PUSH_SKIP_TEXT;
                return KVR_AGAIN;
            }

            p->state = p->skip ? KVR_PUSH_SKIP : KVR_PUSH_AFTER;
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
 * Members as they nearly always come: key, colon and value in one piece.
 * Returns the last byte that was taken; NULL: none, what is here is to be read
 * byte by byte.
 */
static const uint8_t *
kvr_push_members(kvr_push_t *p, const kvr_push_node_t *table,
    const uint8_t *data, const uint8_t *end, kvr_push_pt handler, void *ctx)
{
    uint8_t                  c;
    uint64_t                 number;
    unsigned                 kind;
    const uint8_t           *s, *key, *value, *last;
    const kvr_push_node_t   *node, *next;
    const kvr_push_entry_t  *e;

    node = kvr_push_inside(p, table);

    for (last = NULL; /* void */ ; data = s + 1) {

        key = data + 1;
        s = kvr_scan_text(key, end);

        /* the key's end, colon, space, and a byte of the value */

        if (end - s < 4 || s[0] != '"' || s[1] != ':') {
            return last;
        }

        e = kvr_push_find(p, node, key, (size_t) (s - key));
        kind = e ? e->kind : 0;

        s += 2 + (s[2] == ' ');
        c = *s;

        if (c == '"') {
            value = s + 1;
            s = kvr_scan_text(value, end);

            if (s < end && *s == '\\') {
                s = kvr_push_over_text(s, end);
            }

            if (s == end || *s != '"') {
                return last;
            }

            if (kind & KVR_PUSH_STRING) {

                if (s > value) {
                    handler(ctx, e->leaf, KVR_PUSH_TEXT, value,
                            (size_t) (s - value), 0);
                }

                handler(ctx, e->leaf, KVR_PUSH_TEXT_END, NULL, 0, 0);
            }

            s++;

        } else if (c == '{' || c == '[') {

            if (kind & (c == '{' ? KVR_PUSH_OBJECT : KVR_PUSH_ARRAY)) {

                p->entry = (uint8_t) (e - node->entry);
                kvr_push_begin(p, table, c, handler, ctx);

                next = kvr_push_member_next(p, table, s, end);

                if (next == NULL) {
                    return s;
                }

                node = next;
                last = s;
                continue;
            }

            s = kvr_push_over(s, end);

            if (s == end) {
                return last;
            }

            s++;

        } else if (c >= '0' && c <= '9' && kind & KVR_PUSH_NUMBER) {

            value = s;

            for (number = 0; s < end && *s >= '0' && *s <= '9'; s++) {
                if (number < UINT32_MAX) {
                    number = number * 10 + (*s - '0');
                }
            }

            if (s == end) {
                p->entry = (uint8_t) (e - node->entry);
                kvr_push_begin(p, table, c, handler, ctx);
                return value;
            }

            handler(ctx, e->leaf, KVR_PUSH_VALUE, NULL, 0, number);

        } else if (c <= ' ' || c == ',' || c == '}' || c == ']') {
            return last;
        }

        /* the value is over, and with it maybe what it is in */

        p->state = KVR_PUSH_AFTER;

        for ( ;; ) {

            while (s < end && *s != ',' && *s != '}' && *s != ']') {
                s++;
            }

            if (s == end) {
                return end - 1;
            }

            if (*s == ',') {
                break;
            }

            kvr_push_close(p);

            if (p->state == KVR_PUSH_END) {
                return s;
            }

            s++;
        }

        p->state = KVR_PUSH_BEFORE;

        next = kvr_push_member_next(p, table, s, end);

        if (next == NULL) {
            return s;
        }

        node = next;
        last = s;
    }
}


/* if another member begins right behind data, the node that it is of */
static inline const kvr_push_node_t *
kvr_push_member_next(const kvr_push_t *p, const kvr_push_node_t *table,
    const uint8_t *data, const uint8_t *end)
{
    uint8_t  in;

    in = p->node[p->depth - 1];

    if (p->state != KVR_PUSH_BEFORE || in & KVR_PUSH_IN_ARRAY
        || end - data < 2 || data[1] != '"')
    {
        return NULL;
    }

    return &table[in];
}


/* the last bracket of a container that begins here, or the end */
static const uint8_t *
kvr_push_over(const uint8_t *p, const uint8_t *end)
{
    unsigned  depth;

    for (depth = 0; /* void */ ; p++) {

        p = kvr_scan_nest(p, end);

        if (p == end) {
            return end;
        }

        if (*p == '"') {
            p = kvr_push_over_text(p + 1, end);

            if (p == end || *p != '"') {
                return end;
            }

        } else if (*p == '{' || *p == '[') {

            if (++depth > KVR_PUSH_SKIP_MAX) {
                return end;
            }

        } else if (--depth == 0) {
            return p;
        }
    }
}


/* the quote that ends a text; without it the end, or the half escape there */
static const uint8_t *
kvr_push_over_text(const uint8_t *p, const uint8_t *end)
{
    for ( ;; ) {
        p = kvr_scan_text(p, end);

        if (p == end || *p == '"' || end - p < 2) {
            return p;
        }

        p += 2;
    }
}


/* the node of what is being read */
static inline const kvr_push_node_t *
kvr_push_inside(const kvr_push_t *p, const kvr_push_node_t *table)
{
    return &table[p->node[p->depth - 1] & ~KVR_PUSH_IN_ARRAY];
}


/* the entry of a key in a node, or NULL */
static inline const kvr_push_entry_t *
kvr_push_find(const kvr_push_t *p, const kvr_push_node_t *node,
    const uint8_t *key, size_t len)
{
    unsigned                 slot;
    const kvr_push_entry_t  *e;

    slot = kvr_push_slot(key, len);

    if (kvr_likely(!(node->filter[slot / 64] >> slot % 64 & 1))
        || len > KVR_PUSH_KEY_LEN)
    {
        return NULL;
    }

    for (e = node->entry; e->len; e++) {
        if (e->len == len && e->name[0] == (char) key[0] && e->level <= p->level
            && memcmp(e->name, key, len) == 0)
        {
            return e;
        }
    }

    return NULL;
}


/* a value begins: to be followed, told of, or passed over */
static void
kvr_push_begin(kvr_push_t *p, const kvr_push_node_t *table, uint8_t c,
    kvr_push_pt handler, void *ctx)
{
    unsigned                 kind, into;
    const kvr_push_entry_t  *e;

    e = NULL;
    kind = 0;
    into = 0;

    if (p->entry != KVR_PUSH_NONE) {
        e = &kvr_push_inside(p, table)->entry[p->entry];
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
