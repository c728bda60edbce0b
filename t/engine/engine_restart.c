#include <math.h>
#include <string.h>

#include <event2/event.h>
#include <event2/http.h>

#include "base/engine_http.h"
#include "base/engine_store.h"
#include "engine_restart.h"
#include "events/engine_events.h"
#include "job/engine_job.h"
#include "metrics/engine_metrics.h"


void
kve_server_begin(kve_server_t *s)
{
    s->started = kve_wall();
    s->ready = kve_now();
    s->wake = INFINITY;

    kve_metrics_init(s);
}


int
kve_server_listen(kve_server_t *s)
{
    if (s->up) {
        event_free(s->up);
        s->up = NULL;
    }

    if (s->socket) {
        return 0;
    }

    s->socket = evhttp_bind_socket_with_handle(s->http, s->engine->opt.host,
                                               s->port);

    return s->socket ? kve_events_up(s) : -1;
}


static void
kve_server_up(evutil_socket_t fd, short what, void *data)
{
    (void) fd;
    (void) what;

    (void) kve_server_listen(data);
}


void
kve_server_deafen(kve_server_t *s, double seconds)
{
    struct timeval  tv;

    if (s->socket) {
        evhttp_del_accept_socket(s->http, s->socket);
        s->socket = NULL;
    }

    kve_events_down(s);

    if (s->up) {
        event_free(s->up);
        s->up = NULL;
    }

    if (seconds > 0) {
        tv.tv_sec = (time_t) seconds;
        tv.tv_usec = (suseconds_t) ((seconds - tv.tv_sec) * 1e6);

        s->up = event_new(s->engine->base, -1, 0, kve_server_up, s);
        event_add(s->up, &tv);
    }
}


/* like the death of the process and the start of a new one */

void
kve_server_restart(kve_server_t *s, const kve_conn_t *except)
{
    int                 i;
    const kve_event_t  *ev;

    kve_conns_kill(s, except);
    kve_jobs_background(s);

    for (i = 0; i < s->ranks; i++) {
        (void) kve_replica_restart(s->rank[i], kve_virtual(s->engine), &ev);
    }

    kve_metrics_free(s);
    kve_store_free(s);
    kve_events_restart(s);
    kve_server_begin(s);

    memset(&s->counters, 0, sizeof(kve_counters_t));
    s->restarts++;
}
