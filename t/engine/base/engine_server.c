#include <stdlib.h>

#include <event2/event.h>
#include <event2/http.h>

#include "base/engine_server.h"


double
kve_virtual(kve_engine_t *e)
{
    return (kve_now() - e->start) * e->opt.speed;
}


void
kve_engine_arm(kve_engine_t *e, double seconds)
{
    struct timeval  tv;

    if (seconds > 3600) {
        return;
    }

    tv.tv_sec = (time_t) seconds;
    tv.tv_usec = (suseconds_t) ((seconds - tv.tv_sec) * 1e6);

    event_add(e->tick, &tv);
}


/* something has changed: look as soon as whatever runs now is done */

void
kve_engine_wake(kve_engine_t *e)
{
    kve_engine_arm(e, 0);
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

    return s->socket ? 0 : -1;
}


static void
kve_server_up(evutil_socket_t fd, short what, void *data)
{
    (void) fd;
    (void) what;

    (void) kve_server_listen(data);
}


/* connections are refused, for good or for some seconds */

void
kve_server_deafen(kve_server_t *s, double seconds)
{
    struct timeval  tv;

    if (s->socket) {
        evhttp_del_accept_socket(s->http, s->socket);
        s->socket = NULL;
    }

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


void
kve_log_free(kve_server_t *s)
{
    int  i;

    for (i = 0; s->log && i < s->engine->opt.request_log; i++) {
        free(s->log[i].id);
        s->log[i].id = NULL;
    }

    s->nlog = 0;
}
