/*
 * Messages of KV events: numbered, sent, and stored for a replay.
 *
 * Each has three frames: topic, number (64 bits, big-endian), payload.  A
 * request for a replay is an empty frame and a number.  The answer is all
 * stored messages from this number on, in envelopes that begin with an empty
 * frame, and then the number -1.
 */

#ifndef KVE_ENGINE_PUBLISH_H
#define KVE_ENGINE_PUBLISH_H


#include <event2/event.h>

#include "base/engine_server.h"


#define KVE_PUBLISH_KEPT  10000     /* messages kept for a replay */


typedef struct kve_publisher_s  kve_publisher_t;


typedef struct {
    uint64_t            messages;           /* messages of this process */
    uint64_t            sent;               /* to subscribers, garbage too */
    uint64_t            replays;            /* requests for a replay */
    uint64_t            replayed;           /* messages in replays */
    int                 subscribers;
} kve_published_t;


/* of a rank */
kve_publisher_t *kve_publisher_create(kve_server_t *s, int rank);
void kve_publisher_free(kve_publisher_t *p);

int kve_publisher_open(kve_publisher_t *p);
void kve_publisher_close(kve_publisher_t *p);
int kve_publisher_is_open(const kve_publisher_t *p);

/* sends the next message, and takes the payload */
void kve_publisher_send(kve_publisher_t *p, kve_buf_t *payload);

/* counts from 0 again, without stored messages */
void kve_publisher_renumber(kve_publisher_t *p);

/* sends n invalid messages, of all kinds in turn */
void kve_publisher_garbage(kve_publisher_t *p, int n);

void kve_publisher_told(const kve_publisher_t *p, kve_published_t *told);


#endif
