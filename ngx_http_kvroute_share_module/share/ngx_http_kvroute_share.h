
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_SHARE_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_SHARE_H_INCLUDED_


/*
 * What hosts tell each other goes through a stream of Redis or Valkey, which
 * core/share knows nothing of.  Nothing on a request's way waits for it.
 *
 *     _share         who the owner is, its timer, what goes where
 *     _share_stream  the commands of the stream, and their answers
 *     _share_conn    a connection to the store: names, TLS, AUTH, again
 *
 * Worker 0 has two connections in nginx's own event loop: one adds batches, one
 * reads them.  Of hiredis only the reader of answers and the formatter of
 * commands are used.  One command is under way on each at a time, and buffers
 * are bounded.  All timers can be cancelled: a worker that shuts down waits for
 * none.
 *
 * An old worker 0 goes on until a new one asks for the place, so nothing is
 * missed during a reload, and what its last streams count is told.
 */


#include "ngx_http_kvroute.h"


/* makes zones shared in this process; worker 0 begins to tell and to read */
ngx_int_t ngx_http_kvroute_share_init_process(ngx_cycle_t *cycle);
void ngx_http_kvroute_share_exit_process(ngx_cycle_t *cycle);


#endif /* _NGX_HTTP_KVROUTE_SHARE_H_INCLUDED_ */
