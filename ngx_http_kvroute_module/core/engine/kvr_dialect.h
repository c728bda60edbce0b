
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_DIALECT_H_INCLUDED_
#define _KVR_DIALECT_H_INCLUDED_


/*
 * Describes how engines report their state: one descriptor for each engine, all
 * in kvr_dialect.c.  The number of a dialect is its index there.  Number 0 is
 * used while the engine is not known.
 */


#include "core/text/kvr_json_push.h"


#define KVR_DIALECT_AUTO   0
#define KVR_DIALECT_NONE   ((uint32_t) -1)

#define KVR_DIALECT_NAMES  2     /* names of one kind in a descriptor */
#define KVR_DIALECT_PATHS  4


/* the meaning of a series */
typedef enum {
    KVR_SERIES_RUNNING = 0,      /* requests */
    KVR_SERIES_WAITING,
    KVR_SERIES_WAITING_ROOM,     /* for KV cache space; replaces WAITING */
    KVR_SERIES_KV,               /* share of the KV cache in use, 0 .. 1 */
    KVR_SERIES_KV_OLD,           /* older name, used without the new one */
    KVR_SERIES_HITS,             /* total tokens found in the prefix cache */
    KVR_SERIES_HITS_OLD,
    KVR_SERIES_QUERIES,          /* total tokens of prompts */
    KVR_SERIES_QUERIES_OLD,
    KVR_SERIES_COMPUTED,         /* total tokens of prompts without hits */
    KVR_SERIES_PREEMPTIONS,      /* total */
    KVR_SERIES_START,            /* of the process, s since 1970 */
    KVR_SERIES_TOKENS,           /* capacity of the KV cache */
    KVR_SERIES_BLOCKS,           /* the same in blocks; in JSON: used tokens */
    KVR_SERIES_BLOCK_SIZE,       /* tokens */
    KVR_SERIES_CONFIG,           /* labels: capacity, prefix caching */
    KVR_SERIES_LORA,             /* labels: adapters, see below */
    KVR_SERIES_NO_CACHE,         /* prefix caching is disabled */
    KVR_SERIES_NOTHING,          /* only identifies the engine */
    KVR_SERIES_RANK,             /* in JSON: the rank of the numbers after it */
    KVR_SERIES_MAX
} kvr_series_e;


/* a series by its name after the prefix; NULL ends the list */
typedef struct {
    const char    *name;
    kvr_series_e   series;
    const char    *label;        /* or NULL: with any labels */
    const char    *value;        /* required value of this label */
} kvr_dialect_series_t;


typedef struct {
    const char    *name;         /* for "engine=" and the status */

    /* prefixes of its series, without the ":" or "_" after them */

    const char    *prefixes[KVR_DIALECT_NAMES];

    /* paths of its metrics, tried in turn */

    const char    *paths[KVR_DIALECT_PATHS];

    const kvr_dialect_series_t  *series;

    /* labels with a rank: ranks above 0 repeat the values of rank 0 */

    const char    *repeats[KVR_DIALECT_NAMES];

    /*
     * Label of the data-parallel rank, or NULL.  nodes: ranks are numbered
     * across nodes, while ranks in a request header begin at the first rank of
     * the server.
     */

    const char    *rank;
    unsigned       nodes;

    /* labels of KVR_SERIES_LORA: names in use, maximum */

    const char    *adapters[KVR_DIALECT_NAMES];
    const char    *max_adapters;

    /* members of a JSON response, leaves are 1 + kvr_series_e; or NULL */

    const kvr_push_node_t  *json;
} kvr_dialect_t;


/* Returns a dialect; NULL: no such number. */
const kvr_dialect_t *kvr_dialect(uint32_t number);

/* Returns the path to try after n others. */
const char *kvr_dialect_path(uint32_t number, uint32_t n);

/* Returns the number of a name; KVR_DIALECT_NONE: no such name. */
uint32_t kvr_dialect_by_name(const void *name, size_t len);


#endif /* _KVR_DIALECT_H_INCLUDED_ */
