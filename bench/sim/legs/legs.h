/*
 * Prefill and decode by two pools of servers: one run.  The router is the
 * shipped code: core/legs decides by the picks of core/policy, as in the glue,
 * and core/route counts.  Rules of other routers can replace it.
 *
 * The course of a request: a session's step is due -> the rule -> plain: a
 * decode server serves it.  Otherwise: leg 1, one token at a prefill server,
 * which keeps the blocks -> transfer of what the decode server lacks -> leg 2
 * there, which computes the last token only.  The place at the decode server
 * is reserved from the start.
 */

#ifndef KVS_LEGS_H
#define KVS_LEGS_H


#include "core/legs/kvr_disaggregate.h"

#include "bench/model/events.h"
#include "bench/model/route.h"
#include "bench/model/sample.h"
#include "bench/model/transfer.h"
#include "bench/sim/engine/workload.h"


/* rules */
typedef enum {
    KVS_LEGS_COST = 0,       /* kvroute_prefill when=cost */
    KVS_LEGS_WHEN_ALWAYS,    /* when=always: prompts of "min" bytes */
    KVS_LEGS_ALWAYS,         /* all prompts */
    KVS_LEGS_NEVER,          /* decode servers only */
    KVS_LEGS_LLMD_512,       /* llm-d: at least this many uncached tokens */
    KVS_LEGS_LLMD_2048,
    KVS_LEGS_DYNAMO,         /* its isl_bounding */
    KVS_LEGS_ONE,            /* all servers are one pool, no legs */
    KVS_LEGS_RULES
} kvs_legs_rule_e;


extern const char *const  kvs_legs_rules[];


/* "TTFT <= x and ITL P99 <= y": the condition of goodput */
#define KVS_LEGS_TTFT  2.0
#define KVS_LEGS_ITL   0.05


typedef struct {
    const char       *hardware;
    uint32_t          prefill;     /* number of servers */
    uint32_t          decode;
    double            setup;       /* s of a transfer */
    double            bandwidth;   /* bytes/s of a server's link */
    double            kv_bytes;    /* per token */
    double            load;        /* share of kvs_legs_capacity() */
    uint32_t          requests;
    kvs_legs_rule_e   rule;
    uint32_t          again;       /* the same, arrivals shifted by < 1 ms */
    kvs_shape_t       shape;
} kvs_legs_conf_t;


typedef struct {
    uint32_t          measured;
    uint32_t          done;        /* fewer than sent: given up */
    double            rate;        /* requests per s */
    double            transfer;    /* the parameter of that name */
    double            ttft, ttft_p50, ttft_p95;
    double            tpt, tpt_p99;    /* per request: s per token */
    double            itl, itl_p99;    /* between tokens, of all requests */
    double            goodput;     /* share within the limits */
    double            apart;       /* share that was disaggregated */
    double            computed;    /* share of prompt tokens computed */
    double            transferred; /* share of prompt tokens transferred */
} kvs_legs_result_t;


/*
 * Returns the requests per s that these servers could serve if each did what
 * it is best at, by the model's figures.
 */
double kvs_legs_capacity(const kvs_legs_conf_t *conf);

void kvs_legs_run(const kvs_legs_conf_t *conf, uint64_t seed,
    kvs_legs_result_t *res);


#endif
