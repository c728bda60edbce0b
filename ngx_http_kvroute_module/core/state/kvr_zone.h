
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ZONE_H_INCLUDED_
#define _KVR_ZONE_H_INCLUDED_


/*
 * A zone as one process sees it: where the parts are that all processes share,
 * and the row that this process counts in.  With this header comes all that
 * there is in a zone.
 */


#include "core/popular/kvr_popular.h"
#include "core/state/kvr_receipt.h"
#include "core/state/kvr_registry.h"
#include "core/popular/kvr_sketch.h"


typedef struct {
    kvr_registry_t    *registry;
    kvr_load_t        *load;
    kvr_index_t       *index;
    kvr_popular_t     *popular;
    uint64_t           unit;         /* bytes of an index entry's unit */
    uint32_t           row;          /* of this process in load */
} kvr_zone_t;


/* what the configuration of an upstream says of its peers */
typedef struct {
    kvr_set_t          set;          /* peers */
    uint64_t           capacity;     /* bytes a peer may hold, if not told */
    uint64_t           max_pending;  /* bytes; 0: no cap */
    uint64_t           target_ttft;  /* ms, instead of max_pending; 0: none */
    int64_t            max_waiting;  /* inside the engine; -1: no cap */
    uint64_t           probe;        /* ms from probe to probe; 0: no probes */
    uint32_t           slow_start;   /* s */
    uint32_t           upstream;     /* its number */
    kvr_outlier_conf_t eject;
    unsigned           mandatory:1;  /* no fresh probe: no choice */
    unsigned           health:1;     /* health is checked */
} kvr_pool_t;


#endif /* _KVR_ZONE_H_INCLUDED_ */
