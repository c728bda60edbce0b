
/*
 * Copyright (C) kvroute contributors
 */


#include "world.h"


/* Sends requests one by one to one server. */
static void
check_answer(uint32_t peer, uint64_t now)
{
    kvr_begin_t    b = { 0 };
    kvr_first_t    f = { 0 };
    kvr_attempt_t  at;

    b.peer = peer;
    b.member = peer;
    b.pool = &ejecting;
    f.ok = 1;

    kvr_attempt_begin(&at, &living, &b, NULL, now);
    (void) kvr_attempt_first(&at, &living, &ejecting, &f, now);
    (void) kvr_attempt_judge(&at, &living, &ejecting, KVR_OUTLIER_NONE, now);
    (void) kvr_attempt_release(&at, &living);
    (void) kvr_attempt_end(&at);
}


void
world_ejection(void)
{
    unsigned              i, k, out, trials;
    uint64_t              now;
    kvr_view_t            v = { 0 };
    kvr_member_t         *member;
    kvr_candidate_t       c;
    kvr_outlier_fleet_t  *fleet;

    fleet = kvr_eject_fleet(&living, &ejecting);
    now = kvr_max(NOW, kvr_get(&fleet->look));

    v.zone = &living;
    v.pool = &ejecting;
    v.bound = v.pin = v.owner = KVR_PEERS;
    v.now = now;

    kvr_candidate_view(&v);

    for (i = 0, out = 0; i < PEERS; i++) {
        kvr_candidate_init(&v, &c, i, i, 0);

        util_check(c.sick == (unsigned) kvr_eject_sick(&living, i, now),
                   "server %u: %u", i, c.sick);

        member = &living.registry->member[i];
        out += (unsigned) kvr_outlier_ejected(kvr_get(&member->outlier.state));
    }

    util_check(out <= PEERS / 2 + 1, "%u are out", out);

    for (i = 0; i < PEERS; i++) {
        member = &living.registry->member[i];

        for (k = 0; kvr_outlier_ejected(kvr_get(&member->outlier.state)); k++) {
            util_check(k < 10, "server %u does not come back", i);
            now += 64 * ejecting.eject.time;
            check_answer(i, now);
        }
    }

    for (i = 0, trials = 0; i < PEERS; i++) {
        member = &living.registry->member[i];
        trials += kvr_trial_reason(kvr_get(&member->outlier.trial)) != 0;
    }

    now += KVR_OUTLIER_LOOK;
    (void) kvr_eject_looked(&living, &ejecting, KVR_REGISTRY_NONE, now);
    util_check(kvr_get(&fleet->ejected) == (trials != 0),
               "none is ejected, %u are on trial", trials);
}
