
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_WALK_H_INCLUDED_
#define _KVR_WALK_H_INCLUDED_


/*
 * Reads the objects of a body in the order of the canonical form.
 *
 * A table lists the keys that matter in canonical order.  Usually clients write
 * them in that order, and one pass is enough.  If a key comes too early or
 * twice, kvr_walk_object() returns KVR_WALK_ORDER.  The function that set the
 * last mark then rewinds the stream and reads again with careful set: the first
 * pass over each object finds its keys (the last of equal keys counts), then
 * they are read one by one.
 */


#include "core/text/kvr_text.h"


#define KVR_WALK_ORDER     1

#define KVR_WALK_MAX_KEYS  16

/*
 * Steps that an object costs (kvr_json_spend()).  Unknown keys and seeks cost
 * further steps.
 */
#define KVR_WALK_STEPS     3

/* maximum depth of arrays and objects that are walked */
#define KVR_WALK_DEPTH     16


typedef struct kvr_walk_s  kvr_walk_t;

typedef int (*kvr_walk_pt)(kvr_walk_t *w);


typedef struct {
    const char    *name;
    size_t         len;
    kvr_walk_pt    handler;      /* consumes the value */
} kvr_walk_key_t;


#define kvr_walk_key(name, handler)  { name, sizeof(name) - 1, handler }
#define kvr_walk_null                { NULL, 0, NULL }


struct kvr_walk_s {
    unsigned       careful:1;    /* find the keys first */
    unsigned       order:1;      /* careful was necessary */
    unsigned       drop:1;       /* this object is not rendered */
    unsigned       system:1;     /* inside a system prompt */
    unsigned       head:1;       /* the head of the message was put */
    unsigned       part:1;       /* this part is rendered */
    unsigned       separate:1;   /* a part precedes this one */

    unsigned       depth;
    unsigned       media;        /* media items seen */

    size_t         quick;        /* see KVR_MESSAGE_QUICK */

    size_t         role_len;
    size_t         type_len;

    kvr_json_t     json;
    kvr_block_t    block;        /* the prompt */
    kvr_block_t    side;         /* a value that is reduced to a digest */

    uint8_t        role[32];
    uint8_t        type[32];

    void          *data;         /* of a handler */
};


/* Walks the object that is next by a table that ends with kvr_walk_null. */
int kvr_walk_object(kvr_walk_t *w, const kvr_walk_key_t *keys);

/* Walks the rest of an object; the caller has read the keys up to last. */
int kvr_walk_rest(kvr_walk_t *w, const kvr_walk_key_t *keys,
    const kvr_walk_key_t *last);

/* Calls a handler for each item of the array that is next. */
int kvr_walk_array(kvr_walk_t *w, kvr_walk_pt handler);

/*
 * Reads the first size bytes of the string that is next.  Skips any other value
 * and sets *len to 0.
 */
int kvr_walk_word(kvr_walk_t *w, uint8_t *buf, size_t size, size_t *len);

/*
 * Reduces the value that is next to a digest: of the text of a string, or of
 * any other value as written, without white space.  null gives 0.
 */
int kvr_walk_digest(kvr_walk_t *w, uint64_t *digest);


static inline int
kvr_walk_skip(kvr_walk_t *w)
{
    return kvr_json_skip(&w->json);
}


/* Skips a value that no handler reads, and counts a step. */
static inline int
kvr_walk_other(kvr_walk_t *w)
{
    return kvr_json_spend(&w->json, 1) == KVR_OK ? kvr_walk_skip(w)
                                                 : KVR_JSON_COSTLY;
}


/* The same as kvr_walk_array(), with the handler inlined into the loop. */
static inline __attribute__ ((always_inline)) int
kvr_walk_items(kvr_walk_t *w, kvr_walk_pt handler)
{
    int          rc, first;
    kvr_json_t  *j;

    j = &w->json;

    if (kvr_json_peek(j) != '[' || w->depth == KVR_WALK_DEPTH) {
        return kvr_walk_skip(w);
    }

    j->p++;
    w->depth++;

    first = 1;

    do {
        /* usually the next item follows at once */

        if (!first && j->e - j->p > 1
            && j->p[0] == ',' && j->p[1] > ' ' && j->p[1] != ']')
        {
            j->p++;
            rc = KVR_OK;

        } else {
            rc = kvr_json_item(j, &first);
        }

        if (rc == KVR_OK) {
            rc = handler(w);
        }

    } while (rc == KVR_OK);

    w->depth--;

    return rc == KVR_DECLINED ? KVR_OK : rc;
}


#endif /* _KVR_WALK_H_INCLUDED_ */
