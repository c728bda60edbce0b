
/*
 * Copyright (C) kvroute contributors
 */


#include "core/events/kvr_kvevent.h"


#define KVR_KVEVENT_GROUP_MAX  1024
#define KVR_KVEVENT_BLOCK_MAX  65536     /* tokens */


typedef enum {
    KVR_KVEVENT_IN_BATCH = 0,
    KVR_KVEVENT_IN_ITEM,                 /* of the batch */
    KVR_KVEVENT_IN_EVENT,
    KVR_KVEVENT_IN_FIELD,
    KVR_KVEVENT_IN_HASHES,
    KVR_KVEVENT_IN_END
} kvr_kvevent_state_e;


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


/* a word: most are told apart by their lengths */
typedef struct {
    const char  *name;
    uint32_t     len;
    uint8_t      value;
} kvr_kvevent_word_t;

#define kvr_kvevent_word(name, value)  { name, sizeof(name) - 1, value }


/* fields by their names */
static const kvr_kvevent_word_t  kvr_kvevent_names[] = {
    kvr_kvevent_word("type", KVR_KVEVENT_TYPE),
    kvr_kvevent_word("block_hashes", KVR_KVEVENT_BLOCKS),
    kvr_kvevent_word("medium", KVR_KVEVENT_MEDIUM),
    kvr_kvevent_word("group_idx", KVR_KVEVENT_GROUP),
    kvr_kvevent_word("parent_block_hash", KVR_KVEVENT_PARENT),
    kvr_kvevent_word("token_ids", KVR_KVEVENT_TOKENS),
    kvr_kvevent_word("block_size", KVR_KVEVENT_SIZE),
    kvr_kvevent_word("kv_cache_spec_kind", KVR_KVEVENT_KIND),
    kvr_kvevent_word("session_id", KVR_KVEVENT_SESSION),
    kvr_kvevent_word("events", KVR_KVEVENT_EVENTS)
};


/* and by their places, behind the type */

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
    kvr_kvevent_word("BlockRemoved", KVR_KVEVENT_REMOVED),
    kvr_kvevent_word("BlockStored", KVR_KVEVENT_STORED),
    kvr_kvevent_word("AllBlocksCleared", KVR_KVEVENT_CLEARED)
};


/* layers whose blocks say nothing of how long a prompt is kept */
static const char *const  kvr_kvevent_parts[] = {
    "sliding", "chunked", "mamba", "cross", "encoder", "linear"
};


static kvr_kvevent_e kvr_kvevent_batch(kvr_kvevent_reader_t *r,
    kvr_msgpack_e kind);
static kvr_kvevent_e kvr_kvevent_member(kvr_kvevent_reader_t *r,
    kvr_msgpack_e kind);
static kvr_kvevent_e kvr_kvevent_item(kvr_kvevent_reader_t *r,
    kvr_msgpack_e kind);
static kvr_kvevent_e kvr_kvevent_event(kvr_kvevent_reader_t *r,
    kvr_msgpack_e kind);
static kvr_kvevent_e kvr_kvevent_field(kvr_kvevent_reader_t *r,
    kvr_msgpack_e kind);
static uint8_t kvr_kvevent_named(const kvr_msgpack_t *m);
static uint8_t kvr_kvevent_placed(const kvr_kvevent_reader_t *r);
static void kvr_kvevent_typed(kvr_kvevent_reader_t *r, kvr_msgpack_e kind);
static void kvr_kvevent_scalar(kvr_kvevent_reader_t *r, kvr_msgpack_e kind);
static void kvr_kvevent_pass(kvr_kvevent_reader_t *r, kvr_msgpack_e kind);
static void kvr_kvevent_hash(kvr_kvevent_t *e, const kvr_msgpack_t *m,
    kvr_msgpack_e kind);
static uint64_t kvr_kvevent_id(const uint8_t *text, size_t len, uint64_t tail);


void
kvr_kvevent_begin(kvr_kvevent_reader_t *r)
{
    memset(r, 0, offsetof(kvr_kvevent_reader_t, event));
    kvr_msgpack_init(&r->msgpack);
}


kvr_kvevent_e
kvr_kvevent_read(kvr_kvevent_reader_t *r, const uint8_t **p,
    const uint8_t *end)
{
    int            rc;
    kvr_kvevent_e  found;
    kvr_msgpack_e  kind;

    for ( ;; ) {

        if (r->skipping) {
            rc = kvr_msgpack_skip(&r->msgpack, p, end);

            if (rc != KVR_OK) {
                return rc == KVR_AGAIN ? KVR_KVEVENT_AGAIN
                                       : KVR_KVEVENT_GARBLED;
            }

            r->skipping = 0;
        }

        /* what has no items left is over */

        switch (r->state) {

        case KVR_KVEVENT_IN_HASHES:

            if (r->hashes) {
                break;
            }

            r->state = KVR_KVEVENT_IN_FIELD;

            /* fall through */

        case KVR_KVEVENT_IN_FIELD:

            if (r->fields) {
                break;
            }

            r->state = KVR_KVEVENT_IN_EVENT;
            return KVR_KVEVENT_FOUND;

        case KVR_KVEVENT_IN_EVENT:

            if (r->events) {
                break;
            }

            r->state = KVR_KVEVENT_IN_ITEM;

            /* fall through */

        case KVR_KVEVENT_IN_ITEM:

            if (r->items) {
                break;
            }

            r->state = KVR_KVEVENT_IN_END;

            /* fall through */

        case KVR_KVEVENT_IN_END:
            return *p == end ? KVR_KVEVENT_DONE : KVR_KVEVENT_GARBLED;

        default: /* KVR_KVEVENT_IN_BATCH */
            break;
        }

        kind = kvr_msgpack_next(&r->msgpack, p, end);

        if (kind == KVR_MSGPACK_AGAIN) {
            return KVR_KVEVENT_AGAIN;
        }

        if (kind == KVR_MSGPACK_ERROR) {
            return KVR_KVEVENT_GARBLED;
        }

        switch (r->state) {

        case KVR_KVEVENT_IN_BATCH:
            found = kvr_kvevent_batch(r, kind);
            break;

        case KVR_KVEVENT_IN_ITEM:
            found = kvr_kvevent_item(r, kind);
            break;

        case KVR_KVEVENT_IN_EVENT:
            found = kvr_kvevent_event(r, kind);
            break;

        case KVR_KVEVENT_IN_FIELD:
            found = kvr_kvevent_field(r, kind);
            break;

        default: /* KVR_KVEVENT_IN_HASHES */

            r->hashes--;
            kvr_kvevent_hash(&r->event, &r->msgpack, kind);
            kvr_kvevent_pass(r, kind);

            found = KVR_KVEVENT_AGAIN;
            break;
        }

        if (found != KVR_KVEVENT_AGAIN) {
            return found;
        }
    }
}


static kvr_kvevent_e
kvr_kvevent_batch(kvr_kvevent_reader_t *r, kvr_msgpack_e kind)
{
    if (kind != KVR_MSGPACK_ARRAY && kind != KVR_MSGPACK_MAP) {
        return KVR_KVEVENT_GARBLED;
    }

    r->map = (kind == KVR_MSGPACK_MAP);
    r->items = r->msgpack.number;
    r->place = 0;
    r->state = KVR_KVEVENT_IN_ITEM;

    return KVR_KVEVENT_AGAIN;
}


/* the name of a member of a map: what it stands for tells what comes next */
static kvr_kvevent_e
kvr_kvevent_member(kvr_kvevent_reader_t *r, kvr_msgpack_e kind)
{
    r->value = 1;
    r->field = KVR_KVEVENT_OTHER;

    if (kind == KVR_MSGPACK_STR) {
        r->field = kvr_kvevent_named(&r->msgpack);
    }

    kvr_kvevent_pass(r, kind);

    return KVR_KVEVENT_AGAIN;
}


/* an item of the batch: of an array the second one are the events */
static kvr_kvevent_e
kvr_kvevent_item(kvr_kvevent_reader_t *r, kvr_msgpack_e kind)
{
    if (r->map && !r->value) {
        return kvr_kvevent_member(r, kind);
    }

    if (!r->map) {
        r->field = r->place++ == 1 ? KVR_KVEVENT_EVENTS : KVR_KVEVENT_OTHER;
    }

    r->value = 0;
    r->items--;

    if (r->field == KVR_KVEVENT_EVENTS && kind == KVR_MSGPACK_ARRAY) {
        r->events = r->msgpack.number;
        r->state = KVR_KVEVENT_IN_EVENT;
        return KVR_KVEVENT_AGAIN;
    }

    kvr_kvevent_pass(r, kind);

    return KVR_KVEVENT_AGAIN;
}


static kvr_kvevent_e
kvr_kvevent_event(kvr_kvevent_reader_t *r, kvr_msgpack_e kind)
{
    if (kind != KVR_MSGPACK_ARRAY && kind != KVR_MSGPACK_MAP) {
        return KVR_KVEVENT_GARBLED;
    }

    memset(&r->event, 0, offsetof(kvr_kvevent_t, hash));
    r->event.rooted = 1;

    r->events--;
    r->event_map = (kind == KVR_MSGPACK_MAP);
    r->fields = r->msgpack.number;
    r->place = 0;
    r->state = KVR_KVEVENT_IN_FIELD;

    return KVR_KVEVENT_AGAIN;
}


static kvr_kvevent_e
kvr_kvevent_field(kvr_kvevent_reader_t *r, kvr_msgpack_e kind)
{
    if (r->event_map && !r->value) {
        return kvr_kvevent_member(r, kind);
    }

    if (!r->event_map) {
        r->field = kvr_kvevent_placed(r);
        r->place++;
    }

    r->value = 0;
    r->fields--;

    switch (r->field) {

    case KVR_KVEVENT_TYPE:
        kvr_kvevent_typed(r, kind);
        break;

    case KVR_KVEVENT_BLOCKS:

        if (kind == KVR_MSGPACK_ARRAY) {
            r->hashes = r->msgpack.number;
            r->state = KVR_KVEVENT_IN_HASHES;
            return KVR_KVEVENT_AGAIN;
        }

        break;

    case KVR_KVEVENT_TOKENS:

        if (kind == KVR_MSGPACK_ARRAY) {
            r->event.tokens = r->msgpack.number;
        }

        break;

    default:
        kvr_kvevent_scalar(r, kind);
        break;
    }

    kvr_kvevent_pass(r, kind);

    return KVR_KVEVENT_AGAIN;
}


/* what the word that was read stands for, among n; 0: it is none of them */
static uint8_t
kvr_kvevent_find(const kvr_msgpack_t *m, const kvr_kvevent_word_t *word,
    unsigned n)
{
    unsigned  i;

    for (i = 0; i < n; i++) {
        if (m->len == word[i].len
            && memcmp(m->text, word[i].name, word[i].len) == 0)
        {
            return word[i].value;
        }
    }

    return 0;
}


static uint8_t
kvr_kvevent_named(const kvr_msgpack_t *m)
{
    return kvr_kvevent_find(m, kvr_kvevent_names,
                            kvr_nelts(kvr_kvevent_names));
}


static uint8_t
kvr_kvevent_placed(const kvr_kvevent_reader_t *r)
{
    if (r->place == 0) {
        return KVR_KVEVENT_TYPE;
    }

    if (r->event.type == KVR_KVEVENT_STORED
        && r->place < kvr_nelts(kvr_kvevent_stored))
    {
        return kvr_kvevent_stored[r->place];
    }

    if (r->event.type == KVR_KVEVENT_REMOVED
        && r->place < kvr_nelts(kvr_kvevent_removed))
    {
        return kvr_kvevent_removed[r->place];
    }

    return KVR_KVEVENT_OTHER;
}


static void
kvr_kvevent_typed(kvr_kvevent_reader_t *r, kvr_msgpack_e kind)
{
    if (kind == KVR_MSGPACK_STR) {
        r->event.type = (kvr_kvevent_type_e)
                        kvr_kvevent_find(&r->msgpack, kvr_kvevent_types,
                                         kvr_nelts(kvr_kvevent_types));
    }
}


/* fields of one value each */
static void
kvr_kvevent_scalar(kvr_kvevent_reader_t *r, kvr_msgpack_e kind)
{
    unsigned        i;
    kvr_kvevent_t  *e;
    kvr_msgpack_t  *m;

    e = &r->event;
    m = &r->msgpack;

    switch (r->field) {

    case KVR_KVEVENT_PARENT:

        if (kind == KVR_MSGPACK_INT) {
            e->parent = m->number;
            e->rooted = 0;

        } else if (kind == KVR_MSGPACK_BIN || kind == KVR_MSGPACK_STR) {
            e->parent = m->tail;
            e->rooted = 0;
        }

        break;

    case KVR_KVEVENT_SIZE:

        if (kind == KVR_MSGPACK_INT && m->number <= KVR_KVEVENT_BLOCK_MAX) {
            e->block = (uint32_t) m->number;
        }

        break;

    case KVR_KVEVENT_MEDIUM:

        if (kind == KVR_MSGPACK_STR) {
            e->elsewhere = !kvr_msgpack_is(m, "gpu")
                           && !kvr_msgpack_is(m, "device");
        }

        break;

    case KVR_KVEVENT_GROUP:

        if (kind == KVR_MSGPACK_INT && m->number <= KVR_KVEVENT_GROUP_MAX) {
            e->group = (uint32_t) m->number;
        }

        break;

    case KVR_KVEVENT_KIND:

        for (i = 0; i < kvr_nelts(kvr_kvevent_parts); i++) {
            if (kind == KVR_MSGPACK_STR
                && kvr_msgpack_begins(m, kvr_kvevent_parts[i]))
            {
                e->part = 1;
            }
        }

        break;

    case KVR_KVEVENT_SESSION:

        if (kind == KVR_MSGPACK_STR) {
            e->session = kvr_kvevent_id(m->text, m->len, m->tail);
        }

        break;

    default:
        break;
    }
}


/* what is in a value that was read, and is not looked at */
static void
kvr_kvevent_pass(kvr_kvevent_reader_t *r, kvr_msgpack_e kind)
{
    if (kind == KVR_MSGPACK_ARRAY || kind == KVR_MSGPACK_MAP) {
        r->msgpack.values = r->msgpack.number
                            << (kind == KVR_MSGPACK_MAP ? 1 : 0);
        r->skipping = 1;
    }
}


static void
kvr_kvevent_hash(kvr_kvevent_t *e, const kvr_msgpack_t *m, kvr_msgpack_e kind)
{
    uint64_t  hash;

    switch (kind) {

    case KVR_MSGPACK_INT:
        hash = m->number;
        break;

    case KVR_MSGPACK_BIN:
    case KVR_MSGPACK_STR:
        hash = m->tail;
        break;

    default:
        return;
    }

    if (e->blocks < KVR_KVEVENT_HASHES) {
        e->hash[e->blocks] = hash;
    }

    e->blocks++;
    e->last = hash;
}


uint64_t
kvr_kvevent_session(const uint8_t *id, size_t len)
{
    size_t    i;
    uint64_t  tail;

    tail = 0;

    for (i = len - kvr_min(len, sizeof(uint64_t)); i < len; i++) {
        tail = tail << 8 | id[i];
    }

    return kvr_kvevent_id(id, len, tail);
}


/* of what the reader keeps of a string: its first bytes, its last as a number */
static uint64_t
kvr_kvevent_id(const uint8_t *text, size_t len, uint64_t tail)
{
    size_t    i, n;
    uint64_t  id, word;

    if (len == 0) {
        return 0;
    }

    id = kvr_mix(len, tail);
    n = kvr_min(len, KVR_MSGPACK_TEXT);

    for (i = 0; i < n; i += sizeof(uint64_t)) {
        word = 0;
        memcpy(&word, text + i, kvr_min(n - i, sizeof(uint64_t)));
        id = kvr_mix(id, word);
    }

    return id ? id : 1;
}
