/* Sessions: the requests of a client, step by step. */

#ifndef KVS_SESSION_H
#define KVS_SESSION_H


#include "bench/model/kvs.h"
#include "hardware.h"


typedef struct kvs_session_s  kvs_session_t;


typedef struct {
    uint32_t          prompt;       /* tokens */
    uint32_t          output;
    double            pause;        /* s, before it */
    double            due;          /* s, if all replicas were idle */
} kvs_step_t;


/*
 * Steps follow each other.  Each step's prompt is a prefix of the text, and so
 * is its prompt with its reply.
 */
struct kvs_session_s {
    double            arrival;
    uint64_t          key_session;  /* session id that a client would send */
    uint64_t          key_text;     /* of the user's first 100 characters */
    uint64_t         *chain;
    uint32_t          units;
    uint32_t          nsteps;
    uint32_t          step;         /* current step */
    uint32_t          live;         /* requests that refer to it */
    kvs_step_t       *steps;
};


/* returns the s that an idle replica needs for a step with these new tokens */
static inline double
kvs_session_nominal(const kve_hw_t *hw, uint32_t fresh, uint32_t output)
{
    return hw->api + fresh * hw->linear
           + output * (hw->floor + hw->step + hw->output);
}


/* allocates a session in one piece, for free() */
kvs_session_t *kvs_session_create(uint32_t nsteps, uint32_t tokens);


/* returns whether a session is urgent: one in this many */
#define KVS_URGENT  5

static inline int
kvs_urgent(const kvs_session_t *s)
{
    return kvr_reduce(kvr_mix(s->key_session, 0x757267), KVS_URGENT) == 0;
}


#endif
