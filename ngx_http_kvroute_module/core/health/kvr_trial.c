
/*
 * Copyright (C) kvroute contributors
 */


#include "core/health/kvr_trial.h"


/*
 * Parts of the word: the reason, the score from KVR_TRIAL_ZERO, the answers
 * elsewhere, and the time before which no trial begins.
 */
#define KVR_TRIAL_ZERO       128
#define KVR_TRIAL_SCORE(t)   ((int) ((t) >> 5 & 0xff) - KVR_TRIAL_ZERO)
#define KVR_TRIAL_COUNT(t)   ((uint32_t) ((t) >> 13) & 0x7)
#define KVR_TRIAL_TIME(t)    ((t) >> 16)


static uint64_t kvr_trial_word(uint32_t reason, int score, uint32_t seen,
    uint64_t time);


int
kvr_trial_begin(_Atomic uint64_t *trial, uint32_t reason, uint64_t now)
{
    uint64_t  old;

    old = kvr_get(trial);

    return kvr_trial_reason(old) == 0 && now >= KVR_TRIAL_TIME(old)
           && atomic_compare_exchange_strong(trial, &old,
                                           kvr_trial_word(reason, 0, 0, now));
}


kvr_trial_e
kvr_trial_step(_Atomic uint64_t *trial, kvr_trial_arm_e arm, int same,
    uint32_t pause, uint64_t now)
{
    int          score;
    uint32_t     seen;
    uint64_t     old, next;
    kvr_trial_e  rc;

    old = kvr_get(trial);

    do {
        if (kvr_trial_reason(old) == 0) {
            return KVR_TRIAL_OPEN;
        }

        score = KVR_TRIAL_SCORE(old);
        seen = KVR_TRIAL_COUNT(old);

        if (same != (arm == KVR_TRIAL_THERE)) {
            score -= KVR_TRIAL_AGAINST;

        } else if (same) {
            score += KVR_TRIAL_BAD;

        } else {
            score += KVR_TRIAL_GOOD;
            seen = kvr_min(seen + 1, KVR_TRIAL_SEEN);
        }

        score = kvr_min(score, KVR_TRIAL_SICK);

        rc = (score <= -KVR_TRIAL_WELL) ? KVR_TRIAL_LOST
             : (score == KVR_TRIAL_SICK && seen == KVR_TRIAL_SEEN)
             ? KVR_TRIAL_WON : KVR_TRIAL_OPEN;

        next = (rc == KVR_TRIAL_OPEN)
               ? kvr_trial_word(kvr_trial_reason(old), score, seen,
                                KVR_TRIAL_TIME(old))
               : kvr_trial_word(0, 0, 0, now + pause);

    } while (!atomic_compare_exchange_weak(trial, &old, next));

    return rc;
}


static uint64_t
kvr_trial_word(uint32_t reason, int score, uint32_t seen, uint64_t time)
{
    return time << 16 | (uint64_t) seen << 13
           | (uint64_t) (score + KVR_TRIAL_ZERO) << 5 | reason;
}
