
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_trial: whose fault a client error is: the server's or the client's */


#include "util.h"
#include "core/health/kvr_trial.h"


#define REASON  11
#define PAUSE   30000
#define TRIALS  200000


static _Atomic uint64_t  trial;
static uint64_t          now;
static uint64_t          random_state;


static uint64_t
random_next(void)
{
    return kvr_mix(++random_state, 1) >> 8;
}


/*
 * Runs a trial to its end.  bad there and elsewhere: percent of bad answers.
 * Returns the outcome, and the number of requests sent there.
 */
static kvr_trial_e
play(unsigned there, unsigned elsewhere, int *sent)
{
    int              same;
    kvr_trial_e      rc;
    kvr_trial_arm_e  arm;

    now += 1000000;
    util_check(kvr_trial_begin(&trial, REASON, now), "begins");

    *sent = 0;

    do {
        arm = random_next() % KVR_TRIAL_OWN ? KVR_TRIAL_ELSEWHERE
                                            : KVR_TRIAL_THERE;

        *sent += (arm == KVR_TRIAL_THERE);

        same = random_next() % 100
               < (arm == KVR_TRIAL_THERE ? there : elsewhere);

        rc = kvr_trial_step(&trial, arm, same, PAUSE, now);

    } while (rc == KVR_TRIAL_OPEN);

    return rc;
}


/* a server that answers with errors, unlike the others */
TEST(test_trial_sick)
{
    int       sent, all;
    unsigned  i, won;

    for (i = 0, won = 0, all = 0; i < 10000; i++) {
        won += (play(100, 0, &sent) == KVR_TRIAL_WON);
        all += sent;
    }

    util_check(won == 10000, "won %u of 10000", won);
    util_check(all <= 6 * 10000, "%d went there", all);

    /* errors for three of four requests, and for one of twenty elsewhere */

    for (i = 0, won = 0; i < 10000; i++) {
        won += (play(75, 5, &sent) == KVR_TRIAL_WON);
    }

    util_check(won >= 4000, "ejected in %u of 10000", won);
}


/* a server like the others is not ejected, whatever clients send */
TEST(test_trial_client)
{
    int       sent;
    unsigned  i, won, bad;

    for (bad = 0; bad <= 100; bad += 10) {

        for (i = 0, won = 0; i < TRIALS; i++) {
            won += (play(bad, bad, &sent) == KVR_TRIAL_WON);
        }

        util_check(won <= TRIALS / 1500, "%u %%: won %u of %u", bad, won,
                   TRIALS);
    }
}


/* a client that knows the state, and sends requests that raise it */
TEST(test_trial_adaptive)
{
    int              same;
    unsigned         i, won, k;
    kvr_trial_e      rc;
    kvr_trial_arm_e  arm;

    for (i = 0, won = 0; i < TRIALS; i++) {
        now += 1000000;
        (void) kvr_trial_begin(&trial, REASON, now);
        k = 0;

        do {
            /* good ones until there are enough, then bad ones */

            same = (k >= KVR_TRIAL_SEEN);

            arm = random_next() % KVR_TRIAL_OWN ? KVR_TRIAL_ELSEWHERE
                                                : KVR_TRIAL_THERE;
            k += (arm == KVR_TRIAL_ELSEWHERE);

            rc = kvr_trial_step(&trial, arm, same, PAUSE, now);

        } while (rc == KVR_TRIAL_OPEN);

        won += (rc == KVR_TRIAL_WON);
    }

    util_check(won <= TRIALS / 1500, "won %u of %u", won, TRIALS);
}


TEST(test_trial_word)
{
    int  i;

    trial = 0;
    now = 1ULL << 41;            /* a clock that counts from 1970 */

    util_check(kvr_trial_step(&trial, KVR_TRIAL_THERE, 1, PAUSE, now)
               == KVR_TRIAL_OPEN && trial == 0, "no trial");
    util_check(kvr_trial_begin(&trial, REASON, now), "begins");
    util_check(!kvr_trial_begin(&trial, REASON + 1, now), "once");
    util_check(kvr_trial_reason(trial) == REASON, "reason");

    /* answers elsewhere can be late: without any there is no verdict */

    for (i = 0; i < 100; i++) {
        util_check(kvr_trial_step(&trial, KVR_TRIAL_THERE, 1, PAUSE, now)
                   == KVR_TRIAL_OPEN, "%d", i);
    }

    for (i = 1; i <= KVR_TRIAL_SEEN; i++) {
        util_check(kvr_trial_step(&trial, KVR_TRIAL_ELSEWHERE, 0, 5, now)
                   == (i == KVR_TRIAL_SEEN ? KVR_TRIAL_WON : KVR_TRIAL_OPEN),
                   "%d", i);
    }

    util_check(kvr_trial_reason(trial) == 0, "over");

    now -= 1000;
    util_check(!kvr_trial_begin(&trial, REASON, now),
               "no second trial so soon");
    now += 1005;
    util_check(kvr_trial_begin(&trial, REASON, now), "a second trial later");

    /* two errors against the server */

    util_check(kvr_trial_step(&trial, KVR_TRIAL_ELSEWHERE, 1, PAUSE, now)
               == KVR_TRIAL_OPEN, "one answer");
    util_check(kvr_trial_step(&trial, KVR_TRIAL_THERE, 0, PAUSE, now)
               == KVR_TRIAL_LOST, "two");
    util_check(!kvr_trial_begin(&trial, REASON, now + PAUSE - 1), "a pause");
    util_check(kvr_trial_begin(&trial, REASON, now + PAUSE), "is over");
}
