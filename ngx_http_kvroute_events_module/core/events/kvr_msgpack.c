
/*
 * Copyright (C) kvroute contributors
 */


#include "core/events/kvr_msgpack.h"


/* bytes of a value that has no others behind it; 0: it may have */
static const uint8_t  kvr_msgpack_scalar[256] = {
    [0x00 ... 0x7f] = 1,                               /* small ints */
    [0xc0] = 1, [0xc2] = 1, [0xc3] = 1,                /* nil, false, true */
    [0xca] = 5, [0xcb] = 9,                            /* floats */
    [0xcc] = 2, [0xcd] = 3, [0xce] = 5, [0xcf] = 9,    /* ints */
    [0xd0] = 2, [0xd1] = 3, [0xd2] = 5, [0xd3] = 9,
    [0xe0 ... 0xff] = 1                                /* small, negative */
};

/* bytes of a head, 0: there is none that begins so */
static const uint8_t  kvr_msgpack_head[256] = {
    [0x00 ... 0xbf] = 1,
    [0xc0] = 1, [0xc2] = 1, [0xc3] = 1,
    [0xc4] = 2, [0xc5] = 3, [0xc6] = 5,                /* binary */
    [0xc7] = 3, [0xc8] = 4, [0xc9] = 6,                /* extensions */
    [0xca] = 5, [0xcb] = 9,
    [0xcc] = 2, [0xcd] = 3, [0xce] = 5, [0xcf] = 9,
    [0xd0] = 2, [0xd1] = 3, [0xd2] = 5, [0xd3] = 9,
    [0xd4 ... 0xd8] = 2,                               /* of fixed length */
    [0xd9] = 2, [0xda] = 3, [0xdb] = 5,                /* strings */
    [0xdc] = 3, [0xdd] = 5,                            /* arrays */
    [0xde] = 3, [0xdf] = 5,                            /* maps */
    [0xe0 ... 0xff] = 1
};


static const uint8_t *kvr_msgpack_gather(kvr_msgpack_t *m, const uint8_t **p,
    const uint8_t *end);
static kvr_msgpack_e kvr_msgpack_begin(kvr_msgpack_t *m, const uint8_t *head);
static inline void kvr_msgpack_short(kvr_msgpack_t *m, const uint8_t *s);
static inline uint64_t kvr_msgpack_number(const uint8_t *p, unsigned n);
static kvr_msgpack_e kvr_msgpack_string(kvr_msgpack_t *m, const uint8_t **p,
    const uint8_t *end);

_Static_assert(KVR_MSGPACK_TEXT >= sizeof(uint64_t), "a tail is in the text");


kvr_msgpack_e
kvr_msgpack_next(kvr_msgpack_t *m, const uint8_t **p, const uint8_t *end)
{
    kvr_msgpack_e   kind;
    const uint8_t  *head;

    if (m->kind != KVR_MSGPACK_AGAIN) {
        return kvr_msgpack_string(m, p, end);
    }

    if (m->have == 0 && end - *p >= (ptrdiff_t) sizeof(m->head)) {
        head = *p;
        *p += kvr_msgpack_head[*head];

    } else {
        head = kvr_msgpack_gather(m, p, end);

        if (head == NULL) {
            return KVR_MSGPACK_AGAIN;
        }
    }

    kind = kvr_msgpack_begin(m, head);

    if (kind < KVR_MSGPACK_STR || kind > KVR_MSGPACK_EXT) {
        return kind;
    }

    m->len = (uint32_t) m->left;
    m->tail = 0;

    /* as it nearly always is: short, and not at the end of what there is */

    if (m->left <= KVR_MSGPACK_TEXT && end - *p >= KVR_MSGPACK_TEXT) {
        kvr_msgpack_short(m, *p);
        *p += m->left;
        m->left = 0;

        return kind;
    }

    m->kind = kind;

    return kvr_msgpack_string(m, p, end);
}


/* KVR_MSGPACK_TEXT bytes can be read: what is behind the string does not count */
static inline void
kvr_msgpack_short(kvr_msgpack_t *m, const uint8_t *s)
{
    memcpy(m->text, s, KVR_MSGPACK_TEXT);

    if (m->left >= sizeof(uint64_t)) {
        m->tail = kvr_msgpack_number(s + m->left - sizeof(uint64_t),
                                     sizeof(uint64_t));

    } else if (m->left) {
        m->tail = kvr_msgpack_number(s, sizeof(uint64_t))
                  >> 8 * (sizeof(uint64_t) - m->left);
    }
}


/* the head of a value, from pieces; NULL if it is not complete */
static const uint8_t *
kvr_msgpack_gather(kvr_msgpack_t *m, const uint8_t **p, const uint8_t *end)
{
    uint32_t  size;

    while (*p < end) {
        m->head[m->have++] = *(*p)++;
        size = kvr_msgpack_head[m->head[0]];

        if (m->have >= size) {
            m->have = 0;
            return m->head;
        }
    }

    return NULL;
}


static inline uint64_t
kvr_msgpack_number(const uint8_t *p, unsigned n)
{
    uint64_t  value;

    if (n == sizeof(uint64_t)) {
        memcpy(&value, p, sizeof(uint64_t));
        return __builtin_bswap64(value);
    }

    value = 0;

    while (n--) {
        value = value << 8 | *p++;
    }

    return value;
}


/* what a head says: the number, and how many bytes come after it */
static kvr_msgpack_e
kvr_msgpack_begin(kvr_msgpack_t *m, const uint8_t *head)
{
    uint8_t  b;

    b = *head++;

    if (b < 0x80 || b >= 0xe0) {
        m->number = (uint64_t) (int64_t) (int8_t) b;
        return KVR_MSGPACK_INT;
    }

    if (b < 0xc0) {

        if (b >= 0xa0) {
            m->left = b & 0x1f;
            return KVR_MSGPACK_STR;
        }

        m->number = b & 0x0f;

        return b < 0x90 ? KVR_MSGPACK_MAP : KVR_MSGPACK_ARRAY;
    }

    switch (b) {

    case 0xc0:
        return KVR_MSGPACK_NIL;

    case 0xc2:
    case 0xc3:
        m->number = b & 1;
        return KVR_MSGPACK_BOOL;

    case 0xc4:
    case 0xc5:
    case 0xc6:
        m->left = kvr_msgpack_number(head, 1U << (b - 0xc4));
        return KVR_MSGPACK_BIN;

    case 0xc7:
    case 0xc8:
    case 0xc9:
        m->left = kvr_msgpack_number(head, 1U << (b - 0xc7));
        return KVR_MSGPACK_EXT;

    case 0xca:
    case 0xcb:
        return KVR_MSGPACK_FLOAT;

    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
        m->number = kvr_msgpack_number(head, 1U << (b - 0xcc));
        return KVR_MSGPACK_INT;

    case 0xd0:
        m->number = (uint64_t) (int64_t) (int8_t) *head;
        return KVR_MSGPACK_INT;

    case 0xd1:
        m->number = (uint64_t) (int64_t) (int16_t) kvr_msgpack_number(head, 2);
        return KVR_MSGPACK_INT;

    case 0xd2:
        m->number = (uint64_t) (int64_t) (int32_t) kvr_msgpack_number(head, 4);
        return KVR_MSGPACK_INT;

    case 0xd3:
        m->number = kvr_msgpack_number(head, 8);
        return KVR_MSGPACK_INT;

    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
        m->left = 1U << (b - 0xd4);
        return KVR_MSGPACK_EXT;

    case 0xd9:
    case 0xda:
    case 0xdb:
        m->left = kvr_msgpack_number(head, 1U << (b - 0xd9));
        return KVR_MSGPACK_STR;

    case 0xdc:
    case 0xdd:
        m->number = kvr_msgpack_number(head, 2U << (b - 0xdc));
        return KVR_MSGPACK_ARRAY;

    case 0xde:
    case 0xdf:
        m->number = kvr_msgpack_number(head, 2U << (b - 0xde));
        return KVR_MSGPACK_MAP;

    default:
        return KVR_MSGPACK_ERROR;
    }
}


/* bytes of a string, of binary data or of an extension */
static kvr_msgpack_e
kvr_msgpack_string(kvr_msgpack_t *m, const uint8_t **p, const uint8_t *end)
{
    size_t          n, i;
    uint64_t        at;
    kvr_msgpack_e   kind;
    const uint8_t  *s;

    n = kvr_min((size_t) (end - *p), m->left);
    at = m->len - m->left;
    s = *p;

    if (at < KVR_MSGPACK_TEXT) {
        memcpy(m->text + at, s, kvr_min(n, KVR_MSGPACK_TEXT - at));
    }

    if (n >= sizeof(uint64_t)) {
        m->tail = kvr_msgpack_number(s + n - sizeof(uint64_t),
                                     sizeof(uint64_t));

    } else {
        for (i = 0; i < n; i++) {
            m->tail = m->tail << 8 | s[i];
        }
    }

    *p += n;
    m->left -= n;

    if (m->left) {
        return KVR_MSGPACK_AGAIN;
    }

    kind = (kvr_msgpack_e) m->kind;
    m->kind = KVR_MSGPACK_AGAIN;

    return kind;
}


int
kvr_msgpack_skip(kvr_msgpack_t *m, const uint8_t **p, const uint8_t *end)
{
    size_t          n;
    uint64_t        values;
    const uint8_t  *s, *head;

    s = *p;
    values = m->values;

    for ( ;; ) {

        n = kvr_min((size_t) (end - s), m->left);
        s += n;
        m->left -= n;

        if (m->left || values == 0) {
            break;
        }

        /* nearly all there is are the numbers of tokens */

        if (m->have == 0) {

            while (values && end - s >= 9 && kvr_msgpack_scalar[*s]) {
                s += kvr_msgpack_scalar[*s];
                values--;
            }

            if (values == 0) {
                break;
            }
        }

        head = kvr_msgpack_gather(m, &s, end);

        if (head == NULL) {
            break;
        }

        switch (kvr_msgpack_begin(m, head)) {

        case KVR_MSGPACK_ERROR:
            return KVR_ERROR;

        case KVR_MSGPACK_ARRAY:
            values += m->number;
            break;

        case KVR_MSGPACK_MAP:
            values += 2 * m->number;
            break;

        default:
            break;
        }

        values--;
    }

    *p = s;
    m->values = values;

    return values || m->left ? KVR_AGAIN : KVR_OK;
}


static int
kvr_msgpack_same(const kvr_msgpack_t *m, const char *word, size_t len)
{
    size_t   i;
    uint8_t  c;

    if (len > KVR_MSGPACK_TEXT) {
        return 0;
    }

    for (i = 0; i < len; i++) {
        c = m->text[i];
        c = c >= 'A' && c <= 'Z' ? c | 0x20 : c;

        if (c != (uint8_t) word[i]) {
            return 0;
        }
    }

    return 1;
}


int
kvr_msgpack_is(const kvr_msgpack_t *m, const char *word)
{
    size_t  len;

    len = strlen(word);

    return m->len == len && kvr_msgpack_same(m, word, len);
}


int
kvr_msgpack_begins(const kvr_msgpack_t *m, const char *word)
{
    size_t  len;

    len = strlen(word);

    return m->len >= len && kvr_msgpack_same(m, word, len);
}
