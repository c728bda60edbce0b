
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_DIALECT_H_INCLUDED_
#define _KVR_DIALECT_H_INCLUDED_


/*
 * How engines tell of themselves: a descriptor for each engine, all of them in
 * kvr_dialect.c.  The number of a dialect is its place there.  Number 0 is what
 * is done as long as nobody knows the engine.
 */


#include "core/text/kvr_json_push.h"


#define KVR_DIALECT_AUTO   0
#define KVR_DIALECT_NONE   ((uint32_t) -1)

#define KVR_DIALECT_NAMES  2     /* that a descriptor has of a kind, at most */
#define KVR_DIALECT_PATHS  4


/* what a series means */
typedef enum {
    KVR_SERIES_RUNNING = 0,      /* requests */
    KVR_SERIES_WAITING,
    KVR_SERIES_WAITING_ROOM,     /* for room only: takes precedence */
    KVR_SERIES_KV,               /* share of the KV cache in use, 0 .. 1 */
    KVR_SERIES_KV_OLD,           /* if there is no new one */
    KVR_SERIES_HITS,             /* tokens found in the prefix cache, ever */
    KVR_SERIES_HITS_OLD,
    KVR_SERIES_QUERIES,          /* tokens of prompts, ever */
    KVR_SERIES_QUERIES_OLD,
    KVR_SERIES_COMPUTED,         /* tokens of prompts less the hits, ever */
    KVR_SERIES_PREEMPTIONS,      /* ever */
    KVR_SERIES_START,            /* of the process, s since 1970 */
    KVR_SERIES_TOKENS,           /* capacity of the KV cache */
    KVR_SERIES_BLOCKS,           /* of that, in blocks; in JSON tokens in use */
    KVR_SERIES_BLOCK_SIZE,       /* tokens */
    KVR_SERIES_CONFIG,           /* labels tell capacity, and if it is used */
    KVR_SERIES_LORA,             /* labels tell adapters, see below */
    KVR_SERIES_NO_CACHE,         /* prefix caching is switched off */
    KVR_SERIES_NOTHING,          /* tells whose series these are */
    KVR_SERIES_RANK,             /* in JSON: of whose numbers follow */
    KVR_SERIES_MAX
} kvr_series_e;


/* a series by its name behind the prefix; NULL: the last one */
typedef struct {
    const char    *name;
    kvr_series_e   series;
    const char    *label;        /* or NULL: it counts whatever its labels */
    const char    *value;        /* that this label must have */
} kvr_dialect_series_t;


typedef struct {
    const char    *name;         /* in "engine=", in the status */

    /* before the names of its series, and before a ":" or "_" */

    const char    *prefixes[KVR_DIALECT_NAMES];

    /* where it tells of itself, tried one after the other, in turns */

    const char    *paths[KVR_DIALECT_PATHS];

    const kvr_dialect_series_t  *series;

    /* labels with a number: ranks above 0 tell what rank 0 has told */

    const char    *repeats[KVR_DIALECT_NAMES];

    /* the label with the number of the data-parallel rank, or NULL */

    const char    *rank;

    /*
     * 1: an engine may have a part of all ranks. Its label has the number among
     * all, while requests name a rank by its number among those of the engine.
     */

    unsigned       part:1;

    /* labels of KVR_SERIES_LORA: names that are in use, most at a time */

    const char    *adapters[KVR_DIALECT_NAMES];
    const char    *max_adapters;

    /* leaves, 1 + kvr_series_e, of a path that answers in JSON; or NULL */

    const kvr_push_node_t  *json;
} kvr_dialect_t;


/* NULL: there are not so many */
const kvr_dialect_t *kvr_dialect(uint32_t number);

/* the path that is tried after n others */
const char *kvr_dialect_path(uint32_t number, uint32_t n);

/* NULL: no such number */
const char *kvr_dialect_name(uint32_t number);

/* KVR_DIALECT_NONE: no such name */
uint32_t kvr_dialect_by_name(const void *name, size_t len);


#endif /* _KVR_DIALECT_H_INCLUDED_ */
