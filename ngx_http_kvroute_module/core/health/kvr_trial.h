
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_TRIAL_H_INCLUDED_
#define _KVR_TRIAL_H_INCLUDED_


/*
 * Trials decide whose fault an answer is that blames the client: 4xx, or an
 * ambiguous error.  A policy with affinity sends all requests of a client to
 * one server.  So both a client with bad requests and a server with a wrong
 * API key make that server look bad, and counting answers cannot distinguish
 * them.
 *
 * A server with several more such answers than good ones is put on trial: of
 * the requests that the policy would send there, one in KVR_TRIAL_OWN goes
 * there, and the others go elsewhere, at random.  The client's fault fails
 * elsewhere too, the server's does not.
 *
 * The trial is a bet.  An answer that fits a sick server (bad there, good
 * elsewhere) raises the score, its opposite lowers it by more.  If all servers
 * answer alike, only the random number decides where a request goes: with the
 * steps below the mean of 1.3 ^ score then never grows, whatever a client
 * sends, so the score reaches KVR_TRIAL_SICK in at most one of 1.3 ^ 28 = 1500
 * trials.  After a lost trial there is a pause.
 *
 * A trial is one word in shared memory.  It needs no end: the next answers
 * decide it, whenever they arrive.
 */


#include "core/base/kvr_core.h"


/* one of this many requests goes to the server on trial */
#define KVR_TRIAL_OWN       4

/* limit of reasons, which are from 1 on */
#define KVR_TRIAL_REASONS   32

/* the score */
#define KVR_TRIAL_BAD       5    /* a bad answer there */
#define KVR_TRIAL_GOOD      1    /* a good answer elsewhere */
#define KVR_TRIAL_AGAINST   9    /* subtracted for any other answer */
#define KVR_TRIAL_SICK      28
#define KVR_TRIAL_WELL      18   /* below zero: lost */

/* answers elsewhere that are needed, as they may arrive later */
#define KVR_TRIAL_SEEN      4


/* why a request went to its server */
typedef enum {
    KVR_TRIAL_FIXED = 0,         /* there was no other candidate */
    KVR_TRIAL_NONE,              /* by the policy, without a trial */
    KVR_TRIAL_THERE,             /* to the server on trial */
    KVR_TRIAL_ELSEWHERE          /* to another one instead */
} kvr_trial_arm_e;


typedef enum {
    KVR_TRIAL_OPEN = 0,          /* undecided, or there is none */
    KVR_TRIAL_LOST,              /* the server is as good as the others */
    KVR_TRIAL_WON                /* it is sick */
} kvr_trial_e;


/* Returns the reason of a trial; 0: the server is not on trial. */
static inline uint32_t
kvr_trial_reason(uint64_t trial)
{
    return (uint32_t) trial & (KVR_TRIAL_REASONS - 1);
}


/* Begins a trial, unless one is open or was lost recently; returns 1 if so. */
int kvr_trial_begin(_Atomic uint64_t *trial, uint32_t reason, uint64_t now);

/*
 * Takes an answer; same: its status is the trial's reason.  A decided trial is
 * not repeated for pause ms.
 */
kvr_trial_e kvr_trial_step(_Atomic uint64_t *trial, kvr_trial_arm_e arm,
    int same, uint32_t pause, uint64_t now);


#endif /* _KVR_TRIAL_H_INCLUDED_ */
