
/*
 * Copyright (C) kvroute contributors
 */


#include "core/events/kvr_kvevent.h"

#include <strings.h>


#define KVR_KVEVENT_GROUP_MAX  1024
#define KVR_KVEVENT_BLOCK_MAX  65536     /* tokens */


typedef enum {
    KVR_KVEVENT_OTHER = 0,
    KVR_KVEVENT_EVENTS,
    KVR_KVEVENT_TYPE,
    KVR_KVEVENT_BLOCKS,
    KVR_KVEVENT_PARENT,
    KVR_KVEVENT_TOKENS,
    KVR_KVEVENT_SIZE,
    KVR_KVEVENT_MEDIUM,
    KVR_KVEVENT_GROUP,
    KVR_KVEVENT_KIND,
    KVR_KVEVENT_SESSION
} kvr_kvevent_field_e;


typedef struct {
    const char  *name;
    uint8_t      value;
} kvr_kvevent_word_t;


/* fields of a map */
static const kvr_kvevent_word_t  kvr_kvevent_names[] = {
    { "type", KVR_KVEVENT_TYPE },
    { "block_hashes", KVR_KVEVENT_BLOCKS },
    { "medium", KVR_KVEVENT_MEDIUM },
    { "group_idx", KVR_KVEVENT_GROUP },
    { "parent_block_hash", KVR_KVEVENT_PARENT },
    { "token_ids", KVR_KVEVENT_TOKENS },
    { "block_size", KVR_KVEVENT_SIZE },
    { "kv_cache_spec_kind", KVR_KVEVENT_KIND },
    { "session_id", KVR_KVEVENT_SESSION },
    { "events", KVR_KVEVENT_EVENTS }
};


/* fields of an array, by position */

static const uint8_t  kvr_kvevent_stored[] = {
    KVR_KVEVENT_TYPE, KVR_KVEVENT_BLOCKS, KVR_KVEVENT_PARENT,
    KVR_KVEVENT_TOKENS, KVR_KVEVENT_SIZE, KVR_KVEVENT_OTHER,
    KVR_KVEVENT_MEDIUM, KVR_KVEVENT_OTHER, KVR_KVEVENT_OTHER,
    KVR_KVEVENT_GROUP, KVR_KVEVENT_KIND
};

static const uint8_t  kvr_kvevent_removed[] = {
    KVR_KVEVENT_TYPE, KVR_KVEVENT_BLOCKS, KVR_KVEVENT_MEDIUM,
    KVR_KVEVENT_GROUP
};


static const kvr_kvevent_word_t  kvr_kvevent_types[] = {
    { "BlockRemoved", KVR_KVEVENT_REMOVED },
    { "BlockStored", KVR_KVEVENT_STORED },
    { "AllBlocksCleared", KVR_KVEVENT_CLEARED }
};


/* layers whose blocks do not show for how long a prompt is kept */
static const char *const  kvr_kvevent_parts[] = {
    "sliding", "chunked", "mamba", "cross", "encoder", "linear"
};

/* tiers below the memory of the GPU; stores of several engines are none */
static const char *const  kvr_kvevent_tiers[] = { "cpu", "disk", "storage" };


static int kvr_kvevent_event(kvr_kvevent_reader_t *r);
static uint8_t kvr_kvevent_key(kvr_msgpack_t *m);
static uint8_t kvr_kvevent_placed(const kvr_kvevent_t *e, uint64_t i);
static int kvr_kvevent_value(kvr_kvevent_t *e, kvr_msgpack_t *m,
    uint8_t field);
static int kvr_kvevent_hashes(kvr_kvevent_t *e, kvr_msgpack_t *m);
static uint64_t kvr_kvevent_hash(const kvr_msgpack_t *m, kvr_msgpack_e kind);
static int kvr_kvevent_skip(kvr_msgpack_t *m, kvr_msgpack_e kind);


void
kvr_kvevent_begin(kvr_kvevent_reader_t *r, const uint8_t *p, size_t len)
{
    uint64_t        n;
    kvr_msgpack_e   kind;
    kvr_msgpack_t  *m;

    m = &r->msgpack;

    kvr_msgpack_init(m, p, len);

    kind = kvr_msgpack_next(m);
    n = m->number;

    r->events = 0;
    r->behind = 1;                       /* an error: there is no such value */

    if (kind == KVR_MSGPACK_ARRAY) {

        /* the events are the second item */

        if (kvr_msgpack_skip(m, kvr_min(n, 1)) != KVR_OK) {
            return;
        }

        n -= kvr_min(n, 1);

    } else if (kind == KVR_MSGPACK_MAP) {

        while (n && kvr_kvevent_key(m) != KVR_KVEVENT_EVENTS) {
            n--;

            if (kvr_msgpack_skip(m, 1) != KVR_OK) {
                return;
            }
        }

        n = n ? 2 * n - 1 : 0;

    } else {
        return;
    }

    if (n == 0) {
        r->behind = 0;
        return;
    }

    kind = kvr_msgpack_next(m);

    if (kind == KVR_MSGPACK_ARRAY) {
        r->events = m->number;

    } else if (kvr_kvevent_skip(m, kind) != KVR_OK) {
        return;
    }

    r->behind = n - 1;
}


kvr_kvevent_e
kvr_kvevent_read(kvr_kvevent_reader_t *r)
{
    kvr_msgpack_t  *m;

    m = &r->msgpack;

    if (r->events) {
        r->events--;
        return kvr_kvevent_event(r) == KVR_OK ? KVR_KVEVENT_FOUND
                                              : KVR_KVEVENT_INVALID;
    }

    return kvr_msgpack_skip(m, r->behind) == KVR_OK && m->p == m->end
           ? KVR_KVEVENT_DONE : KVR_KVEVENT_INVALID;
}


static int
kvr_kvevent_event(kvr_kvevent_reader_t *r)
{
    uint8_t         field;
    uint64_t        i, n;
    kvr_msgpack_e   kind;
    kvr_msgpack_t  *m;

    m = &r->msgpack;

    kind = kvr_msgpack_next(m);

    if (kind != KVR_MSGPACK_ARRAY && kind != KVR_MSGPACK_MAP) {
        return KVR_ERROR;
    }

    memset(&r->event, 0, offsetof(kvr_kvevent_t, hash));
    r->event.rooted = 1;

    n = m->number;

    for (i = 0; i < n; i++) {

        field = kind == KVR_MSGPACK_MAP ? kvr_kvevent_key(m)
                                        : kvr_kvevent_placed(&r->event, i);

        if (kvr_kvevent_value(&r->event, m, field) != KVR_OK) {
            return KVR_ERROR;
        }
    }

    return KVR_OK;
}


/* returns the value of the word that was read, 0 if it is none of these */
static uint8_t
kvr_kvevent_find(const kvr_msgpack_t *m, const kvr_kvevent_word_t *word,
    unsigned n)
{
    unsigned  i;

    for (i = 0; i < n; i++) {
        if (m->len == strlen(word[i].name)
            && memcmp(m->text, word[i].name, m->len) == 0)
        {
            return word[i].value;
        }
    }

    return 0;
}


/* reads the key of a member; after an error reading its value fails */
static uint8_t
kvr_kvevent_key(kvr_msgpack_t *m)
{
    kvr_msgpack_e  kind;

    kind = kvr_msgpack_next(m);

    if (kind == KVR_MSGPACK_STR) {
        return kvr_kvevent_find(m, kvr_kvevent_names,
                                kvr_nelts(kvr_kvevent_names));
    }

    (void) kvr_kvevent_skip(m, kind);

    return KVR_KVEVENT_OTHER;
}


static uint8_t
kvr_kvevent_placed(const kvr_kvevent_t *e, uint64_t i)
{
    if (i == 0) {
        return KVR_KVEVENT_TYPE;
    }

    if (e->type == KVR_KVEVENT_STORED && i < kvr_nelts(kvr_kvevent_stored)) {
        return kvr_kvevent_stored[i];
    }

    if (e->type == KVR_KVEVENT_REMOVED && i < kvr_nelts(kvr_kvevent_removed)) {
        return kvr_kvevent_removed[i];
    }

    return KVR_KVEVENT_OTHER;
}


/* whether a string begins with a word, in any case */
static int
kvr_kvevent_begins(const kvr_msgpack_t *m, const char *word)
{
    size_t  len;

    len = strlen(word);

    return m->len >= len
           && strncasecmp((const char *) m->text, word, len) == 0;
}


static int
kvr_kvevent_value(kvr_kvevent_t *e, kvr_msgpack_t *m, uint8_t field)
{
    unsigned       i;
    kvr_msgpack_e  kind;

    kind = kvr_msgpack_next(m);

    if (kind == KVR_MSGPACK_ARRAY) {

        if (field == KVR_KVEVENT_BLOCKS) {
            return kvr_kvevent_hashes(e, m);
        }

        if (field == KVR_KVEVENT_TOKENS) {
            e->tokens = m->number;
        }
    }

    if (kind == KVR_MSGPACK_STR) {

        switch (field) {

        case KVR_KVEVENT_TYPE:
            e->type = (kvr_kvevent_type_e)
                      kvr_kvevent_find(m, kvr_kvevent_types,
                                       kvr_nelts(kvr_kvevent_types));
            break;

        case KVR_KVEVENT_MEDIUM:
            e->elsewhere = !(m->len == 3 && kvr_kvevent_begins(m, "gpu"))
                           && !(m->len == 6 && kvr_kvevent_begins(m, "device"));

            for (i = 0; i < kvr_nelts(kvr_kvevent_tiers); i++) {
                e->below |= kvr_kvevent_begins(m, kvr_kvevent_tiers[i]) != 0;
            }

            break;

        case KVR_KVEVENT_KIND:

            for (i = 0; i < kvr_nelts(kvr_kvevent_parts); i++) {
                e->part |= kvr_kvevent_begins(m, kvr_kvevent_parts[i]) != 0;
            }

            break;

        case KVR_KVEVENT_SESSION:
            e->session = kvr_kvevent_session(m->text, m->len);
            break;
        }
    }

    if (kind == KVR_MSGPACK_INT) {

        if (field == KVR_KVEVENT_SIZE && m->number <= KVR_KVEVENT_BLOCK_MAX) {
            e->block = (uint32_t) m->number;
        }

        if (field == KVR_KVEVENT_GROUP && m->number <= KVR_KVEVENT_GROUP_MAX) {
            e->group = (uint32_t) m->number;
        }
    }

    if (field == KVR_KVEVENT_PARENT
        && (kind == KVR_MSGPACK_INT || kind == KVR_MSGPACK_STR))
    {
        e->parent = kvr_kvevent_hash(m, kind);
        e->rooted = 0;
    }

    return kvr_kvevent_skip(m, kind);
}


static int
kvr_kvevent_hashes(kvr_kvevent_t *e, kvr_msgpack_t *m)
{
    uint64_t       i, n;
    kvr_msgpack_e  kind;

    n = m->number;

    for (i = 0; i < n; i++) {

        kind = kvr_msgpack_next(m);

        if (kind == KVR_MSGPACK_INT || kind == KVR_MSGPACK_STR) {
            e->last = kvr_kvevent_hash(m, kind);

            if (e->blocks < KVR_KVEVENT_HASHES) {
                e->hash[e->blocks] = e->last;
            }

            e->blocks++;

        } else if (kvr_kvevent_skip(m, kind) != KVR_OK) {
            return KVR_ERROR;
        }
    }

    return KVR_OK;
}


/* returns an integer, or the last eight bytes of a string */
static uint64_t
kvr_kvevent_hash(const kvr_msgpack_t *m, kvr_msgpack_e kind)
{
    uint32_t  i;
    uint64_t  hash;

    if (kind == KVR_MSGPACK_INT) {
        return m->number;
    }

    hash = 0;

    for (i = m->len - kvr_min(m->len, sizeof(uint64_t)); i < m->len; i++) {
        hash = hash << 8 | m->text[i];
    }

    return hash;
}


/* skips the items of a container that was read */
static int
kvr_kvevent_skip(kvr_msgpack_t *m, kvr_msgpack_e kind)
{
    switch (kind) {

    case KVR_MSGPACK_ERROR:
        return KVR_ERROR;

    case KVR_MSGPACK_ARRAY:
        return kvr_msgpack_skip(m, m->number);

    case KVR_MSGPACK_MAP:
        return kvr_msgpack_skip(m, 2 * m->number);

    default:
        return KVR_OK;
    }
}


uint64_t
kvr_kvevent_session(const uint8_t *id, size_t len)
{
    size_t    i;
    uint64_t  digest, word;

    if (len == 0) {
        return 0;
    }

    digest = len;

    for (i = 0; i < len; i += sizeof(uint64_t)) {
        word = 0;
        memcpy(&word, id + i, kvr_min(len - i, sizeof(uint64_t)));
        digest = kvr_mix(digest, word);
    }

    return digest ? digest : 1;
}
