
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_PUSH_H_INCLUDED_
#define _KVR_PUSH_H_INCLUDED_


/*
 * Reads JSON that comes in pieces, cut anywhere.  The reader keeps its state
 * and no text.  A table names the members to follow and the values to give to
 * a handler.  All else is skipped, and its grammar is not checked.
 */


#include "core/base/kvr_core.h"


#define KVR_PUSH_DEPTH    7      /* containers that are followed */
#define KVR_PUSH_KEY_LEN  28
#define KVR_PUSH_NODES    16     /* of a table, at most */


/* what a member may be: several of these */
#define KVR_PUSH_OBJECT   1      /* followed, by the entries of "into" */
#define KVR_PUSH_ARRAY    2      /* followed, its items being of "into" */
#define KVR_PUSH_STRING   4      /* given to the handler, as it is written */
#define KVR_PUSH_NUMBER   8      /* likewise: a natural number */


/* why the handler is called */
typedef enum {
    KVR_PUSH_OPEN = 0,           /* the object or array begins */
    KVR_PUSH_TEXT,               /* a piece of the string */
    KVR_PUSH_TEXT_END,           /* the string is over */
    KVR_PUSH_VALUE               /* the number */
} kvr_push_e;


typedef struct {
    const char    *name;
    uint8_t        len;
    uint8_t        kind;
    uint8_t        into;         /* node of its own members or items */
    uint8_t        leaf;         /* the handler's number for it */
    uint8_t        level;        /* looked at from this level on */
} kvr_push_entry_t;


/*
 * The members of one kind of object.  A table is an array of nodes, by number.
 * Most keys of a text are in no table: the filter has a bit for the slot of
 * each name, which comes from its length and two letters, and rejects nearly
 * all others.
 */
typedef struct {
    const kvr_push_entry_t  *entry;  /* the last one has no name */
    uint64_t                 filter[4];
} kvr_push_node_t;


/* the factors reject most of what engines send and nobody looks for */
#define kvr_push_slot(key, len)                                               \
    (((unsigned) (len) * 8 + (key)[0] * 4 + (key)[(len) / 2] * 5) % 256)

/*
 * A node, made of a list of its members: a macro that gives each of them as
 * _(name, kind, into, leaf, level).
 */
#define kvr_push_node(list)                                                   \
    { (const kvr_push_entry_t []) { list(kvr_push_entry) { .name = NULL } },  \
      { 0 list(kvr_push_bit_0), 0 list(kvr_push_bit_1),                       \
        0 list(kvr_push_bit_2), 0 list(kvr_push_bit_3) } }

#define kvr_push_entry(name, kind, into, leaf, level)                         \
    { name, sizeof(name) - 1, kind, into, leaf, level },
#define kvr_push_bit(name, word)                                              \
    | (uint64_t) (kvr_push_slot(name, sizeof(name) - 1) / 64 == (word))       \
      << kvr_push_slot(name, sizeof(name) - 1) % 64
#define kvr_push_bit_0(name, kind, into, leaf, level)  kvr_push_bit(name, 0)
#define kvr_push_bit_1(name, kind, into, leaf, level)  kvr_push_bit(name, 1)
#define kvr_push_bit_2(name, kind, into, leaf, level)  kvr_push_bit(name, 2)
#define kvr_push_bit_3(name, kind, into, leaf, level)  kvr_push_bit(name, 3)


typedef void (*kvr_push_pt)(void *data, unsigned leaf, kvr_push_e what,
    const uint8_t *p, size_t len, uint64_t number);


typedef struct {
    const kvr_push_entry_t  *entry;  /* of the member being read, or NULL */
    uint64_t                 number;
    uint32_t                 skip;   /* containers open in a skipped value */
    uint8_t                  state;
    uint8_t                  level;
    uint8_t                  depth;  /* containers open that are followed */
    uint8_t                  key_len;  /* KVR_PUSH_KEY_LEN + 1: too long */
    uint8_t                  node[KVR_PUSH_DEPTH];  /* top bit: an array */
    uint8_t                  key[KVR_PUSH_KEY_LEN];
} kvr_push_t;


/* starts a text; its outermost object is node 0, or an array of such */
void kvr_push_init(kvr_push_t *p, unsigned level);

/* whether nothing but white space was fed yet */
static inline int
kvr_push_blank(const kvr_push_t *p)
{
    return p->state == 0;
}


/*
 * Feeds the next bytes, returns KVR_AGAIN until the outermost value is over,
 * then KVR_OK; KVR_ERROR if it cannot be JSON, and from then on.
 */
int kvr_push_feed(kvr_push_t *p, const kvr_push_node_t *table,
    const uint8_t *data, size_t len, kvr_push_pt handler, void *ctx);


#endif /* _KVR_PUSH_H_INCLUDED_ */
