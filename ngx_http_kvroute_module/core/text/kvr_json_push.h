
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_PUSH_H_INCLUDED_
#define _KVR_PUSH_H_INCLUDED_


/*
 * Reads JSON that arrives in pieces, cut anywhere.  The reader keeps its state,
 * but no text.  A table names the members to follow and the values to pass to a
 * handler.  The reader skips everything else and does not check its grammar.
 */


#include "core/base/kvr_core.h"


#define KVR_PUSH_DEPTH    7      /* open containers that are followed */
#define KVR_PUSH_KEY_LEN  28
#define KVR_PUSH_NODES    16     /* maximum of a table */


/* what a member can be: a combination of these */
#define KVR_PUSH_OBJECT   1      /* followed with the entries of "into" */
#define KVR_PUSH_ARRAY    2      /* followed, with the items of "into" */
#define KVR_PUSH_STRING   4      /* passed to the handler as written */
#define KVR_PUSH_NUMBER   8      /* passed to the handler: a natural number */


/* the event that the handler receives */
typedef enum {
    KVR_PUSH_OPEN = 0,           /* the object or array begins */
    KVR_PUSH_TEXT,               /* a piece of the string */
    KVR_PUSH_TEXT_END,           /* the end of the string */
    KVR_PUSH_VALUE               /* the number */
} kvr_push_e;


typedef struct {
    const char    *name;
    uint8_t        len;
    uint8_t        kind;
    uint8_t        into;         /* node of its own members or items */
    uint8_t        leaf;         /* number that the handler gets */
    uint8_t        level;        /* lowest level of the reader that reads it */
} kvr_push_entry_t;


/*
 * The members of one kind of object.  A table is an array of nodes.  Most keys
 * of a text are in no table.  So each name has a slot, computed from its length
 * and two of its letters, and the filter has a bit for each used slot; it
 * rejects nearly all other keys.
 */
typedef struct {
    const kvr_push_entry_t  *entry;  /* the last one has no name */
    uint64_t                 filter[4];
} kvr_push_node_t;


/* with these factors the filter rejects most keys that are in no table */
#define kvr_push_slot(key, len)                                               \
    (((unsigned) (len) * 8 + (key)[0] * 4 + (key)[(len) / 2] * 5) % 256)

/*
 * Builds a node from a list of its members: a macro that calls
 * _(name, kind, into, leaf, level) for each member.
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
    const kvr_push_entry_t  *entry;  /* of the current member, or NULL */
    uint64_t                 number;
    uint32_t                 skip;   /* open containers in a skipped value */
    uint8_t                  state;
    uint8_t                  level;
    uint8_t                  depth;  /* open containers that are followed */
    uint8_t                  key_len;  /* KVR_PUSH_KEY_LEN + 1: too long */
    uint8_t                  node[KVR_PUSH_DEPTH];  /* top bit: an array */
    uint8_t                  key[KVR_PUSH_KEY_LEN];
} kvr_push_t;


/*
 * Starts a text.  Node 0 is its outer object, or the items of an outer array.
 */
void kvr_push_init(kvr_push_t *p, unsigned level);

/* Returns whether only white space was fed so far. */
static inline int
kvr_push_blank(const kvr_push_t *p)
{
    return p->state == 0;
}


/*
 * Feeds the next bytes.  Returns KVR_AGAIN inside the outer value and KVR_OK
 * after it.  After anything that cannot be JSON it always returns KVR_ERROR.
 */
int kvr_push_feed(kvr_push_t *p, const kvr_push_node_t *table,
    const uint8_t *data, size_t len, kvr_push_pt handler, void *ctx);


#endif /* _KVR_PUSH_H_INCLUDED_ */
