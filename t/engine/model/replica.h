/*
 * One engine replica, in virtual time: a scheduler over a paged prefix cache,
 * and a step time model.  A pure library: it reads no clock, opens no socket,
 * draws no random number and keeps no global state, so equal calls give equal
 * results.  The caller passes the time (seconds, never going back) and gets
 * events.
 *
 *     kve_replica_submit(r, &req, t)       a request arrives
 *     t = kve_replica_next(r)              when something can happen next
 *     n = kve_replica_advance(r, t, &ev)   what happened up to t
 *
 * The request belongs to the caller and must stay where it is, with its
 * hashes, until its KVE_DONE or KVE_ABORTED event.  Events stay valid until
 * the next call that takes a time.
 *
 * Below the GPU's memory there can be tiers (host memory, disk).  A block with
 * a name is stored in all of them; each tier has its own LRU order.  A prompt
 * that continues in a lower tier is loaded before it is computed; other
 * requests continue meanwhile.
 *
 * A request can name another replica: the part of its prompt that only that
 * one has comes from there, over the links of both, one prompt after another.
 *
 * A hybrid model resumes only where a recurrent state was stored: each "state"
 * tokens, at the last such place that a step reaches, or at all of them.
 * States are in the GPU's memory only.
 *
 * All tokens of a step come out at the same engine time.  ev->time is when the
 * client gets them, which is later by the cost of the API server.
 */

#ifndef KVE_REPLICA_H
#define KVE_REPLICA_H


#include <stddef.h>
#include <stdint.h>

#include "blocks.h"
#include "hardware.h"


/* re-admissions after more preemptions than this share one span */
#define KVE_SPANS  4


typedef enum {
    KVE_GPU = 0,
    KVE_HOST,
    KVE_DISK,
    KVE_PEER,               /* not a tier: another replica */
    KVE_TIERS
} kve_tier_e;


typedef struct kve_replica_s  kve_replica_t;
typedef struct kve_req_s      kve_req_t;


typedef enum {
    KVE_ADMITTED = 1,       /* cached_tokens is known */
    KVE_FIRST,              /* the first token */
    KVE_PREEMPTED,          /* back to the queue's head */
    KVE_DONE,
    KVE_ABORTED             /* by a restart, or too large */
} kve_event_e;


typedef struct {
    kve_event_e         type;
    double              time;
    kve_req_t          *req;
} kve_event_t;


typedef struct {
    uint32_t            blocks;         /* 0: no such tier */
    double              load;           /* s a token */
    kve_blocks_t       *shared;         /* by several replicas, or NULL */
} kve_tier_t;


typedef struct {
    kve_hw_t            hw;
    double              speed;          /* 0.5: half as fast, default 1 */
    uint32_t            block_size;     /* tokens, default 16 */
    uint32_t            blocks;         /* default hw.kv_tokens' worth */
    uint32_t            max_seqs;       /* default hw.max_seqs */
    uint32_t            max_batched;    /* default hw.max_batched */
    uint32_t            max_run;        /* steps advanced in bulk, 0: any */
    kve_tier_t          tier[KVE_TIERS];    /* below the first one */
    uint32_t            state;          /* hybrid: blocks between two places
                                           to resume; 0: resumes anywhere */

    unsigned            states:1;       /* each place has a state */
    unsigned            no_cache:1;     /* the cache finds nothing */
    unsigned            token_log:1;    /* keeps token times for queries */
} kve_config_t;


typedef struct {
    uint64_t            step;           /* step count at first of span - 1 */
    uint32_t            token;          /* number of its first token, from 1 */
} kve_span_t;


struct kve_req_s {

    /*
     * Set by the caller.  Hash i names the block of the tokens
     * [i * block_size, (i + 1) * block_size) of the prompt and the reply, and
     * all tokens before them.  Blocks past the last hash are never found
     * again.
     */

    const uint64_t     *hashes;
    uint32_t            nhashes;
    uint32_t            prompt_tokens;
    uint32_t            output_tokens;
    unsigned            skip:1;         /* finds nothing, is found */
    unsigned            keep:1;         /* its blocks are held after the end,
                                           up to kve_replica_release() */
    unsigned            given:1;        /* its prompt's keys and values have
                                           come from elsewhere: all but the
                                           last token is there */
    kve_replica_t      *source;         /* has more of the prompt, or NULL */
    void               *data;

    /* results */

    uint32_t            cached_tokens;
    uint32_t            loaded[KVE_TIERS];  /* tokens loaded from these */
    uint32_t            preemptions;
    double              submit_time;
    double              admit_time;
    double              first_time;     /* as the client sees it */
    double              done_time;

    /* for the replica */

    uint32_t            state;
    uint32_t            generated;      /* at "joined" */
    uint64_t            joined;
    uint64_t            finish;         /* step count at its last token */
    uint32_t            heap;
    uint32_t            resume;         /* tokens it needs before decoding */
    uint32_t            todo;           /* of them, not computed yet */
    uint32_t            depth;          /* of them, in the cache already */
    uint32_t            chunk;          /* computed by the current step */
    uint32_t            need;           /* free blocks, when last refused */
    uint32_t            loading;
    double              ready;          /* when what is loading is there */
    uint32_t            nblocks;
    uint32_t            nkept;          /* blocks held after the end */
    uint32_t            named;
    uint32_t            nspans;
    uint32_t           *blocks;
    kve_req_t          *prev, *next;    /* arrivals, waiting or running */
    kve_req_t          *pprev, *pnext;  /* prefilling, or same phase */
    kve_span_t          spans[KVE_SPANS];
};


typedef struct {
    uint32_t            running;
    uint32_t            waiting;
    uint32_t            prefilling;     /* of the running */
    uint32_t            decoding;
    uint32_t            blocks;
    uint32_t            held_blocks;
    double              kv_usage;       /* held by running requests, 0 .. 1 */
    uint64_t            waiting_tokens; /* prompt tokens in the queue */
    uint64_t            context_tokens; /* of the decoding */

    /* counters */

    uint64_t            queries;        /* prefix cache, tokens */
    uint64_t            hits;
    uint64_t            loaded[KVE_TIERS];  /* of these, from lower tiers */
    uint64_t            prompt_tokens;
    uint64_t            generation_tokens;
    uint64_t            recomputed_tokens;
    uint64_t            preemptions;
    uint64_t            requests;
    uint64_t            done;
    uint64_t            aborted;
    uint64_t            steps;
    double              busy;           /* s, sum of the steps */
} kve_stats_t;


/*
 * Reports of the cache, from which KV events are made.  Blocks [first, first +
 * n) of a request have got a name; a name was removed; all were removed by a
 * reset.  moved: a lower tier has stored or removed a name.  A restart is not
 * reported, because the process is another one.  step: all reports since the
 * last one belong to a step that ended at t, which can be in the past.
 */
typedef struct {
    void              (*stored)(void *data, const kve_req_t *req,
                                uint32_t first, uint32_t n);
    void              (*removed)(void *data, uint64_t hash);
    void              (*cleared)(void *data);
    void              (*moved)(void *data, kve_tier_e tier, uint64_t hash,
                               int stored);     /* or NULL */
    void              (*step)(void *data, double t);
    void               *data;
} kve_watch_t;


/* sets hw's defaults, which the caller can change */
void kve_config_init(kve_config_t *cf, const kve_hw_t *hw);

kve_replica_t *kve_replica_create(const kve_config_t *cf);
void kve_replica_destroy(kve_replica_t *r);

/* the watch has all functions, and must stay in memory */
void kve_replica_watch(kve_replica_t *r, const kve_watch_t *watch);

void kve_replica_submit(kve_replica_t *r, kve_req_t *req, double t);

/* aborts a request, which has not ended yet; no event follows */
void kve_replica_abort(kve_replica_t *r, kve_req_t *req, double t);

/*
 * Releases the blocks of a request with "keep" that has ended.  A second call
 * does nothing.  Must be called before a restart.
 */
void kve_replica_release(kve_replica_t *r, kve_req_t *req, double t);

/* INFINITY when idle; kve_replica_next_step() never skips a step's end */
double kve_replica_next(const kve_replica_t *r);
double kve_replica_next_step(const kve_replica_t *r);

size_t kve_replica_advance(kve_replica_t *r, double t,
    const kve_event_t **events);

/* a new process: cache and counters gone, one KVE_ABORTED per request */
size_t kve_replica_restart(kve_replica_t *r, double t,
    const kve_event_t **events);

/* like vLLM: refused (0) while blocks are in use */
int kve_replica_reset_cache(kve_replica_t *r, double t);

int kve_replica_set_blocks(kve_replica_t *r, uint32_t blocks, double t);
void kve_replica_set_speed(kve_replica_t *r, double speed, double t);

/*
 * Returns the leading tokens of a prompt that an admission would find at the
 * last time passed.
 */
uint32_t kve_replica_match(const kve_replica_t *r, const uint64_t *hashes,
    uint32_t nhashes, uint32_t prompt_tokens);

/* returns the same by tier */
void kve_replica_reach(const kve_replica_t *r, const uint64_t *hashes,
    uint32_t nhashes, uint32_t prompt_tokens, uint32_t *tokens);

void kve_replica_stats(const kve_replica_t *r, kve_stats_t *st);
const kve_config_t *kve_replica_config(const kve_replica_t *r);
const kve_blocks_t *kve_replica_blocks(const kve_replica_t *r);

/* NULL: no such tier */
const kve_blocks_t *kve_replica_tier(const kve_replica_t *r, kve_tier_e tier);


/* computed tokens, seen by the client or not yet */
uint32_t kve_req_tokens(const kve_replica_t *r, const kve_req_t *req);

/*
 * Returns when the client sees tokens first .. first + n - 1 (counted from 1).
 * Needs token_log.  The tokens must be computed; a finished request can be
 * used until the next call that takes a time.
 */
void kve_req_times(const kve_replica_t *r, const kve_req_t *req,
    uint32_t first, uint32_t n, double *times);

/* for tests: 0 when all counters agree */
int kve_replica_check(const kve_replica_t *r);


#endif
