
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_EVENTS_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_EVENTS_H_INCLUDED_


/*
 * KV events of engines (kvroute_events): who is listened to, and what they say.
 *
 *     _events         sources: a publisher of a server each, and their life
 *     _events_find    where they are, if engines are to be asked for it
 *     _events_attribute  requests that ended, and blocks that were told of
 *     _events_source  what all of this knows of a source
 *     _events_read    what comes from a source, and the order of it
 *     _events_stream  a connection of a source: live, or a replay
 *
 * Worker 0 alone listens.  What it hears goes to the zone by core/route.
 */


#include "ngx_http_kvroute.h"


ngx_int_t ngx_http_kvroute_events_init(ngx_cycle_t *cycle);
void ngx_http_kvroute_events_exit(void);


#endif /* _NGX_HTTP_KVROUTE_EVENTS_H_INCLUDED_ */
