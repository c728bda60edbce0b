
/*
 * Copyright (C) kvroute contributors
 */


#include "zone/ngx_http_kvroute_zone.h"


static ngx_connection_t  ngx_http_kvroute_timer_dummy = {
    .fd = (ngx_socket_t) -1
};


void
ngx_http_kvroute_timer_init(ngx_event_t *ev, ngx_connection_t *dummy,
    ngx_event_handler_pt handler, void *data, ngx_log_t *log)
{
    if (dummy == NULL) {
        dummy = &ngx_http_kvroute_timer_dummy;

    } else {
        dummy->fd = (ngx_socket_t) -1;
        dummy->data = data;
    }

    ev->handler = handler;
    ev->data = dummy;
    ev->log = log;
    ev->cancelable = 1;
}


ngx_uint_t
ngx_http_kvroute_timer_minute(time_t *last)
{
    if (*last && ngx_time() - *last < 60) {
        return 0;
    }

    *last = ngx_time();

    return 1;
}
