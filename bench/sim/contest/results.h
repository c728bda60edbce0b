/*
 * Options and results: each policy in each scenario at each load, with several
 * seeds.
 */

#ifndef KVS_RESULTS_H
#define KVS_RESULTS_H


#include "bench/sim/contest/scenario.h"


#define KVS_POLICIES  192
#define KVS_SEEDS     16
#define KVS_JOBS      256

/* at the knee at least this share of the due requests is completed */
#define KVS_KNEE      0.98


/* a scenario at one load */
typedef struct {
    const kvs_scenario_t  *scenario;
    double                 load;       /* share of the knee */
    double                 rate;       /* requests per second */
    uint32_t               requests;
} kvs_point_t;


typedef struct {
    unsigned               full:1;
    unsigned               lab:1;      /* our policies with other parameters */
    unsigned               study:1;    /* the index study in all scenarios */
    unsigned               quiet:1;
    unsigned               summary:1;  /* no table for each point */
    const char            *only;       /* parts of names of scenarios */
    const char            *policies;   /* the same */
    const char            *traces;
    const char            *out;
    const char            *cache;      /* directory of results to reuse */
    uint32_t               seeds;
    uint64_t               seed;       /* the first seed */
    uint32_t               requests;
    uint32_t               jobs;
    double                 load;       /* 0: the loads of the table */
    double                 length;     /* share of the usual length of a run */
} kvs_options_t;


typedef struct {
    const kvs_options_t   *options;
    kvs_point_t           *point;
    uint32_t               npoints;
    const kvs_policy_t    *policy[KVS_POLICIES];
    uint32_t               npolicies;
    uint32_t               seeds;

    /* [point][policy][seed]; measured is 0 for runs that were skipped */
    kvs_result_t          *result;
} kvs_contest_t;


static inline kvs_result_t *
kvs_contest_result(const kvs_contest_t *c, uint32_t point, uint32_t policy,
    uint32_t seed)
{
    return &c->result[((size_t) point * c->npolicies + policy) * c->seeds
                      + seed];
}


#endif
