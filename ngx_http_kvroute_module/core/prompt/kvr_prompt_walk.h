
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_WALK_H_INCLUDED_
#define _KVR_WALK_H_INCLUDED_


/*
 * Objects of a body, read in the order that the canonical form wants.
 *
 * A table gives the keys that matter, in canonical order.  As a rule clients
 * write them in that order, or the reader needs no order, and one pass does.
 * When a key comes too early or twice, kvr_walk_object() gives up with
 * KVR_WALK_ORDER; who set the last mark puts the stream back and reads again
 * with careful set: each object is then passed over once to find its keys,
 * where the last of two equal ones wins, and read key by key after that.
 */


#include "core/text/kvr_text.h"


#define KVR_WALK_ORDER     1

#define KVR_WALK_MAX_KEYS  16

/*
 * What an object counts for, besides keys that are not in the table and each
 * one of those that has to be sought: see kvr_json_spend().
 */
#define KVR_WALK_STEPS     3

/* arrays and objects that the reader itself descends into */
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
    kvr_json_t     json;
    kvr_block_t    block;        /* the prompt */
    kvr_block_t    side;         /* what is reduced to one value */

    unsigned       careful:1;    /* find keys first */
    unsigned       order:1;      /* that was necessary */
    unsigned       drop:1;       /* this object is not rendered */
    unsigned       system:1;     /* reading a system prompt */
    unsigned       head:1;       /* the message's head is out */
    unsigned       part:1;       /* this part is rendered */
    unsigned       separate:1;   /* a part came before this one */

    unsigned       depth;
    unsigned       media;        /* media items seen */

    size_t         quick;        /* see KVR_MESSAGE_QUICK */

    size_t         role_len;
    size_t         type_len;
    uint8_t        role[32];
    uint8_t        type[32];

    void          *data;         /* of a handler */
};


/* walks the object that is next by a table that ends in kvr_walk_null */
int kvr_walk_object(kvr_walk_t *w, const kvr_walk_key_t *keys);

/*
 * Goes on with an object in which the keys up to one of the table, seen last,
 * were read by the caller, and its value.
 */
int kvr_walk_rest(kvr_walk_t *w, const kvr_walk_key_t *keys,
    const kvr_walk_key_t *last);

/* calls a handler for each item of the array that is next */
int kvr_walk_array(kvr_walk_t *w, kvr_walk_pt handler);

/*
 * Reads a short string that is next to buf[size]; what is no string is
 * skipped and *len set to 0.  A longer one is cut.
 */
int kvr_walk_word(kvr_walk_t *w, uint8_t *buf, size_t size, size_t *len);

/*
 * Reduces the value that is next to one digest: a string to that of its text,
 * anything else to that of its text without insignificant white space.  null
 * gives 0.
 */
int kvr_walk_digest(kvr_walk_t *w, uint64_t *digest);


static inline int
kvr_walk_skip(kvr_walk_t *w)
{
    return kvr_json_skip(&w->json);
}


/* skips a value that is not of the kind that is looked for, and counts it */
static inline int
kvr_walk_other(kvr_walk_t *w)
{
    return kvr_json_spend(&w->json, 1) == KVR_OK ? kvr_walk_skip(w)
                                                 : KVR_JSON_COSTLY;
}


/* kvr_walk_array() for a handler that is to be a part of the loop */
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
        /* as a rule the next one is right here */

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
