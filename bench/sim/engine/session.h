/* Sessions: what a client asks for, one step after the other. */

#ifndef KVS_SESSION_H
#define KVS_SESSION_H


#include "bench/model/kvs.h"
#include "hardware.h"


typedef struct kvs_session_s  kvs_session_t;


typedef struct {
    uint32_t          prompt;       /* tokens */
    uint32_t          output;
    double            pause;        /* s, before it */
    double            due;          /* s, were every replica idle */
} kvs_step_t;


/*
 * Steps that follow each other; each one's prompt is a prefix of the text,
 * and so is each one's prompt with its reply.
 */
struct kvs_session_s {
    double            arrival;
    uint64_t          key_session;  /* what a client would send as its id */
    uint64_t          key_text;     /* first 100 characters of the user's */
    uint64_t         *chain;
    uint32_t          units;
    uint32_t          nsteps;
    uint32_t          step;         /* under way */
    uint32_t          live;         /* requests that refer to it */
    kvs_step_t       *steps;
};


/* s that an idle replica needs for a step, so many tokens of which are new */
static inline double
kvs_session_nominal(const kve_hw_t *hw, uint32_t fresh, uint32_t output)
{
    return hw->api + fresh * hw->linear
           + output * (hw->floor + hw->step + hw->output);
}


/* in one piece, to be freed by free() */
kvs_session_t *kvs_session_create(uint32_t nsteps, uint32_t tokens);


/* whether somebody waits for a session's answers: one in so many */
#define KVS_URGENT  5

static inline int
kvs_urgent(const kvs_session_t *s)
{
    return kvr_reduce(kvr_mix(s->key_session, 0x757267), KVS_URGENT) == 0;
}


#endif
