
/*
 * Copyright (C) kvroute contributors
 */


#include "core/text/kvr_json_push.h"
#include "core/text/kvr_json_scan.h"


#define KVR_PUSH_IN_ARRAY  0x80
#define KVR_PUSH_NONE      0xff
#define KVR_PUSH_SKIP_MAX  4096  /* deeper than any engine nests */

_Static_assert(KVR_PUSH_NODES <= KVR_PUSH_IN_ARRAY, "a bit next to the node");


/*
 *     START -> BEFORE -> (KEY ->) COLON -> BEGIN -> a value -> AFTER
 *                ^                           |                   |
 *                +--- a followed container --+------- "," -------+
 *
 * A value is IN_TEXT, DIGITS or SKIP, or a scalar, which AFTER passes over.
 * The last bracket of a container leads to AFTER in the outer one, or to END.
 */
typedef enum {
    KVR_PUSH_START = 0,
    KVR_PUSH_BEFORE,             /* a member, an item or the last bracket */
    KVR_PUSH_KEY,                /* in pieces or with an escape */
    KVR_PUSH_KEY_ESCAPE,
    KVR_PUSH_COLON,
    KVR_PUSH_BEGIN,              /* a value */
    KVR_PUSH_IN_TEXT,            /* for the handler or not, also in SKIP */
    KVR_PUSH_TEXT_ESCAPE,
    KVR_PUSH_DIGITS,
    KVR_PUSH_SKIP,               /* inside a container that is not followed */
    KVR_PUSH_AFTER,              /* after a value, or inside a scalar */
    KVR_PUSH_END,                /* all states before it need more text */
    KVR_PUSH_BAD
} kvr_push_state_e;


static kvr_push_state_e kvr_push_open(kvr_push_t *p, const kvr_push_entry_t *e,
    uint8_t c, kvr_push_pt handler, void *ctx);
static inline kvr_push_state_e kvr_push_close(kvr_push_t *p);
static inline const uint8_t *kvr_push_over_scalar(const uint8_t *p,
    const uint8_t *end);
static inline const uint8_t *kvr_push_over_text(const uint8_t *p,
    const uint8_t *end);
static inline const kvr_push_entry_t *kvr_push_find(const kvr_push_t *p,
    const kvr_push_node_t *node, const uint8_t *key, size_t len);


void
kvr_push_init(kvr_push_t *p, unsigned level)
{
    p->state = KVR_PUSH_START;
    p->level = (uint8_t) level;
    p->depth = 0;
    p->skip = 0;
    p->entry = NULL;
}


/*
 * Each state consumes as much of the piece as it can and usually falls through
 * to the next one.  If the piece ends inside a state, the next piece continues
 * in that state.
 */
int
kvr_push_feed(kvr_push_t *p, const kvr_push_node_t *table,
    const uint8_t *data, size_t len, kvr_push_pt handler, void *ctx)
{
    size_t                   n;
    uint8_t                  c, in;
    uint64_t                 number;
    unsigned                 closed, wanted;
    const uint8_t           *end, *s;
    kvr_push_state_e         state;
    const kvr_push_entry_t  *e;

    end = data + len;
    state = p->state;
    e = p->entry;

    while (data < end && state < KVR_PUSH_END) {

        switch (state) {

        case KVR_PUSH_START:

            c = *data++;

            if (c == '{' || c == '[') {
                p->node[0] = (c == '[') ? KVR_PUSH_IN_ARRAY : 0;
                p->depth = 1;
                state = KVR_PUSH_BEFORE;

            } else if (c > ' ') {
                state = KVR_PUSH_BAD;
            }

            break;

        case KVR_PUSH_AFTER:

            if (*data != ',') {
                data = kvr_push_over_scalar(data, end);

                if (data == end) {
                    break;
                }

                if (*data != ',') {
                    data++;
                    state = kvr_push_close(p);
                    break;
                }
            }

            state = KVR_PUSH_BEFORE;

            if (++data == end) {
                break;
            }

            /* fall through */

        case KVR_PUSH_BEFORE:

            c = *data;
            in = p->node[p->depth - 1];

            if (kvr_unlikely(c != '"' || in & KVR_PUSH_IN_ARRAY)) {

                if (c <= ' ' || c == ',') {
                    data++;

                } else if (c == '}' || c == ']') {
                    data++;
                    state = kvr_push_close(p);

                } else if (in & KVR_PUSH_IN_ARRAY) {
                    e = NULL;
                    state = KVR_PUSH_BEGIN;

                } else {
                    state = KVR_PUSH_BAD;
                }

                break;
            }

            s = ++data;
            data = kvr_scan_text(data, end);

            if (kvr_unlikely(data == end || *data != '"')) {
                data = s;
                p->key_len = 0;
                state = KVR_PUSH_KEY;
                break;
            }

            e = kvr_push_find(p, &table[in], s, (size_t) (data - s));
            state = KVR_PUSH_COLON;

            if (++data == end) {
                break;
            }

            /* fall through */

        case KVR_PUSH_COLON:

            c = *data;

            if (kvr_unlikely(c != ':')) {

                if (c > ' ') {
                    state = KVR_PUSH_BAD;
                }

                data++;
                break;
            }

            state = KVR_PUSH_BEGIN;

            if (++data == end) {
                break;
            }

            /* fall through */

        case KVR_PUSH_BEGIN:

            c = *data;

            if (c != '"') {

                if (c == '{' || c == '[') {
                    data++;
                    state = kvr_push_open(p, e, c, handler, ctx);

                } else if (c >= '0' && c <= '9' && e
                           && e->kind & KVR_PUSH_NUMBER)
                {
                    p->number = 0;
                    state = KVR_PUSH_DIGITS;

                } else if (c > ' ') {
                    state = KVR_PUSH_AFTER;

                } else {
                    data++;
                }

                break;
            }

            data++;

            if (e == NULL) {
                s = kvr_push_over_text(data, end);

                if (kvr_likely(s < end && *s == '"')) {
                    data = s + 1;
                    state = KVR_PUSH_AFTER;
                    break;
                }
            }

            state = KVR_PUSH_IN_TEXT;

            /* fall through */

        case KVR_PUSH_IN_TEXT:

            s = data;
            data = kvr_push_over_text(data, end);
            closed = (data < end && *data == '"');
            wanted = e && e->kind & KVR_PUSH_STRING && p->skip == 0;

            if (kvr_unlikely(!closed && data < end)) {
                state = KVR_PUSH_TEXT_ESCAPE;
                data = end;
            }

            if (wanted && data > s) {
                handler(ctx, e->leaf, KVR_PUSH_TEXT, s, (size_t) (data - s), 0);
            }

            if (!closed) {
                break;
            }

            if (wanted) {
                handler(ctx, e->leaf, KVR_PUSH_TEXT_END, NULL, 0, 0);
            }

            data++;
            state = p->skip ? KVR_PUSH_SKIP : KVR_PUSH_AFTER;
            break;

        case KVR_PUSH_TEXT_ESCAPE:

            if (e && e->kind & KVR_PUSH_STRING && p->skip == 0) {
                handler(ctx, e->leaf, KVR_PUSH_TEXT, data, 1, 0);
            }

            data++;
            state = KVR_PUSH_IN_TEXT;
            break;

        case KVR_PUSH_DIGITS:

            for (number = p->number;
                 data < end && *data >= '0' && *data <= '9'; data++)
            {
                if (number < UINT32_MAX) {
                    number = number * 10 + (*data - '0');
                }
            }

            if (data == end) {
                p->number = number;
                break;
            }

            handler(ctx, e->leaf, KVR_PUSH_VALUE, NULL, 0, number);
            state = KVR_PUSH_AFTER;
            break;

        case KVR_PUSH_SKIP:

            data = kvr_scan_nest(data, end);

            if (data == end) {
                break;
            }

            c = *data++;

            if (c == '"') {
                s = kvr_push_over_text(data, end);

                if (s < end && *s == '"') {
                    data = s + 1;

                } else {
                    state = KVR_PUSH_IN_TEXT;
                }

            } else if (c == '{' || c == '[') {

                if (++p->skip > KVR_PUSH_SKIP_MAX) {
                    state = KVR_PUSH_BAD;
                }

            } else if (--p->skip == 0) {
                state = KVR_PUSH_AFTER;
            }

            break;

        case KVR_PUSH_KEY_ESCAPE:
            data++;
            state = KVR_PUSH_KEY;
            break;

        default: /* KVR_PUSH_KEY */

            s = data;
            data = kvr_scan_text(data, end);
            n = (size_t) (data - s);

            if (p->key_len + n <= KVR_PUSH_KEY_LEN) {
                memcpy(&p->key[p->key_len], s, n);
                p->key_len += (uint8_t) n;

            } else {
                p->key_len = KVR_PUSH_KEY_LEN + 1;
            }

            if (data == end) {
                break;
            }

            if (*data++ == '"') {
                e = kvr_push_find(p, &table[p->node[p->depth - 1]], p->key,
                                  p->key_len);
                state = KVR_PUSH_COLON;

            } else {

                /* no name in a table has an escape */

                p->key_len = KVR_PUSH_KEY_LEN + 1;
                state = KVR_PUSH_KEY_ESCAPE;
            }

            break;
        }
    }

    p->state = (uint8_t) state;
    p->entry = e;

    return state == KVR_PUSH_END ? KVR_OK
                                 : state == KVR_PUSH_BAD ? KVR_ERROR
                                                         : KVR_AGAIN;
}


/* Follows or skips the container that begins with c. */
static kvr_push_state_e
kvr_push_open(kvr_push_t *p, const kvr_push_entry_t *e, uint8_t c,
    kvr_push_pt handler, void *ctx)
{
    unsigned  in, into;

    in = p->node[p->depth - 1];
    into = KVR_PUSH_NONE;

    if (e == NULL) {
        if (in & KVR_PUSH_IN_ARRAY && c == '{') {
            into = in & ~KVR_PUSH_IN_ARRAY;
        }

    } else if (e->kind & (c == '{' ? KVR_PUSH_OBJECT : KVR_PUSH_ARRAY)) {
        into = c == '{' ? e->into : e->into | KVR_PUSH_IN_ARRAY;
        handler(ctx, e->leaf, KVR_PUSH_OPEN, NULL, 0, 0);
    }

    if (into == KVR_PUSH_NONE || p->depth == KVR_PUSH_DEPTH) {
        p->skip = 1;
        return KVR_PUSH_SKIP;
    }

    p->node[p->depth++] = (uint8_t) into;

    return KVR_PUSH_BEFORE;
}


static inline kvr_push_state_e
kvr_push_close(kvr_push_t *p)
{
    return --p->depth ? KVR_PUSH_AFTER : KVR_PUSH_END;
}


/* Returns the byte after a scalar, or the end. */
static inline const uint8_t *
kvr_push_over_scalar(const uint8_t *p, const uint8_t *end)
{
    while (p < end && *p != ',' && *p != '}' && *p != ']') {
        p++;
    }

    return p;
}


/*
 * Returns the quote that closes a string.  If it is not there: the end, or a
 * backslash that is the last byte.
 */
static inline const uint8_t *
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


/* Returns the entry of a key, or NULL. */
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
