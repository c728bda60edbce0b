/*
 * What is asked for, and what came of it: every policy on every scenario at
 * every load, by some seeds.
 */

#ifndef KVS_RESULTS_H
#define KVS_RESULTS_H


#include "bench/sim/contest/scenario.h"


#define KVS_POLICIES  192
#define KVS_SEEDS     16
#define KVS_JOBS      256

/* what is completed of what falls due, at the knee at least */
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
    unsigned               lab:1;      /* other parameters of ours, too */
    unsigned               study:1;    /* the index study everywhere */
    unsigned               quiet:1;
    unsigned               summary:1;  /* no table of each point */
    const char            *only;       /* scenarios, by parts of their names */
    const char            *policies;   /* the same */
    const char            *traces;
    const char            *out;
    const char            *cache;      /* directory of results to reuse */
    uint32_t               seeds;
    uint64_t               seed;       /* the first of them */
    uint32_t               requests;
    uint32_t               jobs;
    double                 load;       /* 0: those of the table */
    double                 length;     /* of a run, to what it needs */
} kvs_options_t;


typedef struct {
    const kvs_options_t   *options;
    kvs_point_t           *point;
    uint32_t               npoints;
    const kvs_policy_t    *policy[KVS_POLICIES];
    uint32_t               npolicies;
    uint32_t               seeds;

    /* [point][policy][seed]; measured is 0 where it was not run */
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
