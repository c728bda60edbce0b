/*
 * Internal parts of the replica model.
 *
 * Time advances in runs: one step with prefill chunks, or many decode steps in
 * a row in which no request joins or leaves.  Step k of a run takes d + g * k
 * seconds, because every sequence grows by a token a step.  So the end of step
 * k, and the step at a time, have a closed form, and the cost of a run does
 * not depend on its length.  Only new blocks cost: sequences that start one in
 * the same step share a list ("phase").
 *
 * A run is cut after the current step if an arrival, an abort or a change of
 * settings can change the batch.
 *
 * schedule.c advances time, batch.c moves requests, tier.c finds and loads,
 * replica.c is the interface.
 */

#ifndef KVE_REPLICA_INT_H
#define KVE_REPLICA_INT_H


#include "replica.h"




enum {
    KVE_IDLE = 0,
    KVE_ARRIVING,
    KVE_WAITING,
    KVE_PREFILL,
    KVE_DECODE
};


typedef struct {
    kve_req_t          *first;
    kve_req_t          *last;
} kve_list_t;


typedef struct {
    uint64_t            step;           /* steps over before it */
    uint64_t            n;
    double              t0;
    double              d;
    double              g;
} kve_run_t;


/* the reports of a tier's table, and its replica */
typedef struct {
    kve_replica_t      *r;
    kve_tier_e          tier;
} kve_told_tier_t;


struct kve_replica_s {
    kve_config_t        cf;
    kve_blocks_t       *blocks;         /* the first tier's */
    kve_blocks_t       *tier[KVE_TIERS];    /* of the lower ones, or NULL */
    kve_told_tier_t     by[KVE_TIERS];
    double              link[KVE_TIERS];    /* busy loading until then */
    double              out;                /* busy sending until then */
    double              now;

    kve_list_t          arrivals;
    kve_list_t          waiting;
    kve_list_t          running;        /* by admission: the last is preempted */
    kve_list_t          prefill;        /* by pprev, pnext */
    kve_req_t         **phase;          /* [block_size], decoding */
    uint32_t           *phase_count;
    kve_req_t         **heap;           /* decoding, by finish */
    size_t              heap_size;

    uint32_t            nwaiting;
    uint32_t            nrunning;
    uint32_t            nprefill;
    uint32_t            ndecode;
    uint32_t            nkept;          /* ended, with blocks still held */
    uint32_t            nloading;       /* of the prefilling */
    uint64_t            context;        /* tokens of the decoding */
    uint64_t            waiting_tokens;
    uint64_t            step;           /* steps over */

    kve_run_t           run;
    unsigned            active;
    uint64_t            begun;          /* of the run's steps */

    kve_run_t          *log;
    size_t              nlog;
    size_t              log_size;

    kve_event_t        *events;         /* to be returned */
    size_t              nevents;
    size_t              events_size;
    kve_event_t        *returned;
    size_t              returned_size;

    kve_stats_t         st;

    const kve_watch_t  *watch;          /* or NULL */
    unsigned            told;           /* reports since the last step */
};


void *kve_grow(void *p, size_t *size, size_t n, size_t elt);
void kve_replica_event(kve_replica_t *r, kve_event_e type, kve_req_t *req,
    double t);

void kve_list_push(kve_list_t *l, kve_req_t *req);
void kve_list_remove(kve_list_t *l, kve_req_t *req);

void kve_replica_begin(kve_replica_t *r, uint64_t s);
void kve_replica_join(kve_replica_t *r, kve_req_t *req, double t);
void kve_replica_let(kve_replica_t *r, kve_req_t *req);
void kve_replica_finish(kve_replica_t *r, kve_req_t *req, double t);
void kve_replica_preempt(kve_replica_t *r, kve_req_t *req, double t);
void kve_replica_drop(kve_replica_t *r, kve_req_t *req);
uint32_t kve_replica_chunk(kve_replica_t *r, kve_req_t *req,
    uint32_t budget);
int kve_replica_admit(kve_replica_t *r, kve_req_t *req, double t,
    uint32_t budget);

/* a name is used: stores it in the lower tiers, or makes it recent there */
void kve_replica_below(kve_replica_t *r, uint64_t hash);

/* a step has computed a prompt this far: stores states on the way */
void kve_replica_states(kve_replica_t *r, kve_req_t *req, uint32_t tokens);

/* each tier's link loads one prompt after another */
void kve_replica_load(kve_replica_t *r, kve_req_t *req, const uint32_t *tier,
    double t);

/*
 * Returns how many of these leading blocks would be found, and how many in
 * each tier.  Stores ids of the first tier's in "ids", unless NULL.
 */
uint32_t kve_replica_fetched(const kve_req_t *req, uint32_t limit,
    uint32_t found, uint32_t *tier);
int kve_replica_coming(const kve_replica_t *r, uint64_t hash);
uint32_t kve_replica_found(const kve_replica_t *r, const uint64_t *hashes,
    uint32_t limit, uint32_t *ids, uint32_t *tier);

/* when the first loading request can continue; INFINITY: none */
double kve_replica_ready(const kve_replica_t *r);

double kve_run_time(const kve_run_t *run, uint64_t k);
void kve_replica_settle_to(kve_replica_t *r, double t, int cut);
void kve_replica_go(kve_replica_t *r, double t);


#endif
