#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "events/engine_encode.h"
#include "events/engine_events.h"
#include "events/engine_publish.h"
#include "reply/engine_request.h"


/*
 * The model reports changes of its cache, and the end of each step: then the
 * changes of the step are sent as one message, as in vLLM.  A flood is blocks
 * that no request has: each is stored once, and removed after as many others
 * as fit into the cache.
 */


#define KVE_FLOOD_TICK   10000      /* us */
#define KVE_FLOOD_RUN    32         /* blocks in an event */
#define KVE_FLOOD_BATCH  256        /* blocks in a message */


/* events of a rank; a server has an array of these */

struct kve_events_s {
    kve_server_t       *server;
    kve_publisher_t    *publisher;
    kve_watch_t         watch;

    kve_buf_t           told;               /* events of this step */
    uint32_t            ntold;

    uint64_t            stored;             /* blocks */
    uint64_t            removed;
    uint64_t            cleared;

    struct event       *flood;
    double              rate;               /* blocks a second */
    double              begun;
    uint64_t            flooded;            /* blocks since then */
    uint64_t            next;               /* next block of all floods */
};


static void
kve_events_stored(void *data, const kve_req_t *req, uint32_t first, uint32_t n)
{
    kve_sub_t           *sub;
    kve_events_t        *e;
    kve_options_t       *opt;
    kve_stored_event_t   ev;

    e = data;
    sub = req->data;
    opt = &e->server->engine->opt;

    ev.hashes = &req->hashes[first];
    ev.n = n;
    ev.parent = first ? &req->hashes[first - 1] : NULL;
    ev.block_size = kve_replica_config(e->server->model)->block_size;
    ev.lora = sub->job->lora;
    ev.lora_name = ev.lora < 0 ? NULL : opt->lora[ev.lora];
    ev.session = sub->job->session;

    kve_encode_stored(&e->told, opt->kv_encoding, &ev);
    e->ntold++;
    e->stored += n;
}


static void
kve_events_removed(void *data, uint64_t hash)
{
    kve_events_t  *e;

    e = data;
    kve_encode_removed(&e->told, e->server->engine->opt.kv_encoding, hash);
    e->ntold++;
    e->removed++;
}


static void
kve_events_cleared(void *data)
{
    kve_events_t  *e;

    e = data;
    kve_encode_cleared(&e->told, e->server->engine->opt.kv_encoding);
    e->ntold++;
    e->cleared++;
}


static void
kve_events_step(void *data, double t)
{
    kve_buf_t      b = { 0 };
    kve_events_t  *e;

    (void) t;

    e = data;

    kve_encode_batch(&b, kve_wall(), &e->told, e->ntold, 0);
    e->told.len = 0;
    e->ntold = 0;

    kve_publisher_send(e->publisher, &b);
}


static uint64_t
kve_events_flood_hash(kve_events_t *e, uint64_t block)
{
    return kve_mix(block ^ (uint64_t) e->server->port << 40);
}


static void
kve_events_flood_run(kve_events_t *e, uint32_t n)
{
    uint32_t            i;
    uint64_t            room, hashes[KVE_FLOOD_RUN];
    kve_kv_encoding_e   encoding;
    kve_stored_event_t  ev = { 0 };

    room = kve_blocks_total(kve_replica_blocks(e->server->model));
    encoding = e->server->engine->opt.kv_encoding;

    for (i = 0; i < n; i++) {
        hashes[i] = kve_events_flood_hash(e, e->next);

        if (e->next >= room) {
            kve_encode_removed(&e->told, encoding,
                               kve_events_flood_hash(e, e->next - room));
            e->ntold++;
            e->removed++;
        }

        e->next++;
    }

    ev.hashes = hashes;
    ev.n = n;
    ev.block_size = kve_replica_config(e->server->model)->block_size;
    ev.lora = -1;

    kve_encode_stored(&e->told, encoding, &ev);
    e->ntold++;
    e->stored += n;
}


static void
kve_events_flood(evutil_socket_t fd, short what, void *data)
{
    uint64_t       due;
    uint32_t       n, batch;
    kve_events_t  *e;

    (void) fd;
    (void) what;

    e = data;
    due = (uint64_t) (e->rate * (kve_now() - e->begun));
    batch = 0;

    while (e->flooded < due) {
        n = fmin(due - e->flooded, KVE_FLOOD_RUN);
        kve_events_flood_run(e, n);
        e->flooded += n;
        batch += n;

        if (batch >= KVE_FLOOD_BATCH || e->flooded == due) {
            kve_events_step(e, 0);
            batch = 0;
        }
    }
}


static void
kve_events_flood_set(kve_events_t *e, double rate)
{
    struct timeval  tv = { 0, KVE_FLOOD_TICK };

    event_del(e->flood);

    e->rate = rate;
    e->begun = kve_now();
    e->flooded = 0;

    if (rate > 0) {
        event_add(e->flood, &tv);
    }
}


static int
kve_events_encoding(const kve_options_t *opt)
{
    int  n;

    if (opt->kv_encoding_name == NULL) {
        return opt->dialect == KVE_SGLANG ? KVE_KV_SGLANG
               : opt->dialect == KVE_TRTLLM ? KVE_KV_TRTLLM : KVE_KV_VLLM_MAP;
    }

    n = kve_encoding(opt->kv_encoding_name);

    if (n < 0) {
        fprintf(stderr, "engine: unknown encoding \"%s\"\n",
                opt->kv_encoding_name);
    }

    return n;
}


int
kve_events_create(kve_server_t *s)
{
    int            i, encoding;
    kve_events_t  *e;

    if (s->engine->opt.kv_events == 0) {
        return 0;
    }

    encoding = kve_events_encoding(&s->engine->opt);

    if (encoding < 0) {
        return -1;
    }

    s->engine->opt.kv_encoding = encoding;

    s->events = calloc(s->ranks, sizeof(kve_events_t));
    if (s->events == NULL) {
        return -1;
    }

    for (i = 0; i < s->ranks; i++) {
        e = &s->events[i];
        e->server = s;
        e->publisher = kve_publisher_create(s, i);
        e->flood = event_new(s->engine->base, -1, EV_PERSIST, kve_events_flood,
                             e);

        e->watch.stored = kve_events_stored;
        e->watch.removed = kve_events_removed;
        e->watch.cleared = kve_events_cleared;
        e->watch.step = kve_events_step;
        e->watch.data = e;

        kve_replica_watch(s->rank[i], &e->watch);
    }

    return kve_events_up(s);
}


void
kve_events_free(kve_server_t *s)
{
    int            i;
    kve_events_t  *e;

    for (i = 0; s->events && i < s->ranks; i++) {
        e = &s->events[i];

        kve_replica_watch(s->rank[i], NULL);
        event_free(e->flood);
        kve_publisher_free(e->publisher);
        kve_buf_free(&e->told);
    }

    free(s->events);
}


void
kve_events_restart(kve_server_t *s)
{
    int            i;
    kve_events_t  *e;

    for (i = 0; s->events && i < s->ranks; i++) {
        e = &s->events[i];

        kve_publisher_close(e->publisher);
        kve_publisher_renumber(e->publisher);
        (void) kve_publisher_open(e->publisher);

        e->told.len = 0;
        e->ntold = 0;
        e->stored = 0;
        e->removed = 0;
        e->cleared = 0;
    }
}


void
kve_events_down(kve_server_t *s)
{
    int  i;

    for (i = 0; s->events && i < s->ranks; i++) {
        kve_publisher_close(s->events[i].publisher);
    }
}


int
kve_events_up(kve_server_t *s)
{
    int  i;

    for (i = 0; s->events && i < s->ranks; i++) {
        if (kve_publisher_open(s->events[i].publisher) != 0) {
            return -1;
        }
    }

    return 0;
}


int
kve_events_control(kve_server_t *s, const cJSON *v)
{
    int            i, k;
    const char    *name;
    kve_events_t  *e;

    static const char  *names[] = {
        "kv_restart", "kv_garbage", "kv_flood", "kv_mute", NULL
    };

    name = v->string;

    for (k = 0; names[k] && strcmp(names[k], name) != 0; k++) {
        /* void */
    }

    if (names[k] == NULL) {
        return 0;
    }

    if (s->events == NULL || (!cJSON_IsNumber(v) && !cJSON_IsBool(v))) {
        return -1;
    }

    if (k == 3 && !cJSON_IsTrue(v)) {
        return kve_events_up(s) == 0 ? 1 : -1;
    }

    for (i = 0; i < s->ranks; i++) {
        e = &s->events[i];

        switch (k) {

        case 0:
            kve_publisher_renumber(e->publisher);
            break;

        case 1:
            kve_publisher_garbage(e->publisher, v->valueint);
            break;

        case 2:
            kve_events_flood_set(e, v->valuedouble);
            break;

        case 3:
            kve_publisher_close(e->publisher);
            break;
        }
    }

    return 1;
}


/* sums of all ranks */

void
kve_events_show(kve_buf_t *b, kve_server_t *s)
{
    int               i;
    kve_events_t     *e, sum = { 0 };
    kve_published_t   told, all = { 0 };

    if (s->events == NULL) {
        return;
    }

    for (i = 0; i < s->ranks; i++) {
        e = &s->events[i];
        kve_publisher_told(e->publisher, &told);

        all.subscribers += told.subscribers;
        all.messages += told.messages;
        all.sent += told.sent;
        all.replays += told.replays;
        all.replayed += told.replayed;
        sum.stored += e->stored;
        sum.removed += e->removed;
        sum.cleared += e->cleared;
    }

    kve_buf_printf(b, ",\"kv_events\":{\"open\":%s,\"subscribers\":%d,"
                   "\"messages\":%llu,\"sent\":%llu,\"replays\":%llu,"
                   "\"replayed\":%llu,\"stored\":%llu,\"removed\":%llu,"
                   "\"cleared\":%llu}",
                   kve_publisher_is_open(s->events->publisher) ? "true"
                                                               : "false",
                   all.subscribers, (unsigned long long) all.messages,
                   (unsigned long long) all.sent,
                   (unsigned long long) all.replays,
                   (unsigned long long) all.replayed,
                   (unsigned long long) sum.stored,
                   (unsigned long long) sum.removed,
                   (unsigned long long) sum.cleared);
}


void
kve_events_sources(kve_buf_t *b, kve_server_t *s)
{
    int             i, n;
    kve_options_t  *opt;

    opt = &s->engine->opt;

    kve_buf_str(b, "{");

    for (i = 0; s->events && i < s->ranks; i++) {
        n = s->index * s->ranks + i;

        kve_buf_printf(b, "%s\"%d\":{\"enable_kv_cache_events\":true,"
                       "\"publisher\":\"zmq\",\"endpoint\":\"tcp://*:%d\",",
                       i ? "," : "", i, opt->kv_events + n);

        if (opt->kv_replay) {
            kve_buf_printf(b, "\"replay_endpoint\":\"tcp://*:%d\",",
                           opt->kv_replay + n);

        } else {
            kve_buf_str(b, "\"replay_endpoint\":null,");
        }

        kve_buf_printf(b, "\"buffer_steps\":%d,\"hwm\":100000,"
                       "\"max_queue_size\":100000,\"topic\":\"kv\"}",
                       KVE_PUBLISH_KEPT);
    }

    kve_buf_str(b, "}");
}
