
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


#include "core/events/kvr_events.h"
#include "core/popular/kvr_popular.h"
#include "core/state/kvr_receipt.h"
#include "core/state/kvr_registry.h"
#include "core/popular/kvr_sketch.h"


/* what is shared with other hosts: core/share/kvr_share.h */
typedef struct kvr_share_s  kvr_share_t;

/* which blocks of engines are which places of prompts: core/alias/kvr_attribute.h */
typedef struct kvr_aliases_s  kvr_aliases_t;

/* reasons to ignore a batch: core/share/kvr_share_batch.h */
#define KVR_SHARE_IGNORED  6


/* what hosts told each other, as one of them counts it */
typedef struct {
    _Atomic uint64_t      up;        /* 1: told and heard of late */
    _Atomic uint64_t      hosts;     /* others that are heard of */
    _Atomic uint64_t      waiting;   /* bytes of the ring that are not sent */
    _Atomic uint64_t      sent;      /* lessons */
    _Atomic uint64_t      applied;
    _Atomic uint64_t      batches_sent;
    _Atomic uint64_t      batches_applied;
    _Atomic uint64_t      bytes_sent;
    _Atomic uint64_t      bytes_received;
    _Atomic uint64_t      echoes;    /* own batches that came back */
    _Atomic uint64_t      echo_ms;   /* what that took, together */
    _Atomic uint64_t      lag_ms;    /* of the last one */
    _Atomic uint64_t      late;      /* 1: loads are too old to count */
    _Atomic uint64_t      dropped;   /* records, for want of room */
    _Atomic uint64_t      lost;      /* records that nobody finished */
    _Atomic uint64_t      gaps;      /* batches of others that never came */
    _Atomic uint64_t      repeated;  /* batches that had been read before */
    _Atomic uint64_t      ignored[KVR_SHARE_IGNORED];  /* batches */
    _Atomic uint64_t      unknown;   /* records of peers that are not here */
    _Atomic uint64_t      reconnects;
    _Atomic uint64_t      refused;   /* commands that the store refused */
    _Atomic uint64_t      joined;    /* entries that a new host was told of */
} kvr_share_stats_t;


/* what became of the zone's file */
typedef struct {
    _Atomic uint64_t      read;      /* entries that the zone began with */
    _Atomic uint64_t      refused;   /* 1: there was a file of no use */
    _Atomic uint64_t      written;
    _Atomic uint64_t      failed;
    _Atomic uint64_t      bytes;     /* of entries, when last written */
    _Atomic uint64_t      time;      /* s since 1970, then; 0: never */
} kvr_zone_file_t;


typedef struct {
    kvr_registry_t    *registry;
    kvr_load_t        *load;
    kvr_index_t       *index;
    kvr_popular_t     *popular;
    kvr_share_t       *share;        /* NULL: nothing is */
    kvr_events_t      *events;       /* by peer; NULL: no engine is heard */
    kvr_aliases_t     *aliases;      /* NULL: blocks are not told apart */
    uint64_t           unit;         /* bytes of an index entry's unit */
    uint32_t           row;          /* of this process in load */
} kvr_zone_t;


/* what the configuration of an upstream says of its peers */
typedef struct {
    kvr_set_t          set;          /* peers */
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
