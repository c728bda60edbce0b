#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>

#include "base/engine_http.h"
#include "base/engine_store.h"
#include "engine_restart.h"
#include "engine_route.h"
#include "events/engine_events.h"
#include "job/engine_job.h"
#include "job/engine_run.h"
#include "metrics/engine_metrics.h"


/*
 * The emulated engine: an HTTP server for one or many replicas, each on its
 * own port, each with its own replica model.
 *
 * base/      flags, servers, connections, faults
 * body/      a request body of any API -> fields and prompts
 * reply/     replies, in each API's format
 * metrics/   /metrics of each engine
 * job/       a request from its arrival to its end
 * events/    KV events: stored and removed blocks
 *
 * The files in this folder answer all other paths.
 */


/* the shortest interval between two steps of the models, in real seconds */

#define KVE_TICK  0.001


static void
kve_engine_tick(evutil_socket_t fd, short what, void *data)
{
    int            i;
    double         now, wake, left;
    kve_engine_t  *e;
    kve_server_t  *s;

    (void) fd;
    (void) what;

    e = data;
    now = kve_virtual(e);
    wake = INFINITY;

    for (i = 0; i < e->nservers; i++) {
        s = &e->servers[i];

        if (s->wake <= now) {
            kve_server_run(s, now);
        }

        wake = fmin(wake, s->wake);
    }

    if (isinf(wake)) {
        return;
    }

    left = (wake - kve_virtual(e)) / e->opt.speed;
    kve_engine_arm(e, left < KVE_TICK ? KVE_TICK : left);
}


static int
kve_server_init(kve_engine_t *e, int i)
{
    kve_server_t  *s;

    s = &e->servers[i];

    s->engine = e;
    s->index = i;
    s->port = e->opt.port + i;
    s->settings = e->opt.settings;
    s->random = kve_mix((uint64_t) e->opt.seed * 1000 + i + 1);

    kve_server_begin(s);

    for (s->ranks = 0; s->ranks < e->opt.ranks; s->ranks++) {
        s->rank[s->ranks] = kve_replica_create(&e->opt.config);

        if (s->rank[s->ranks] == NULL) {
            return -1;
        }
    }

    s->model = s->rank[0];
    s->http = evhttp_new(e->base);

    if (e->opt.request_log) {
        s->log = calloc(e->opt.request_log, sizeof(kve_log_entry_t));
    }

    if (s->http == NULL
        || (e->opt.request_log && s->log == NULL))
    {
        return -1;
    }

    kve_http_setup(s, kve_route);

    if (kve_events_create(s) != 0) {
        fprintf(stderr, "engine: cannot publish at %s:%d\n", e->opt.host,
                e->opt.kv_events + i);
        return -1;
    }

    if (kve_server_listen(s) != 0) {
        fprintf(stderr, "engine: cannot listen on %s:%d\n", e->opt.host,
                s->port);
        return -1;
    }

    return 0;
}


static void
kve_server_free(kve_server_t *s)
{
    if (s->http) {
        kve_conns_kill(s, NULL);
        kve_jobs_background(s);
        evhttp_free(s->http);
    }

    if (s->up) {
        event_free(s->up);
    }

    kve_events_free(s);

    while (s->ranks) {
        kve_replica_destroy(s->rank[--s->ranks]);
    }

    kve_metrics_free(s);
    kve_store_free(s);
    kve_log_free(s);
    free(s->log);
}


static void
kve_engine_signal(evutil_socket_t fd, short what, void *data)
{
    (void) fd;
    (void) what;

    event_base_loopbreak(data);
}


static struct event_base *
kve_engine_base(void)
{
    struct event_base    *base;
    struct event_config  *cf;

    cf = event_config_new();
    if (cf == NULL) {
        return NULL;
    }

    /* timers of less than a millisecond */

    event_config_set_flag(cf, EVENT_BASE_FLAG_PRECISE_TIMER);
    event_config_set_flag(cf, EVENT_BASE_FLAG_EPOLL_USE_CHANGELIST);
    event_config_set_flag(cf, EVENT_BASE_FLAG_NOLOCK);

    base = event_base_new_with_config(cf);
    event_config_free(cf);

    return base;
}


static int
kve_engine_run(kve_engine_t *e)
{
    int            i;
    struct event  *term, *interrupt;

    e->base = kve_engine_base();
    if (e->base == NULL) {
        return EXIT_FAILURE;
    }

    e->start = kve_now();
    e->nservers = e->opt.count;
    e->servers = calloc(e->nservers, sizeof(kve_server_t));
    e->chunk = evbuffer_new();
    e->tick = event_new(e->base, -1, 0, kve_engine_tick, e);

    term = event_new(e->base, SIGTERM, EV_SIGNAL | EV_PERSIST,
                     kve_engine_signal, e->base);
    interrupt = event_new(e->base, SIGINT, EV_SIGNAL | EV_PERSIST,
                          kve_engine_signal, e->base);

    if (e->servers == NULL || e->chunk == NULL || e->tick == NULL
        || term == NULL || interrupt == NULL
        || event_add(term, NULL) != 0 || event_add(interrupt, NULL) != 0)
    {
        return EXIT_FAILURE;
    }

    for (i = 0; i < e->nservers; i++) {
        if (kve_server_init(e, i) != 0) {
            break;
        }
    }

    if (i == e->nservers) {
        printf("ready %d..%d\n", e->opt.port, e->opt.port + i - 1);
        fflush(stdout);

        event_base_dispatch(e->base);
    }

    e->exiting = 1;

    for (i = 0; i < e->nservers; i++) {
        kve_server_free(&e->servers[i]);
    }

    i = e->exiting && event_base_got_break(e->base) ? EXIT_SUCCESS
                                                    : EXIT_FAILURE;
    event_free(term);
    event_free(interrupt);
    event_free(e->tick);
    evbuffer_free(e->chunk);
    event_base_free(e->base);
    free(e->servers);

    return i;
}


int
main(int argc, char **argv)
{
    int            rc;
    kve_engine_t   e = { 0 };

    rc = kve_options_parse(&e.opt, argc, argv);
    if (rc) {
        return rc - 1;
    }

    signal(SIGPIPE, SIG_IGN);

    rc = kve_engine_run(&e);
    kve_options_free(&e.opt);

    return rc;
}
