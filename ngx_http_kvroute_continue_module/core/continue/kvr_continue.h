
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_CONTINUE_H_INCLUDED_
#define _KVR_CONTINUE_H_INCLUDED_


/* Counters of broken answers, by upstream, in shared memory. */


#include "core/continue/kvr_answer.h"
#include "core/continue/kvr_late.h"


/* how an answer broke */
typedef enum {
    KVR_CONTINUE_BROKEN = 0,     /* reset, or closed too early */
    KVR_CONTINUE_TIMEOUT,
    KVR_CONTINUE_SHORT,          /* whole for HTTP, without its final event */
    KVR_CONTINUE_ERROR,          /* an error event */
    KVR_CONTINUE_MOVED,          /* its server is being emptied */
    KVR_CONTINUE_CAUSES
} kvr_continue_cause_e;


/* what became of a request whose first token was late */
typedef enum {
    KVR_CONTINUE_ON_TIME = 0,    /* it was not, or nothing yet */
    KVR_CONTINUE_TWICE,          /* it was sent to a second peer, */
    KVR_CONTINUE_FIRST,          /* and the first one answered, */
    KVR_CONTINUE_SECOND,         /* or the second one */
    KVR_CONTINUE_HEDGE,          /* not sent twice: too many were */
    KVR_CONTINUE_BUSY,           /* the other peers are */
    KVR_CONTINUE_LATES
} kvr_continue_late_e;


typedef struct {
    _Atomic uint64_t  continued[KVR_CONTINUE_CAUSES];
    _Atomic uint64_t  cut[KVR_ANSWER_CUTS];
    _Atomic uint64_t  late[KVR_CONTINUE_LATES];
} kvr_continue_stats_t;


typedef struct {
    kvr_continue_stats_t  upstream[KVR_REGISTRY_UPSTREAMS];
    kvr_late_t            late[KVR_REGISTRY_UPSTREAMS];
    _Atomic uint64_t      next[KVR_PEERS];  /* see kvr_drain_leaves() */
} kvr_continue_t;


const char *kvr_continue_cause(uint32_t cause);
const char *kvr_continue_late(uint32_t late);

/* data is a kvr_continue_t */
extern const kvr_hooks_t  kvr_continue_hooks;


#endif /* _KVR_CONTINUE_H_INCLUDED_ */
