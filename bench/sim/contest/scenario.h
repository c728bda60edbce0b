/*
 * The scenarios of the contest.
 */

#ifndef KVS_SCENARIO_H
#define KVS_SCENARIO_H


#include "bench/sim/engine/workload.h"


#define KVS_LOADS     6

/* loads of fleets with a fixed number of sessions, which have no knee */
#define KVS_NO_LOAD   0.5

/* when a scenario is run */
#define KVS_ALWAYS    0x01
#define KVS_FULL      0x02
#define KVS_LARGE     0x04      /* only if it is named: make bench-sim-large */

/* flags: its group in the study of the index */
#define KVS_INDEX     0x10
#define KVS_STARVED   0x20      /* caches are too small for the reuse */
#define KVS_RESTART   0x40      /* one replica is restarted in the middle */

/* hot prefixes: a contest of their own, with their own loads */
#define KVS_HOTS      0x80


typedef struct {
    const char    *name;
    unsigned       flags;
    kvs_fleet_t    fleet;
    kvs_shape_t    shape;
    const char    *knee_of;     /* scenario whose knee it uses; NULL: its own */
} kvs_scenario_t;


extern const kvs_scenario_t  kvs_scenarios[];

/* loads as shares of the knee: below it, then past it; ends with 0 */
extern const double  kvs_loads_always[KVS_LOADS + 1];
extern const double  kvs_loads_full[KVS_LOADS + 1];
extern const double  kvs_loads_hot[KVS_LOADS + 1];

/* returns the knee in requests per second, or 0 if it was not calibrated */
double kvs_scenario_knee(const kvs_scenario_t *sc);


#endif
