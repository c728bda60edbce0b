/*
 * KV events: what a replica's cache stores and drops, published with ZeroMQ
 * as engines do it, and what can go wrong with that.
 *
 * Replica i publishes at --kv-events + i, and answers at --kv-replay + i who
 * asks for what was missed; with ranks of data parallelism each of them does so,
 * at the next ports.  A replica that is down, or muted, does neither; one that
 * comes up again counts its messages from 0.
 */

#ifndef KVE_ENGINE_EVENTS_H
#define KVE_ENGINE_EVENTS_H


#include "base/engine_server.h"


/* 0, also where no events were asked for */
int kve_events_create(kve_server_t *s);
void kve_events_free(kve_server_t *s);

/* another process publishes: numbers from 0, nothing to replay */
void kve_events_restart(kve_server_t *s);

/* the ports are closed, and open again; -1: they are in use */
void kve_events_down(kve_server_t *s);
int kve_events_up(kve_server_t *s);

/* a member of POST /control: 1 done, -1 a bad value, 0 not of events */
int kve_events_control(kve_server_t *s, const cJSON *v);
void kve_events_show(kve_buf_t *b, kve_server_t *s);

/* the body of GET /kv_event_sources */
void kve_events_sources(kve_buf_t *b, kve_server_t *s);


#endif
