/* Several hosts: which host has a request, and the messages between hosts. */

#include "bench/sim/router/hosts.h"


/* s: all loads are sent again; older ones do not count */
#define KVS_HOSTS_BEAT   1.0
#define KVS_HOSTS_LEASE  3.0


typedef struct {
    double               due;
    uint64_t             number;
    uint32_t             host;       /* host of its sender */
    uint32_t             peer;

    /* loads: the words of the peer's two columns */

    uint64_t             active;
    uint64_t             resident;

    /* requests that share a prefix */

    unsigned             hot:1;
    kvr_hot_keys_t       keys;

    /* index updates: entries from the first on, and those before */

    unsigned             lesson:1;
    uint32_t             first;
    uint32_t             n;
    uint32_t             units;      /* computed */
    uint64_t            *value;      /* all entries up to the last */
} kvs_message_t;


typedef struct {
    kvs_sim_t           *sim;
    kvs_hosts_conf_t     conf;
    kvs_policy_t         policy;     /* the policy of a host */
    kvs_router_t        *host[KVS_HOSTS];
    uint64_t             read[KVS_HOSTS];    /* received messages */
    double               beat[KVS_HOSTS];
    kvs_rng_t            rng;

    kvs_message_t       *message;    /* not yet read by all hosts */
    size_t               n, size;
    uint64_t             base;       /* number of the first of them */
} kvs_hosts_t;


static void kvs_hosts_take(kvs_hosts_t *hs, uint32_t h, double now);
static void kvs_hosts_apply(kvs_hosts_t *hs, uint32_t h, kvs_message_t *m,
    double now);
static void kvs_hosts_trim(kvs_hosts_t *hs);
static void kvs_hosts_gauge(kvs_hosts_t *hs, uint32_t h, uint32_t peer,
    double now);
static void kvs_hosts_teach(kvs_hosts_t *hs, uint32_t h, kvs_request_t *rq,
    uint32_t peer, double now);


static void *
kvs_hosts_create(kvs_sim_t *sim, const kvs_policy_t *policy)
{
    uint32_t      i;
    kvs_hosts_t  *hs;

    hs = kvs_alloc(sizeof(kvs_hosts_t));

    hs->sim = sim;
    hs->conf = *(const kvs_hosts_conf_t *) policy->conf;
    hs->policy.conf = &hs->conf.router;

    kvs_rng_seed(&hs->rng, sim->seed, 0x686f737473ULL);

    for (i = 0; i < hs->conf.hosts; i++) {
        hs->host[i] = kvs_router_create(sim, &hs->policy);
        hs->host[i]->row = i;
    }

    return hs;
}


static void
kvs_hosts_destroy(void *data)
{
    kvs_hosts_t *hs = data;

    size_t    k;
    uint32_t  i;

    for (i = 0; i < hs->conf.hosts; i++) {
        kvs_router_destroy(hs->host[i]);
    }

    for (k = 0; k < hs->n; k++) {
        free(hs->message[k].value);
    }

    free(hs->message);
    free(hs);
}


static uint32_t
kvs_hosts_pick(void *data, kvs_request_t *rq, double now)
{
    kvs_hosts_t *hs = data;

    uint32_t  h, i, k;

    h = kvs_rng_below(&hs->rng, hs->conf.hosts);

    kvs_hosts_take(hs, h, now);

    i = kvs_router_pick(hs->host[h], rq, now);

    if (hs->conf.shared) {
        kvs_hosts_teach(hs, h, rq, i, now);
    }

    kvs_hosts_gauge(hs, h, i, now);

    if (now >= hs->beat[h] + KVS_HOSTS_BEAT) {
        hs->beat[h] = now;

        for (k = 0; k < hs->sim->n; k++) {
            kvs_hosts_gauge(hs, h, k, now);
        }
    }

    return i;
}


/* reads the messages that have reached a host by now */
static void
kvs_hosts_take(kvs_hosts_t *hs, uint32_t h, double now)
{
    uint64_t        chance;
    kvs_message_t  *m;

    for ( /* void */ ; hs->read[h] < hs->base + hs->n; hs->read[h]++) {

        m = &hs->message[hs->read[h] - hs->base];

        if (m->due > now) {
            break;
        }

        chance = kvr_mix(kvr_mix(m->number, h + 1), hs->sim->seed);

        if (m->host != h
            && (double) (chance >> 11) * 0x1p-53 >= hs->conf.loss)
        {
            kvs_hosts_apply(hs, h, m, now);
        }
    }

    if (hs->n > 4096) {
        kvs_hosts_trim(hs);
    }
}


static void
kvs_hosts_apply(kvs_hosts_t *hs, uint32_t h, kvs_message_t *m, double now)
{
    uint32_t           step, at;
    kvr_zone_t        *zone;
    _Atomic uint64_t  *word;

    zone = &hs->host[h]->zone.core;

    if (m->hot) {
        kvr_hot_add(zone->hot, &m->keys, kvs_zone_ms(now));
        return;
    }

    if (!m->lesson) {
        word = kvr_load_words(zone->load, m->host);

        kvr_set(&word[m->peer], m->active);
        kvr_set(&word[kvr_registry_resident(zone->registry, m->peer)],
                m->resident);
        return;
    }

    kvr_registry_given(zone->registry, m->peer);
    kvr_prefill_remote(&zone->registry->peer[m->peer].prefill,
                       kvs_zone_ms(now));

    kvr_index_extend(zone->index, m->value + m->first, m->first,
                     m->n - m->first, m->units, m->peer, 0);

    if (hs->conf.refresh == KVS_REFRESH_ALL && m->first) {
        kvr_index_extend(zone->index, m->value, 0, m->first, 0, m->peer, 0);
    }

    if (hs->conf.refresh == KVS_REFRESH_THIN) {

        for (at = m->first, step = 1; at > 0; step *= 2) {
            kvr_index_extend(zone->index, m->value + at - 1, at - 1, 1, 0,
                             m->peer, 0);
            at -= kvr_min(step, at);
        }
    }
}


static void
kvs_hosts_trim(kvs_hosts_t *hs)
{
    size_t    k;
    uint32_t  i;
    uint64_t  least;

    least = hs->base + hs->n;

    for (i = 0; i < hs->conf.hosts; i++) {
        least = kvr_min(least, hs->read[i]);
    }

    for (k = 0; k < least - hs->base; k++) {
        free(hs->message[k].value);
    }

    hs->n -= k;
    hs->base = least;

    memmove(hs->message, hs->message + k, hs->n * sizeof(kvs_message_t));
}


static kvs_message_t *
kvs_hosts_message(kvs_hosts_t *hs, uint32_t h, uint32_t peer, double now)
{
    kvs_message_t  *m;

    hs->message = kvs_grow(hs->message, hs->n, &hs->size,
                           sizeof(kvs_message_t));

    m = &hs->message[hs->n];

    memset(m, 0, sizeof(kvs_message_t));

    m->number = hs->base + hs->n++;
    m->due = now + hs->conf.lag;
    m->host = h;
    m->peer = peer;

    return m;
}


static void
kvs_hosts_gauge(kvs_hosts_t *hs, uint32_t h, uint32_t peer, double now)
{
    kvr_zone_t        *zone;
    kvs_message_t     *m;
    _Atomic uint64_t  *word;

    if (!hs->conf.load || hs->conf.hosts == 1
        || (hs->conf.lag > KVS_HOSTS_LEASE && !hs->conf.stale))
    {
        return;
    }

    zone = &hs->host[h]->zone.core;
    word = kvr_load_words(zone->load, h);

    m = kvs_hosts_message(hs, h, peer, now);

    m->active = kvr_get(&word[peer]);
    m->resident = kvr_get(&word[kvr_registry_resident(zone->registry, peer)]);
}


static void
kvs_hosts_teach(kvs_hosts_t *hs, uint32_t h, kvs_request_t *rq, uint32_t peer,
    double now)
{
    uint32_t        n, held;
    uint64_t       *entries;
    kvs_message_t  *m;

    if (hs->conf.hosts == 1) {
        return;
    }

    entries = kvs_route_chain(rq->chain, rq->units, &n);
    held = rq->matched / KVS_UNIT_TOKENS;

    m = kvs_hosts_message(hs, h, peer, now);

    m->lesson = 1;
    m->n = n;
    m->first = kvr_min(kvr_chain_entries(held), n);
    m->units = rq->units - kvr_min(held, rq->units);
    m->value = kvs_alloc(kvr_max(n, 1) * sizeof(uint64_t));

    memcpy(m->value, entries, n * sizeof(uint64_t));
}


static void
kvs_hosts_first(void *data, kvs_request_t *rq, double now)
{
    kvs_hosts_t *hs = data;

    kvs_message_t  *m;

    kvs_router_first(hs->host[rq->route.row], rq, now);

    if (hs->conf.shared && hs->conf.hosts > 1 && rq->route.counted.n) {
        m = kvs_hosts_message(hs, rq->route.row, rq->replica, now);
        m->hot = 1;
        m->keys = rq->route.counted;
    }

    kvs_hosts_gauge(hs, rq->route.row, rq->replica, now);
}


static void
kvs_hosts_restarted(void *data, uint32_t replica, double now)
{
    kvs_hosts_t *hs = data;

    uint32_t  i;

    for (i = 0; i < hs->conf.hosts; i++) {
        kvs_router_restarted(hs->host[i], replica, now);
    }
}


static void
kvs_hosts_done(void *data, kvs_request_t *rq, double now, unsigned ok)
{
    kvs_hosts_t *hs = data;

    kvs_router_done(hs->host[rq->route.row], rq, now, ok);
    kvs_hosts_gauge(hs, rq->route.row, rq->replica, now);
}


const kvs_policy_t  kvs_hosts_policy = {
    .name = "hosts",
    .kind = KVS_STUDY,
    .create = kvs_hosts_create,
    .destroy = kvs_hosts_destroy,
    .pick = kvs_hosts_pick,
    .first = kvs_hosts_first,
    .restarted = kvs_hosts_restarted,
    .done = kvs_hosts_done
};
