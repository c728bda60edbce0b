
/*
 * Copyright (C) kvroute contributors
 */


#include "core/events/kvr_msgpack.h"


/* kinds that kvr_msgpack_next() does not return */
#define KVR_MSGPACK_SIGNED  (KVR_MSGPACK_OTHER + 1)
#define KVR_MSGPACK_EXT     (KVR_MSGPACK_OTHER + 2)


/*
 * values whose first byte is 0xc0 to 0xdf: kind, bytes of the number behind it
 */
static const struct {
    uint8_t  kind;
    uint8_t  size;
} kvr_msgpack_heads[] = {
    { KVR_MSGPACK_OTHER, 0 }, { KVR_MSGPACK_ERROR, 0 },          /* nil */
    { KVR_MSGPACK_OTHER, 0 }, { KVR_MSGPACK_OTHER, 0 },          /* booleans */
    { KVR_MSGPACK_STR, 1 }, { KVR_MSGPACK_STR, 2 },              /* binary */
    { KVR_MSGPACK_STR, 4 },
    { KVR_MSGPACK_EXT, 1 }, { KVR_MSGPACK_EXT, 2 },
    { KVR_MSGPACK_EXT, 4 },
    { KVR_MSGPACK_OTHER, 4 }, { KVR_MSGPACK_OTHER, 8 },          /* floats */
    { KVR_MSGPACK_INT, 1 }, { KVR_MSGPACK_INT, 2 },
    { KVR_MSGPACK_INT, 4 }, { KVR_MSGPACK_INT, 8 },
    { KVR_MSGPACK_SIGNED, 1 }, { KVR_MSGPACK_SIGNED, 2 },
    { KVR_MSGPACK_SIGNED, 4 }, { KVR_MSGPACK_SIGNED, 8 },
    { KVR_MSGPACK_EXT, 0 }, { KVR_MSGPACK_EXT, 0 },             /* 1, 2, 4, 8, */
    { KVR_MSGPACK_EXT, 0 }, { KVR_MSGPACK_EXT, 0 },             /* 16 bytes */
    { KVR_MSGPACK_EXT, 0 },
    { KVR_MSGPACK_STR, 1 }, { KVR_MSGPACK_STR, 2 },
    { KVR_MSGPACK_STR, 4 },
    { KVR_MSGPACK_ARRAY, 2 }, { KVR_MSGPACK_ARRAY, 4 },
    { KVR_MSGPACK_MAP, 2 }, { KVR_MSGPACK_MAP, 4 }
};

_Static_assert(kvr_nelts(kvr_msgpack_heads) == 32, "heads");


static kvr_msgpack_e kvr_msgpack_bytes(kvr_msgpack_t *m, uint64_t len,
    kvr_msgpack_e kind);


static kvr_msgpack_e
kvr_msgpack_fail(kvr_msgpack_t *m)
{
    m->p = m->end;

    return KVR_MSGPACK_ERROR;
}


kvr_msgpack_e
kvr_msgpack_next(kvr_msgpack_t *m)
{
    uint8_t        b;
    unsigned       i, kind, size;

    if (m->p == m->end) {
        return KVR_MSGPACK_ERROR;
    }

    b = *m->p++;

    if (b < 0x80 || b >= 0xe0) {
        m->number = (uint64_t) (int64_t) (int8_t) b;
        return KVR_MSGPACK_INT;
    }

    if (b < 0xa0) {
        m->number = b & 0x0f;
        return b < 0x90 ? KVR_MSGPACK_MAP : KVR_MSGPACK_ARRAY;
    }

    if (b < 0xc0) {
        return kvr_msgpack_bytes(m, b & 0x1f, KVR_MSGPACK_STR);
    }

    kind = kvr_msgpack_heads[b - 0xc0].kind;
    size = kvr_msgpack_heads[b - 0xc0].size;

    if ((size_t) (m->end - m->p) < size) {
        return kvr_msgpack_fail(m);
    }

    m->number = 0;

    for (i = 0; i < size; i++) {
        m->number = m->number << 8 | *m->p++;
    }

    switch (kind) {

    case KVR_MSGPACK_ERROR:
        return kvr_msgpack_fail(m);

    case KVR_MSGPACK_STR:
        return kvr_msgpack_bytes(m, m->number, KVR_MSGPACK_STR);

    case KVR_MSGPACK_EXT:

        /* a byte with its type comes first */

        return kvr_msgpack_bytes(m, 1 + (size ? m->number : 1U << (b - 0xd4)),
                                 KVR_MSGPACK_OTHER);

    case KVR_MSGPACK_SIGNED:
        size = 64 - 8 * size;
        m->number = (uint64_t) ((int64_t) (m->number << size) >> size);
        return KVR_MSGPACK_INT;

    default:
        return (kvr_msgpack_e) kind;
    }
}


static kvr_msgpack_e
kvr_msgpack_bytes(kvr_msgpack_t *m, uint64_t len, kvr_msgpack_e kind)
{
    if ((uint64_t) (m->end - m->p) < len) {
        return kvr_msgpack_fail(m);
    }

    m->text = m->p;
    m->len = (uint32_t) len;
    m->p += len;

    return kind;
}


int
kvr_msgpack_skip(kvr_msgpack_t *m, uint64_t n)
{
    for ( /* void */ ; n; n--) {

        /* nearly all values of a payload are token ids: 16 or 32 bits */

        if (m->end - m->p > 4 && (*m->p == 0xcd || *m->p == 0xce)) {
            m->p += *m->p == 0xcd ? 3 : 5;
            continue;
        }

        switch (kvr_msgpack_next(m)) {

        case KVR_MSGPACK_ERROR:
            return KVR_ERROR;

        case KVR_MSGPACK_ARRAY:
            n += m->number;
            break;

        case KVR_MSGPACK_MAP:
            n += 2 * m->number;
            break;

        default:
            break;
        }
    }

    return KVR_OK;
}
