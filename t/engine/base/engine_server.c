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


void
kve_server_stats(const kve_server_t *s, kve_stats_t *st)
{
    int          i;
    kve_stats_t  one;

    kve_replica_stats(s->rank[0], st);

    for (i = 1; i < s->ranks; i++) {
        kve_replica_stats(s->rank[i], &one);

        st->running += one.running;
        st->waiting += one.waiting;
        st->prefilling += one.prefilling;
        st->decoding += one.decoding;
        st->blocks += one.blocks;
        st->held_blocks += one.held_blocks;
        st->waiting_tokens += one.waiting_tokens;
        st->context_tokens += one.context_tokens;
        st->queries += one.queries;
        st->hits += one.hits;
        st->loaded[KVE_HOST] += one.loaded[KVE_HOST];
        st->loaded[KVE_DISK] += one.loaded[KVE_DISK];
        st->prompt_tokens += one.prompt_tokens;
        st->generation_tokens += one.generation_tokens;
        st->recomputed_tokens += one.recomputed_tokens;
        st->preemptions += one.preemptions;
        st->requests += one.requests;
        st->done += one.done;
        st->aborted += one.aborted;
        st->steps += one.steps;
        st->busy += one.busy;
    }

    st->kv_usage = st->blocks ? (double) st->held_blocks / st->blocks : 0;
}


/* something has changed: runs as soon as the current event is done */

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
