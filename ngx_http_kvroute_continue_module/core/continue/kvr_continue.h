
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_CONTINUE_H_INCLUDED_
#define _KVR_CONTINUE_H_INCLUDED_


/* Counters of broken answers, by upstream, in shared memory. */


#include "core/continue/kvr_answer.h"
#include "core/state/kvr_hooks.h"


/* how an answer broke */
typedef enum {
    KVR_CONTINUE_BROKEN = 0,     /* reset, or closed too early */
    KVR_CONTINUE_TIMEOUT,
    KVR_CONTINUE_SHORT,          /* whole for HTTP, without its final event */
    KVR_CONTINUE_ERROR,          /* an error event */
    KVR_CONTINUE_MOVED,          /* its server is being emptied */
    KVR_CONTINUE_CAUSES
} kvr_continue_cause_e;


typedef struct {
    _Atomic uint64_t  continued[KVR_CONTINUE_CAUSES];
    _Atomic uint64_t  cut[KVR_ANSWER_CUTS];
} kvr_continue_stats_t;


typedef struct {
    kvr_continue_stats_t  upstream[KVR_REGISTRY_UPSTREAMS];
    _Atomic uint64_t      next[KVR_PEERS];  /* see kvr_drain_leaves() */
} kvr_continue_t;


const char *kvr_continue_cause(uint32_t cause);

/* data is a kvr_continue_t */
extern const kvr_hooks_t  kvr_continue_hooks;


#endif /* _KVR_CONTINUE_H_INCLUDED_ */
