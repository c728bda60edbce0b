/*
 * KV events: blocks that a replica's cache stores and removes, published with
 * ZeroMQ like real engines' events, and their faults.
 *
 * Replica i publishes at --kv-events + i, and answers requests for missed
 * messages at --kv-replay + i.  With ranks of data parallelism each rank does
 * so, at the next ports.  A replica that is down, or muted, does neither.
 * After a restart it counts its messages from 0.
 */

#ifndef KVE_ENGINE_EVENTS_H
#define KVE_ENGINE_EVENTS_H


#include "base/engine_server.h"


/* returns 0 also if events are not enabled */
int kve_events_create(kve_server_t *s);
void kve_events_free(kve_server_t *s);

/* a new process publishes: numbers from 0, nothing to replay */
void kve_events_restart(kve_server_t *s);

/* closes the ports, and opens them again; -1: they are in use */
void kve_events_down(kve_server_t *s);
int kve_events_up(kve_server_t *s);

/*
 * handles a member of POST /control: 1 done, -1 a bad value, 0 not for events
 */
int kve_events_control(kve_server_t *s, const cJSON *v);
void kve_events_show(kve_buf_t *b, kve_server_t *s);

/* writes the body of GET /kv_event_sources */
void kve_events_sources(kve_buf_t *b, kve_server_t *s);


#endif
