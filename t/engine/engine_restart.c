#include <math.h>
#include <string.h>

#include "base/engine_http.h"
#include "base/engine_store.h"
#include "engine_restart.h"
#include "job/engine_job.h"
#include "metrics/engine_metrics.h"


void
kve_server_begin(kve_server_t *s)
{
    s->started = kve_wall();
    s->ready = kve_now() + s->engine->opt.loading;
    s->wake = INFINITY;

    kve_metrics_init(s);
}


/* as if the process had died and another one had taken its place */

void
kve_server_restart(kve_server_t *s, const kve_conn_t *except)
{
    const kve_event_t  *ev;

    kve_conns_kill(s, except);
    kve_jobs_background(s);

    (void) kve_replica_restart(s->model, kve_virtual(s->engine), &ev);

    kve_metrics_free(s);
    kve_store_free(s);
    kve_server_begin(s);

    memset(&s->counters, 0, sizeof(kve_counters_t));
    s->restarts++;
}
