
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SNAPSHOT_H_INCLUDED_
#define _KVR_SNAPSHOT_H_INCLUDED_


/* The present state of a server, collected from several places of a zone. */


#include "core/learn/kvr_prefill.h"
#include "core/state/kvr_counter.h"
#include "core/state/kvr_zone.h"


typedef struct {
    uint64_t              active;    /* from this upstream */
    uint64_t              pending;   /* bytes */
    uint64_t              active_all;  /* from all upstreams */
    uint64_t              elsewhere;  /* from other hosts */
    uint64_t              pending_all;
    uint64_t              unanswered;  /* of active_all, without first event */
    uint64_t              capacity;  /* bytes */
    uint64_t              gpu;       /* bytes of it in GPU memory; 0: all */
    kvr_index_source_e    source;    /* of the capacity */
    uint64_t              throttled;  /* 1: it has asked for a pause */
    uint64_t              ejected;   /* 1: as an outlier */
    uint64_t              until;     /* ms until then */
    uint64_t              why;       /* kvr_outlier_e */
    uint64_t              last;      /* likewise, of the last bad answer */
    uint64_t              refusal;   /* likewise, of the last 4xx */
    uint64_t              mute;      /* ms; kvr_outlier_mute() */
    uint64_t              flushes;   /* times it lost its cache */
    uint64_t              age;       /* ms since the engine's last report */
    uint64_t              drain_requests;  /* since it is drained */
    uint64_t              drain_sessions;  /* of this and the last minute */
    uint64_t              drain_left;  /* ms until sessions leave too */
    kvr_drain_e           drain;
    uint32_t              set;       /* bits of needs */
    kvr_prefill_load_t    load;
} kvr_snapshot_t;


/* Reads the state of a member of a peer; now in ms. */
void kvr_snapshot(const kvr_zone_t *zone, uint32_t peer, uint32_t member,
    uint64_t now, kvr_snapshot_t *s);


#endif /* _KVR_SNAPSHOT_H_INCLUDED_ */
