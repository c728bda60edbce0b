
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_PUBLISHERS_H_INCLUDED_
#define _KVR_PUBLISHERS_H_INCLUDED_


/*
 * Where an engine publishes its KV events: what it answers to
 * GET /kv_event_sources.  vLLM has written that in three ways:
 *
 *     {"0": {"endpoint": "tcp://HOST:5557", "replay_endpoint": null, ...}}
 *     {"sources": [{"data_parallel_rank": 0, "endpoint": ..., ...}, ...]}
 *     [{"data_parallel_rank": 0, "endpoint": ..., ...}, ...]
 *
 * The answer is read as it comes, in pieces.  In a list another publisher
 * begins where a member comes that the one before has had already: so members
 * may stand in any order, as long as it is the same in all of them.
 *
 * An engine is believed about ports from 1024 on, and about nothing else.  It
 * may name one host, beside "any of mine": whoever listens has to see whether
 * that is the engine's own.
 */


#include "core/text/kvr_json_push.h"


#define KVR_PUBLISHERS       64      /* ranks of data parallelism */
#define KVR_PUBLISHERS_TEXT  64      /* of an endpoint */


/* of a rank */
typedef struct {
    uint16_t         live;           /* port */
    uint16_t         replay;         /* likewise; 0: there is none */
} kvr_publisher_t;


typedef struct {
    kvr_push_t       json;
    uint32_t         number;         /* of publishers, once all is read */
    uint32_t         rank;           /* of the one being read */
    uint32_t         listed;         /* those before it */
    uint32_t         len;            /* of text */
    uint8_t          had;            /* members of the one being read */
    unsigned         over:1;         /* all of the answer was read */
    unsigned         bad:1;          /* some of it cannot be gone by */
    char             text[KVR_PUBLISHERS_TEXT];
    char             host[KVR_PUBLISHERS_TEXT];  /* empty: none is named */
    kvr_publisher_t  now;            /* the one being read */
    kvr_publisher_t  publisher[KVR_PUBLISHERS];
} kvr_publishers_t;


void kvr_publishers_init(kvr_publishers_t *r);

void kvr_publishers_read(kvr_publishers_t *r, const uint8_t *data, size_t len);

/*
 * The answer is over.  KVR_OK: there are number publishers, in the order of
 * their ranks, which need not begin with 0.  KVR_DECLINED: there are none.
 * KVR_ERROR: it is no such answer, or not all of it can be gone by.
 */
int kvr_publishers_end(kvr_publishers_t *r);


#endif /* _KVR_PUBLISHERS_H_INCLUDED_ */
