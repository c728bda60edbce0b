
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_budget: accounts, admission, and the charge for a request */


#include <pthread.h>

#include "util.h"
#include "core/budget/kvr_budget.h"


#define NOW  1000000


static kvr_budget_t  budget;


static void
clean(void)
{
    memset((void *) &budget, 0, sizeof(budget));
}


static void
none(void)
{
}


suite_around(clean, none);


static kvr_budget_limit_t
limit(const char *rate)
{
    kvr_budget_limit_t  l = { 0, 0 };

    util_check(kvr_budget_read_rate((const uint8_t *) rate, strlen(rate), &l)
               == KVR_OK, "%s", rate);

    return l;
}


TEST(test_budget_read)
{
    size_t              i;
    double              amount;
    const char         *s;
    kvr_budget_limit_t  l;

    static const struct {
        const char  *text;
        double       burst;
        double       ms;
    } good[] = {
        { "1/s", 1, 1e3 }, { "100k/m", 1e5, 6e4 }, { "5M/h", 5e6, 3.6e6 },
        { "2g/d", 2e9, 8.64e7 }, { "999999999999999/s", 999999999999999, 1e3 }
    };

    static const char *const  bad[] = {
        "", "/", "1", "1/", "/m", "k/m", "0/m", "-1/m", "1.5k/m", "1kk/m",
        "100k", "100k/", "100k/y", "100k/mm", "100k//m", " 1/m", "1 /m",
        "1000000000000000/s"
    };

    for (i = 0; i < kvr_nelts(good); i++) {
        l = limit(good[i].text);

        util_check(l.burst == good[i].burst
                   && l.rate == good[i].burst / good[i].ms, "%s", good[i].text);
    }

    for (i = 0; i < kvr_nelts(bad); i++) {
        s = bad[i];

        util_check(kvr_budget_read_rate((const uint8_t *) s, strlen(s), &l)
                   == KVR_DECLINED, "%s", s);
    }

    util_check(kvr_budget_read_amount((const uint8_t *) "0", 1, &amount)
               == KVR_OK && amount == 0, "nothing");
    util_check(kvr_budget_read_amount((const uint8_t *) "m", 1, &amount)
               == KVR_DECLINED, "no number");
}


TEST(test_budget_take)
{
    uint64_t               wait;
    kvr_budget_limit_t     l;
    kvr_budget_account_t  *a;

    l = limit("1k/s");
    a = kvr_budget_account(&budget, 7, NOW);

    util_check(kvr_budget_left(a, &l, NOW) == 1000, "a full burst");
    util_check(kvr_budget_wait(a, &l, NOW) == 0, "no wait");

    /* the last request may exceed the burst, the next one is refused */

    util_check(kvr_budget_take(a, &l, 600, NOW) == KVR_OK, "first");
    util_check(kvr_budget_left(a, &l, NOW) == 400, "less");
    util_check(kvr_budget_take(a, &l, 600, NOW) == KVR_OK, "second");
    util_check(kvr_budget_left(a, &l, NOW) == 0, "nothing");
    util_check(kvr_budget_take(a, &l, 1, NOW) == KVR_DECLINED, "over");
    util_check(kvr_budget_reset(a, NOW) == 1200, "all that was owed");

    wait = kvr_budget_wait(a, &l, NOW);
    util_check(wait == 201, "%lu ms", wait);
    util_check(kvr_budget_take(a, &l, 1, NOW + wait - 1) == KVR_DECLINED,
               "too early");
    util_check(kvr_budget_take(a, &l, 1, NOW + wait) == KVR_OK, "in time");

    /* a refund, and a charge beyond the limit */

    kvr_budget_charge(a, &l, -1201, NOW);
    util_check(kvr_budget_left(a, &l, NOW) == 1000, "nothing owed");
    kvr_budget_charge(a, &l, 5000, NOW);
    util_check(kvr_budget_wait(a, &l, NOW) == 4001, "much owed");

    /* more than was ever charged */

    kvr_budget_charge(a, &l, -1e30, NOW);
    util_check(kvr_budget_left(a, &l, NOW) == 1000, "never more");
    kvr_budget_charge(a, &l, 1, NOW);
    util_check(kvr_budget_left(a, &l, NOW) == 999, "no credit is kept");

    /* without a burst one request at a time */

    l.burst = 0;
    util_check(kvr_budget_take(a, &l, 10, NOW + 5) == KVR_OK, "alone");
    util_check(kvr_budget_take(a, &l, 10, NOW + 5) == KVR_DECLINED, "second");
    util_check(kvr_budget_wait(a, &l, NOW + 5) == 11, "until it is paid");

    /* a charge of any size is over one day */

    kvr_budget_charge(a, &l, 1e300, NOW);
    util_check(kvr_budget_wait(a, &l, NOW) < UINT64_C(105) * 86400 * 1000,
               "bounded");
}


/* requests use what the rate allows, whatever the estimates */

TEST_LOOP(test_budget_rate, 4)
{
    int                    n, open;
    double                 used, real[64], estimate[64];
    uint64_t               now, end[64];
    util_rng_t             rng;
    kvr_budget_limit_t     l;
    kvr_budget_account_t  *a;

    util_seed(&rng, "budget", (uint64_t) loop);
    l = limit("60k/s");
    l.burst = loop & 1 ? 6000 : 0;
    a = kvr_budget_account(&budget, 7, 0);

    used = 0;
    open = 0;

    for (now = 0; now < 100000; now++) {

        for (n = 0; n < open; n++) {
            if (end[n] <= now) {
                kvr_budget_charge(a, &l, real[n] - estimate[n], now);
                used += real[n];

                open--;
                end[n] = end[open];
                real[n] = real[open];
                estimate[n] = estimate[open];
                n--;
            }
        }

        while (open < 64) {
            real[open] = (double) util_below(&rng, 2000);
            estimate[open] = loop & 2 ? 1000
                                      : (double) util_below(&rng, 4000);

            if (kvr_budget_take(a, &l, estimate[open], now) != KVR_OK) {
                break;
            }

            end[open] = now + util_below(&rng, 500);
            open++;
        }

        util_check(used <= 60.0 * (double) now + l.burst + 64 * 2000,
                   "%.0f at %lu ms", used, now);
    }

    /* without a burst, the surplus of estimates expires */

    util_check((used > 0.98 * 60 * 1e5 || l.burst == 0)
               && used < 1.02 * 60 * 1e5, "%.4f of the rate", used / 60 / 1e5);
}


/* debts of many absurd charges do not wrap, and garbage is not charged */
TEST(test_budget_absurd)
{
    uint32_t               i;
    uint8_t                secret[2][KVR_SECRET_LEN];
    kvr_budget_use_t       use;
    kvr_budget_limit_t     l;
    kvr_budget_part_t      part;
    kvr_budget_account_t  *a;

    clean();
    l = limit("1/d");
    a = kvr_budget_account(&budget, 7, NOW);

    for (i = 0; i < 5000; i++) {
        kvr_budget_charge(a, &l, 1e300, NOW);
        util_check(kvr_budget_wait(a, &l, NOW) > UINT64_C(100) * 86400 * 1000,
                   "%u", i);
    }

    memset(&part, 0, sizeof(part));
    memset(&use, 0, sizeof(use));
    part.bytes = 400;
    part.tokens[0] = UINT32_MAX;
    part.tokens[1] = -1;
    part.tokens[2] = UINT32_MAX;

    kvr_budget_add(a, &part, &use);
    util_check(use.prompt < 1000 && use.output < 1000, "%.0f %.0f", use.prompt,
               use.output);
    util_check(kvr_get(&a->output) == 0, "nothing is learned of it");

    /* the first secret stays */

    memset(secret[0], 1, KVR_SECRET_LEN);
    memset(secret[1], 2, KVR_SECRET_LEN);
    kvr_budget_secret(&budget, secret[0]);
    kvr_budget_secret(&budget, secret[1]);
    util_check(memcmp(budget.secret, secret[0], KVR_SECRET_LEN) == 0, "kept");
}


TEST(test_budget_accounts)
{
    uint64_t               i;
    kvr_budget_limit_t     l;
    kvr_budget_account_t  *a, *b;

    l = limit("1/s");

    a = kvr_budget_account(&budget, 0, NOW);
    util_check(a && kvr_budget_account(&budget, 1, NOW) == a, "0 is a name");

    /* names of one bucket */

    for (i = 1; i <= KVR_BUDGET_WAYS; i++) {
        b = kvr_budget_account(&budget, 8 + i * KVR_BUDGET_ACCOUNTS, NOW);
        util_check(b && b != a, "%lu", i);
        kvr_budget_charge(b, &l, (double) i, NOW);
    }

    util_check(kvr_budget_account(&budget, 8, NOW) == NULL, "all accounts owe");
    util_check(kvr_budget_account(&budget, 8 + 2 * KVR_BUDGET_ACCOUNTS, NOW),
               "known accounts are found");

    /* the first one is paid */

    b = kvr_budget_account(&budget, 8 + KVR_BUDGET_ACCOUNTS, NOW);
    kvr_set(&b->output, 99);
    a = kvr_budget_account(&budget, 8, NOW + 1000);
    util_check(a == b && kvr_get(&a->output) == 0, "replaced");
    util_check(kvr_budget_left(a, &l, NOW + 1000) == 1, "like a new one");

    /*
     * a free account first: an account without debts keeps what it has learned
     */

    clean();
    a = kvr_budget_account(&budget, 8, NOW);
    b = kvr_budget_account(&budget, 8 + KVR_BUDGET_ACCOUNTS, NOW);
    util_check(a != b && kvr_budget_account(&budget, 8, NOW) == a, "kept");

    /* a process was killed between its claim and the second look-up */

    kvr_set(&b->key, 8);
    util_check(kvr_budget_account(&budget, 8, NOW) == a, "the first counts");
}


static void *
threads_run(void *data)
{
    int                    i;
    uint64_t               hash;
    kvr_budget_limit_t     l;
    kvr_budget_account_t  *a;

    l = limit("1k/s");

    for (i = 0; i < 20000; i++) {
        hash = 8 + (uint64_t) (i & 3) * KVR_BUDGET_ACCOUNTS;
        a = kvr_budget_account(&budget, hash, NOW);
        kvr_budget_charge(a, &l, 3, NOW);
        kvr_budget_charge(a, &l, -2, NOW);
    }

    return data;
}


TEST(test_budget_threads)
{
    int                    i;
    double                 sum;
    pthread_t              tid[4];
    kvr_budget_account_t  *a;

    for (i = 0; i < 4; i++) {
        util_check(pthread_create(&tid[i], NULL, threads_run, NULL) == 0,
                   "thread");
    }

    for (i = 0; i < 4; i++) {
        pthread_join(tid[i], NULL);
    }

    for (i = 0, sum = 0; i < 4; i++) {
        a = kvr_budget_account(&budget,
                               8 + (uint64_t) i * KVR_BUDGET_ACCOUNTS, NOW);
        sum += (double) kvr_budget_reset(a, NOW);
    }

    /* a first claim that was too late loses its charges */

    util_check(sum <= 80000 && sum > 80000 - 100, "%.0f of 80000", sum);
}


static void
part(kvr_budget_account_t *a, kvr_budget_use_t *use, uint64_t bytes,
    uint64_t cached, uint64_t reply, int64_t prompt, int64_t hit, int64_t out,
    int decode)
{
    kvr_budget_part_t  p = { bytes, cached, reply, { prompt, hit, out },
                             decode != 0 };

    kvr_budget_add(a, &p, use);
}


TEST(test_budget_cost)
{
    int                    i;
    kvr_budget_use_t       use;
    kvr_budget_account_t  *a;

    a = kvr_budget_account(&budget, 7, NOW);

    /* unknown: 4 bytes a token, no output */

    kvr_budget_estimate(a, 4000, 1000, 100, &use);
    util_check(use.prompt == 1000 && use.computed == 750 && use.output == 0,
               "a guess");

    kvr_budget_estimate(a, 4000, 5000, 100, &use);
    util_check(use.computed == 0, "more cached than there is");

    /* the engines' reports count; an account learns from them */

    for (i = 0; i < 100; i++) {
        memset(&use, 0, sizeof(use));
        part(a, &use, 4000, 1000, 0, 2000, 1600, 64, 0);

        util_check(kvr_budget_cost(&use, KVR_BUDGET_COMPUTED) == 400
                   && kvr_budget_cost(&use, KVR_BUDGET_PROMPT) == 2000
                   && kvr_budget_cost(&use, KVR_BUDGET_ALL) == 2064,
                   "reported");
    }

    kvr_budget_estimate(a, 4000, 1000, 0, &use);
    util_check(use.prompt > 1950 && use.prompt < 2050, "%.0f", use.prompt);
    util_check(use.output > 60 && use.output <= 64, "%.0f", use.output);

    kvr_budget_estimate(a, 4000, 1000, 10, &use);
    util_check(use.output == 10, "at most max_tokens");

    /* no usage: by the lengths */

    memset(&use, 0, sizeof(use));
    part(a, &use, 4000, 2000, 2000, -1, -1, -1, 0);
    util_check(use.computed > 950 && use.computed < 1050, "%.0f", use.computed);
    util_check(use.output > 950 && use.output < 1050, "%.0f", use.output);

    memset(&use, 0, sizeof(use));
    part(a, &use, 4000, 2000, 0, 1000, -1, -1, 0);
    util_check(use.computed == 1000, "cached tokens were not reported");
    util_check(use.output > 60 && use.output <= 64, "no reply: the mean");

    /* prefill and decode, or an answer in two parts */

    memset(&use, 0, sizeof(use));
    part(a, &use, 4000, 0, 0, 1000, 300, 1, 0);
    part(a, &use, 4000, 0, 0, 1000, 0, 50, 1);
    util_check(use.prompt == 1000 && use.computed == 700 && use.output == 51,
               "computed once");

    memset(&use, 0, sizeof(use));
    part(a, &use, 4000, 0, 0, 1000, 0, 20, 0);
    part(a, &use, 4100, 0, 0, 1020, 1000, 30, 0);
    util_check(use.prompt == 1020 && use.computed == 1020 && use.output == 50,
               "continued");

    /* an engine that reports more cached than there was */

    memset(&use, 0, sizeof(use));
    part(a, &use, 4000, 0, 0, 1000, 5000, 0, 0);
    util_check(use.computed == 0, "not negative");
}
