/*
 * Prefill and decode by two pools of servers: one run.  What the router does is
 * the shipped code: core/legs decides, by what core/policy would pick, as the
 * glue asks for it; core/route counts.  Others' rules stand in its place.
 *
 * A request's way: a session's step falls due -> the rule -> plain: a decode
 * server has it.  Or leg 1 at a prefill server, one token; its blocks are held
 * -> transfer of what the decode server has not -> leg 2 there, which computes
 * the last token alone.  The place at the decode server is reserved from the
 * start.
 */

#ifndef KVS_LEGS_H
#define KVS_LEGS_H


#include "core/legs/kvr_disaggregate.h"

#include "bench/model/events.h"
#include "bench/model/route.h"
#include "bench/model/sample.h"
#include "bench/model/transfer.h"
#include "bench/sim/engine/workload.h"


/* who decides */
typedef enum {
    KVS_LEGS_COST = 0,       /* kvroute_prefill when=cost */
    KVS_LEGS_WHEN_ALWAYS,    /* when=always: prompts of "min" bytes */
    KVS_LEGS_ALWAYS,         /* all prompts */
    KVS_LEGS_NEVER,          /* decode servers alone */
    KVS_LEGS_LLMD_512,       /* llm-d: so many tokens are not held */
    KVS_LEGS_LLMD_2048,
    KVS_LEGS_DYNAMO,         /* its isl_bounding */
    KVS_LEGS_ONE,            /* all servers are one pool, and plain */
    KVS_LEGS_RULES
} kvs_legs_rule_e;


extern const char *const  kvs_legs_rules[];


/* "TTFT <= x and ITL P99 <= y": what counts for goodput */
#define KVS_LEGS_TTFT  2.0
#define KVS_LEGS_ITL   0.05


typedef struct {
    const char       *hardware;
    uint32_t          prefill;     /* servers */
    uint32_t          decode;
    double            setup;       /* s of a transfer */
    double            bandwidth;   /* bytes/s of a server's link */
    double            kv_bytes;    /* a token's */
    double            load;        /* share of kvs_legs_capacity() */
    uint32_t          requests;
    kvs_legs_rule_e   rule;
    uint32_t          again;       /* the same, at other ms */
    kvs_shape_t       shape;
} kvs_legs_conf_t;


typedef struct {
    uint32_t          measured;
    uint32_t          done;        /* of these; less: given up */
    double            rate;        /* requests per s */
    double            transfer;    /* the parameter of that name */
    double            ttft, ttft_p50, ttft_p95;
    double            tpt, tpt_p99;    /* of each request: s per token */
    double            itl, itl_p99;    /* between tokens, of all requests */
    double            goodput;     /* share that is in time */
    double            apart;       /* share that was disaggregated */
    double            computed;    /* prompt tokens, of those sent */
    double            transferred; /* the same */
} kvs_legs_result_t;


/*
 * Requests per s that these servers could serve if each had what it is best
 * at, by the model's own figures.
 */
double kvs_legs_capacity(const kvs_legs_conf_t *conf);

void kvs_legs_run(const kvs_legs_conf_t *conf, uint64_t seed,
    kvs_legs_result_t *res);


#endif
