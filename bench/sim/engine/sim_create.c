/*
 * Creates the fleet of a run from its description.
 */

#include "bench/sim/engine/sim_caches.h"
#include "bench/sim/engine/sim_queue.h"
#include "bench/sim/engine/workload.h"


static void
kvs_sim_tier(kvs_sim_t *sim, kve_config_t *cf, kve_tier_e tier, double times,
    double rate)
{
    kve_tier_t  *t;

    t = &cf->tier[tier];
    t->blocks = (uint32_t) (sim->blocks * times);
    t->load = rate > 0 ? sim->hw.kv_bytes / rate : 0;

    sim->price[tier] = t->load / sim->hw.linear;
}


void
kvs_sim_create(kvs_sim_t *sim)
{
    uint32_t      i;
    kvs_fleet_t  *fleet;
    kve_config_t  cf;

    fleet = &sim->fleet;

    kve_config_init(&cf, &sim->hw);

    cf.block_size = KVS_UNIT_TOKENS;
    cf.blocks = (uint32_t) ((fleet->kv_tokens ? fleet->kv_tokens
                                              : sim->hw.kv_tokens)
                            / KVS_UNIT_TOKENS);

    sim->blocks = cf.blocks;

    kvs_sim_tier(sim, &cf, KVE_HOST, fleet->host, fleet->host_rate);
    kvs_sim_tier(sim, &cf, KVE_DISK, fleet->disk, fleet->disk_rate);

    kvs_sim_tier(sim, &cf, KVE_PEER, 0, fleet->fetch_rate);

    if (fleet->store) {
        sim->store = kve_blocks_create(cf.tier[KVE_DISK].blocks * sim->n);
        cf.tier[KVE_DISK].shared = sim->store;
    }

    cf.state = fleet->state / KVS_UNIT_TOKENS;
    cf.states = fleet->states;

    for (i = 0; i < sim->n; i++) {
        cf.speed = (i == 0 && fleet->slow > 0) ? fleet->slow : 1;
        cf.blocks = (uint32_t) (sim->blocks * (i == 0 && fleet->small > 0
                                               ? fleet->small : 1));
        cf.speed *= fleet->speed > 0 ? fleet->speed : 1;

        sim->replica[i] = kve_replica_create(&cf);

        if (sim->replica[i] == NULL) {
            abort();
        }

        sim->next[i] = INFINITY;
        kvr_set_add(&sim->up, i);
    }

    kvs_workload_start(sim->workload, sim->seed,
                       (uint32_t) (sim->blocks * KVS_UNIT_TOKENS
                                   * (fleet->small > 0 ? fleet->small : 1)
                                   / 2));

    sim->nstates = fleet->unshared && fleet->routers ? fleet->routers : 1;

    for (i = 0; i < sim->nstates; i++) {
        sim->state[i] = sim->policy->create(sim, sim->policy);
    }

    if (fleet->add_at > 0) {
        kvr_set_del(&sim->up, sim->n - 1);
        kvs_events_push(&sim->events, fleet->add_at * sim->length, KVS_EV_ADD,
                        NULL, 0);
    }

    if (fleet->restart_at > 0) {
        kvs_events_push(&sim->events, fleet->restart_at * sim->length,
                        KVS_EV_RESTART,
                     NULL, 0);
    }

    if (fleet->foreign > 0) {
        kvs_events_push(&sim->events, 0, KVS_EV_FOREIGN, NULL, 0);
    }
}
