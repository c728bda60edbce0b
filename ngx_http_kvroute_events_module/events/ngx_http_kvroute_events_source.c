
/*
 * Copyright (C) kvroute contributors
 */


/* Warnings about a source. */


#include "events/ngx_http_kvroute_events_int.h"


#define NGX_HTTP_KVROUTE_EVENTS_WARN  60     /* s */


ngx_uint_t
ngx_http_kvroute_events_source_due(time_t *warned)
{
    time_t  now;

    now = ngx_time();

    if (*warned && now - *warned < NGX_HTTP_KVROUTE_EVENTS_WARN) {
        return 0;
    }

    *warned = now;

    return 1;
}


void
ngx_http_kvroute_events_source_warn(ngx_http_kvroute_events_source_t *source,
    const char *what, const char *why)
{
    if (!ngx_http_kvroute_events_source_due(&source->warned)) {
        return;
    }

    ngx_log_error(NGX_LOG_WARN, source->timer.log, 0,
                  "kvroute: %s: server %V, rank %uD: %s", what, &source->name,
                  source->rank, why);
}
