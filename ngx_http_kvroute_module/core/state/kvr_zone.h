
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ZONE_H_INCLUDED_
#define _KVR_ZONE_H_INCLUDED_


/*
 * A zone as one process sees it: pointers to the parts that all processes
 * share, and the row that this process counts in.
 */


#include "core/hot/kvr_hot.h"
#include "core/state/kvr_receipt.h"
#include "core/state/kvr_registry.h"
#include "core/hot/kvr_sketch.h"


/* an extension attached to a zone: core/state/kvr_hooks.h */
typedef struct kvr_hook_s  kvr_hook_t;


/* whether several hosts decide as one; an extension sets it */
typedef struct {
    _Atomic uint64_t      up;        /* 1: they do */
    _Atomic uint64_t   failing;      /* ms; since when they cannot; 0: never */
    _Atomic uint32_t   fault;        /* kvr_fault_e, the last one */
} kvr_united_t;


/* counters of the zone's snapshot file */
typedef struct {
    _Atomic uint64_t   read;         /* entries that the zone started with */
    _Atomic uint64_t   refused;      /* 1: there was an unusable file */
    _Atomic uint64_t      written;
    _Atomic uint64_t      failed;
    _Atomic uint64_t      bytes;     /* of entries, when last written */
    _Atomic uint64_t      time;      /* s since 1970, then; 0: never */
} kvr_zone_file_t;


typedef struct {
    kvr_registry_t    *registry;
    kvr_load_t        *load;
    kvr_index_t       *index;
    kvr_hot_t         *hot;
    const kvr_hook_t  *hooks;        /* of extensions, or NULL */
    kvr_united_t      *united;       /* NULL: this host decides alone */

    uint32_t           row;          /* of this process in load */
    uint32_t           listens;      /* 1: KV events move the peers' clocks */
} kvr_zone_t;


/* the configuration of an upstream's peers */
typedef struct {
    kvr_set_t          set;          /* peers */
    uint64_t           max_pending;  /* bytes; 0: no cap */
    uint64_t           target_ttft;  /* ms, instead of max_pending; 0: none */
    int64_t            max_waiting;  /* inside the engine; -1: no cap */
    uint64_t           probe;        /* ms from probe to probe; 0: no probes */
    uint32_t           slow_start;   /* s */
    uint32_t           upstream;     /* its number */
    kvr_outlier_conf_t eject;
    unsigned           health:1;     /* health checks are on */
} kvr_pool_t;


#endif /* _KVR_ZONE_H_INCLUDED_ */
