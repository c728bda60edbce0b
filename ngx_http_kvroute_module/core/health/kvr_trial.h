
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_TRIAL_H_INCLUDED_
#define _KVR_TRIAL_H_INCLUDED_


/*
 * Whose fault an answer is that blames the client: 4xx, or an error that does
 * not say.  A policy with affinity sends all requests of a client to one
 * server, so a client whose requests are bad makes that server look bad, and
 * so does a server whose API key is wrong.  To count answers cannot tell the
 * two apart.
 *
 * So a server with several more of such answers than good ones is put on trial:
 * of the requests that the policy would send there, one in KVR_TRIAL_OWN goes
 * there, and the others go elsewhere, at random.  What is the client's fault
 * fails elsewhere too; what is the server's does not.
 *
 * The trial is a bet.  An answer that fits a sick server, bad there or good
 * elsewhere, adds to the score; one that does not takes more from it.  If all
 * servers answer alike, the random number alone decides between the two: with
 * the steps below the mean of 1.3 ^ score never grows, whatever a client
 * sends, and so the score comes to KVR_TRIAL_SICK in one trial of
 * 1.3 ^ 28 = 1500 at most.  After a trial that was lost there is none for a
 * while.
 *
 * A trial is one word in shared memory.  It needs no end: the next answers
 * decide it, whenever they come.
 */


#include "core/base/kvr_core.h"


/* of so many requests one goes to the server on trial */
#define KVR_TRIAL_OWN       4

/* reasons that a trial can have, from 1 on */
#define KVR_TRIAL_REASONS   32

/* the score */
#define KVR_TRIAL_BAD       5    /* bad there */
#define KVR_TRIAL_GOOD      1    /* not so elsewhere */
#define KVR_TRIAL_AGAINST   9    /* any other answer takes so many */
#define KVR_TRIAL_SICK      28
#define KVR_TRIAL_WELL      18   /* below zero */

/* so many answers elsewhere are needed, as those may come later */
#define KVR_TRIAL_SEEN      4


/* how a request came to its server */
typedef enum {
    KVR_TRIAL_FIXED = 0,         /* it could go nowhere else */
    KVR_TRIAL_NONE,              /* by the policy, no trial */
    KVR_TRIAL_THERE,             /* to the server on trial */
    KVR_TRIAL_ELSEWHERE          /* to another one instead */
} kvr_trial_arm_e;


typedef enum {
    KVR_TRIAL_OPEN = 0,          /* not decided, or there is none */
    KVR_TRIAL_LOST,              /* the server is as good as the others */
    KVR_TRIAL_WON                /* it is sick */
} kvr_trial_e;


/* what the server on trial answers; 0: it is not on trial */
static inline uint32_t
kvr_trial_reason(uint64_t trial)
{
    return (uint32_t) trial & (KVR_TRIAL_REASONS - 1);
}


/* begins one, unless there is one, or was one of late; returns 1 if so */
int kvr_trial_begin(_Atomic uint64_t *trial, uint32_t reason, uint64_t now);

/*
 * An answer has come; same: it is the one that the server is on trial for.  A
 * trial that is over is not repeated for so many ms.
 */
kvr_trial_e kvr_trial_step(_Atomic uint64_t *trial, kvr_trial_arm_e arm,
    int same, uint32_t pause, uint64_t now);


#endif /* _KVR_TRIAL_H_INCLUDED_ */
