
/*
 * Copyright (C) kvroute contributors
 */


/* Warnings about a source. */


#include "events/ngx_http_kvroute_events_int.h"


void
ngx_http_kvroute_events_source_warn(ngx_http_kvroute_events_source_t *source,
    const char *what, const char *why)
{
    if (!ngx_http_kvroute_timer_minute(&source->warned)) {
        return;
    }

    ngx_log_error(NGX_LOG_WARN, source->timer.log, 0,
                  "kvroute: %s: server %V, rank %uD: %s", what, &source->name,
                  source->rank, why);
}
