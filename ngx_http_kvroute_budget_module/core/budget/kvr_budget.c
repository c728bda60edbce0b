
/*
 * Copyright (C) kvroute contributors
 */


#include "core/budget/kvr_budget.h"


#define KVR_BUDGET_NS    1e6         /* in a ms */
#define KVR_BUDGET_MOST  9e15        /* ns of a charge: 104 days */

#define KVR_BUDGET_ABSURD  (1 << 24)  /* tokens of a request */

/* the mean of generated tokens */
#define KVR_BUDGET_OUTPUT_ONE   16
#define KVR_BUDGET_OUTPUT_LAST  8    /* requests that it remembers */


static kvr_budget_account_t *kvr_budget_find(kvr_budget_t *budget,
    uint64_t key);
static uint64_t kvr_budget_owed(const kvr_budget_account_t *a, uint64_t now);
static uint64_t kvr_budget_time(const kvr_budget_limit_t *limit,
    double tokens);
static double kvr_budget_tokens(const kvr_budget_account_t *a,
    uint64_t bytes);
static double kvr_budget_output(const kvr_budget_account_t *a);
static void *kvr_budget_base(const kvr_zone_t *zone, void *data,
    kvr_counter_group_e group, uint32_t number, uint32_t *set);


#define kvr_budget_row(field, ...)                                            \
    kvr_counter(ZONE, COUNT, kvr_budget_stats_t, field,                       \
                __VA_ARGS__, .needs = KVR_COUNTER_OWN)


static const kvr_counter_t  kvr_budget_rows[] = {

    kvr_budget_row(admitted, "admitted", "kvroute_budget_requests_total",
        "Requests with a budget, by result.", .label = ",result=\"admitted\""),

    kvr_budget_row(lowered, "lowered", "kvroute_budget_requests_total",
        .label = ",result=\"lowered\""),

    kvr_budget_row(rejected, "rejected", "kvroute_budget_requests_total",
        .label = ",result=\"rejected\""),

    kvr_budget_row(unknown, "unknown", "kvroute_budget_requests_total",
        .label = ",result=\"unknown\""),

    kvr_budget_row(waited, "waited", "kvroute_budget_waited_total",
        "Requests admitted after waiting for their budget."),

    kvr_budget_row(reserved, "reserved_tokens",
        "kvroute_budget_reserved_tokens_total",
        "Tokens estimated when requests were admitted."),

    kvr_budget_row(charged, "charged_tokens",
        "kvroute_budget_charged_tokens_total",
        "Tokens charged when these requests ended.")
};


const kvr_hooks_t  kvr_budget_hooks = {
    .counters = kvr_budget_rows,
    .ncounters = kvr_nelts(kvr_budget_rows),
    .base = kvr_budget_base
};


static void *
kvr_budget_base(const kvr_zone_t *zone, void *data,
    kvr_counter_group_e group, uint32_t number, uint32_t *set)
{
    kvr_budget_t *budget = data;

    (void) zone;
    (void) number;

    if (group != KVR_COUNTER_ZONE) {
        return NULL;
    }

    *set |= KVR_COUNTER_OWN;

    return &budget->stats;
}


void
kvr_budget_secret(kvr_budget_t *budget, const uint8_t *secret)
{
    if (kvr_get(&budget->keyed) == 0) {
        memcpy(budget->secret, secret, KVR_SECRET_LEN);
        kvr_set(&budget->keyed, 1);
    }
}


uint64_t
kvr_budget_key(uint64_t hash, const kvr_budget_limit_t *limit)
{
    uint64_t  rate, key;

    memcpy(&rate, &limit->rate, sizeof(uint64_t));

    key = kvr_mix(hash, rate);

    return key ? key : 1;
}


/*
 * Two processes can claim two accounts for one name.  Then the first one of the
 * bucket is used, and the process with the other one frees it.
 */
kvr_budget_account_t *
kvr_budget_account(kvr_budget_t *budget, uint64_t key, uint64_t now)
{
    uint32_t               i;
    uint64_t               old;
    kvr_budget_account_t  *a, *bucket, *first;

    first = kvr_budget_find(budget, key);

    if (first) {
        return first;
    }

    bucket = &budget->account[key % KVR_BUDGET_ACCOUNTS
                              / KVR_BUDGET_WAYS * KVR_BUDGET_WAYS];

    /* free accounts, then those that owe nothing */

    for (i = 0; i < 2 * KVR_BUDGET_WAYS; i++) {
        a = &bucket[i % KVR_BUDGET_WAYS];
        old = kvr_get(&a->key);

        if (old == key) {
            return a;
        }

        if ((old && (i < KVR_BUDGET_WAYS || kvr_budget_owed(a, now)))
            || !atomic_compare_exchange_strong(&a->key, &old, key))
        {
            continue;
        }

        kvr_set(&a->output, 0);
        kvr_ratio_reset(&a->ratio);

        first = kvr_budget_find(budget, key);

        if (first != a) {
            atomic_compare_exchange_strong(&a->key, &key, 0);
        }

        return first;
    }

    return NULL;
}


static kvr_budget_account_t *
kvr_budget_find(kvr_budget_t *budget, uint64_t key)
{
    uint32_t               i;
    kvr_budget_account_t  *bucket;

    bucket = &budget->account[key % KVR_BUDGET_ACCOUNTS
                              / KVR_BUDGET_WAYS * KVR_BUDGET_WAYS];

    for (i = 0; i < KVR_BUDGET_WAYS; i++) {
        if (kvr_get(&bucket[i].key) == key) {
            return &bucket[i];
        }
    }

    return NULL;
}


/* Returns the time for which an account owes, ns. */
static uint64_t
kvr_budget_owed(const kvr_budget_account_t *a, uint64_t now)
{
    uint64_t  due;

    due = kvr_get(&a->due);
    now *= (uint64_t) KVR_BUDGET_NS;

    return due > now ? due - now : 0;
}


/* Returns the time in which an account pays for tokens, ns. */
static uint64_t
kvr_budget_time(const kvr_budget_limit_t *limit, double tokens)
{
    return (uint64_t) kvr_min(tokens / limit->rate * KVR_BUDGET_NS,
                              KVR_BUDGET_MOST);
}


int
kvr_budget_take(kvr_budget_account_t *a, const kvr_budget_limit_t *limit,
    double tokens, uint64_t now)
{
    uint64_t  burst, due, old, start;

    burst = kvr_budget_time(limit, limit->burst);
    start = now * (uint64_t) KVR_BUDGET_NS;
    old = kvr_get(&a->due);

    do {
        if (old > start && old - start >= burst) {
            return KVR_DECLINED;
        }

        due = kvr_max(old, start) + kvr_budget_time(limit, tokens);

    } while (!atomic_compare_exchange_weak(&a->due, &old, due));

    return KVR_OK;
}


void
kvr_budget_charge(kvr_budget_account_t *a, const kvr_budget_limit_t *limit,
    double tokens, uint64_t now)
{
    uint64_t  due, old, most, start, time;

    start = now * (uint64_t) KVR_BUDGET_NS;
    most = start + (uint64_t) KVR_BUDGET_MOST;
    time = kvr_budget_time(limit, kvr_max(tokens, -tokens));
    old = kvr_get(&a->due);

    do {
        due = tokens < 0 ? old - kvr_min(time, old)
                         : kvr_max(old, start) + time;
        due = kvr_min(due, most);

    } while (!atomic_compare_exchange_weak(&a->due, &old, due));
}


double
kvr_budget_left(const kvr_budget_account_t *a, const kvr_budget_limit_t *limit,
    uint64_t now)
{
    double  owed;

    owed = (double) kvr_budget_owed(a, now) / KVR_BUDGET_NS * limit->rate;

    return owed < limit->burst ? limit->burst - owed : 0;
}


uint64_t
kvr_budget_wait(const kvr_budget_account_t *a, const kvr_budget_limit_t *limit,
    uint64_t now)
{
    uint64_t  burst, owed;

    burst = kvr_budget_time(limit, limit->burst);
    owed = kvr_budget_owed(a, now);

    if (owed == 0 || owed < burst) {
        return 0;
    }

    /* the first whole ms with less than the burst */

    return (owed - burst) / (uint64_t) KVR_BUDGET_NS + 1;
}


uint64_t
kvr_budget_reset(const kvr_budget_account_t *a, uint64_t now)
{
    return kvr_budget_owed(a, now) / (uint64_t) KVR_BUDGET_NS;
}


static double
kvr_budget_tokens(const kvr_budget_account_t *a, uint64_t bytes)
{
    double  ratio;

    ratio = kvr_ratio_get(&a->ratio);

    return (double) bytes / (ratio > 0 ? ratio : KVR_RATIO_START);
}


static double
kvr_budget_output(const kvr_budget_account_t *a)
{
    return (double) kvr_get(&a->output) / KVR_BUDGET_OUTPUT_ONE;
}


void
kvr_budget_estimate(const kvr_budget_account_t *a, uint64_t bytes,
    uint64_t cached, uint64_t output, kvr_budget_use_t *use)
{
    use->prompt = kvr_budget_tokens(a, bytes);
    use->computed = kvr_budget_tokens(a, bytes - kvr_min(cached, bytes));
    use->output = kvr_budget_output(a);

    if (output && (double) output < use->output) {
        use->output = (double) output;
    }
}


static inline int
kvr_budget_reported(int64_t tokens)
{
    return tokens >= 0 && tokens <= KVR_BUDGET_ABSURD;
}


void
kvr_budget_add(kvr_budget_account_t *a, const kvr_budget_part_t *part,
    kvr_budget_use_t *use)
{
    double            prompt, computed, output;
    uint64_t          mean;
    kvr_budget_use_t  guess;

    kvr_budget_estimate(a, part->bytes, part->cached, 0, &guess);

    prompt = guess.prompt;
    computed = guess.computed;
    output = part->reply ? kvr_budget_tokens(a, part->reply) : guess.output;

    if (kvr_budget_reported(part->tokens[0])) {
        prompt = (double) part->tokens[0];
        computed = prompt - (double) kvr_min(kvr_max(part->tokens[1], 0),
                                             part->tokens[0]);

        if (!part->decode) {
            kvr_ratio_take(&a->ratio, part->bytes, (uint64_t) part->tokens[0]);
        }
    }

    if (kvr_budget_reported(part->tokens[2])) {
        output = (double) part->tokens[2];

        mean = kvr_get(&a->output);
        mean = mean ? mean - mean / KVR_BUDGET_OUTPUT_LAST
                      + (uint64_t) part->tokens[2] * KVR_BUDGET_OUTPUT_ONE
                        / KVR_BUDGET_OUTPUT_LAST
                    : (uint64_t) part->tokens[2] * KVR_BUDGET_OUTPUT_ONE;
        kvr_set(&a->output, mean);
    }

    use->output += output;

    if (!part->decode) {
        use->prompt = kvr_max(use->prompt, prompt);
        use->computed += computed;
    }
}


double
kvr_budget_cost(const kvr_budget_use_t *use, kvr_budget_charge_e charge)
{
    return charge == KVR_BUDGET_COMPUTED ? use->computed
           : charge == KVR_BUDGET_PROMPT ? use->prompt
           : use->prompt + use->output;
}


int
kvr_budget_read_amount(const uint8_t *text, size_t len, double *amount)
{
    size_t    i;
    double    scale;
    uint64_t  n;

    scale = 1;

    if (len) {

        switch (text[len - 1]) {

        case 'g':
        case 'G':
            scale *= 1000;

            /* fall through */

        case 'm':
        case 'M':
            scale *= 1000;

            /* fall through */

        case 'k':
        case 'K':
            scale *= 1000;
            len--;
            break;
        }
    }

    if (len == 0 || len > 15) {
        return KVR_DECLINED;
    }

    for (i = 0, n = 0; i < len; i++) {

        if (text[i] < '0' || text[i] > '9') {
            return KVR_DECLINED;
        }

        n = 10 * n + (text[i] - '0');
    }

    *amount = (double) n * scale;

    return KVR_OK;
}


int
kvr_budget_read_rate(const uint8_t *text, size_t len,
    kvr_budget_limit_t *limit)
{
    double  ms;

    if (len < 3 || text[len - 2] != '/') {
        return KVR_DECLINED;
    }

    switch (text[len - 1]) {

    case 's':
        ms = 1e3;
        break;

    case 'm':
        ms = 60e3;
        break;

    case 'h':
        ms = 3600e3;
        break;

    case 'd':
        ms = 86400e3;
        break;

    default:
        return KVR_DECLINED;
    }

    if (kvr_budget_read_amount(text, len - 2, &limit->burst) != KVR_OK
        || limit->burst < 1)
    {
        return KVR_DECLINED;
    }

    limit->rate = limit->burst / ms;

    return KVR_OK;
}
