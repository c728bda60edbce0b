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
