/*
 * Messages of KV events: numbered, sent, kept for a replay.
 *
 * Each has three frames: topic, number (64 bits, big-endian), payload.  Who
 * asks for a replay sends an empty frame and a number, and gets all that is
 * kept from there on, in envelopes that begin with an empty frame, and last
 * of all the number -1.
 */

#ifndef KVE_ENGINE_PUBLISH_H
#define KVE_ENGINE_PUBLISH_H


#include <event2/event.h>

#include "base/engine_server.h"


#define KVE_PUBLISH_KEPT  10000     /* messages kept for a replay */


typedef struct kve_publisher_s  kve_publisher_t;


typedef struct {
    uint64_t            messages;           /* of this process, so many */
    uint64_t            sent;               /* to subscribers, garbage too */
    uint64_t            replays;            /* asked for */
    uint64_t            replayed;           /* messages of these */
    int                 subscribers;
} kve_published_t;


/* of a rank */
kve_publisher_t *kve_publisher_create(kve_server_t *s, int rank);
void kve_publisher_free(kve_publisher_t *p);

int kve_publisher_open(kve_publisher_t *p);
void kve_publisher_close(kve_publisher_t *p);
int kve_publisher_is_open(const kve_publisher_t *p);

/* the next message; the payload is the publisher's from here on */
void kve_publisher_send(kve_publisher_t *p, kve_buf_t *payload);

/* numbers from 0 again, and nothing is kept */
void kve_publisher_renumber(kve_publisher_t *p);

/* n things that are no messages, of all kinds in turn */
void kve_publisher_garbage(kve_publisher_t *p, int n);

void kve_publisher_told(const kve_publisher_t *p, kve_published_t *told);


#endif
