
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_BUDGET_H_INCLUDED_
#define _KVR_BUDGET_H_INCLUDED_


/*
 * Budgets of tokens per time, as token buckets in shared memory.
 *
 * An account is one word: the time when it owes nothing.  A charge of n tokens
 * moves this time by n / rate, from now on if it has passed.  A request is
 * admitted while the account owes less than the burst.  At arrival a request is
 * charged an estimate, at its end the difference to what it used.  So over any
 * time since the start an account uses at most rate * time + burst, and one
 * estimate that was too low.
 *
 * A charge is one compare and swap.  An account owes at most the tokens of 104
 * days.  A killed worker leaves its requests
 * charged by their estimates, which time pays off like any other charge.
 *
 * Accounts are found by key, in buckets of KVR_BUDGET_WAYS.  One that owes
 * nothing is like a new one, so any of these can be replaced.  If all accounts
 * of a bucket owe something, a new name has no account and no limit.
 */


#include "core/hash/kvr_block.h"
#include "core/learn/kvr_ratio.h"
#include "core/state/kvr_hooks.h"
#include "core/state/kvr_zone.h"


#define KVR_BUDGET_ACCOUNTS  16384   /* in a zone, a power of two */
#define KVR_BUDGET_WAYS      8


/* what a request is charged */
typedef enum {
    KVR_BUDGET_COMPUTED = 0,     /* tokens of the prompt that were not cached */
    KVR_BUDGET_PROMPT,
    KVR_BUDGET_ALL               /* the prompt and the generated tokens */
} kvr_budget_charge_e;


typedef struct {
    _Atomic uint64_t       key;      /* of name and rate; 0: free */
    _Atomic uint64_t       due;      /* ns, when it owes nothing */
    _Atomic uint64_t       output;   /* mean of generated tokens, in 1/16 */
    kvr_ratio_t            ratio;    /* bytes per token of its prompts */
} kvr_budget_account_t;


typedef struct {
    _Atomic uint64_t       admitted;
    _Atomic uint64_t       waited;   /* of these, after waiting */
    _Atomic uint64_t       lowered;  /* over the limit, in the lowest class */
    _Atomic uint64_t       rejected;
    _Atomic uint64_t       unknown;  /* without an account */
    _Atomic uint64_t       reserved; /* tokens, estimates at arrival */
    _Atomic uint64_t       charged;  /* tokens, at the end */
} kvr_budget_stats_t;


typedef struct {
    kvr_budget_stats_t     stats;

    /* of the first zone: names stay the same when its size changes */

    _Atomic uint32_t       keyed;
    uint8_t                secret[KVR_SECRET_LEN];

    kvr_tally_t            tally;    /* of some names, for the status */

    _Alignas(KVR_CACHE_LINE)
    kvr_budget_account_t   account[KVR_BUDGET_ACCOUNTS];
} kvr_budget_t;


typedef struct {
    double                 rate;     /* tokens per ms */
    double                 burst;    /* tokens */
} kvr_budget_limit_t;


/* a part of a request: the figures of one attempt, which was answered */
typedef struct {
    uint64_t               bytes;    /* of the prompt */
    uint64_t               cached;   /* of these */
    uint64_t               reply;    /* bytes, 0: unknown */
    int64_t                tokens[3];  /* of the prompt, cached, generated; -1:
                                          not reported */
    unsigned               decode:1; /* another part has computed the prompt */
} kvr_budget_part_t;


/* tokens of a request */
typedef struct {
    double                 prompt;
    double                 computed;
    double                 output;
} kvr_budget_use_t;


/*
 * Sets the secret that hides names, unless there is one.  All processes that
 * call it at once have the same.
 */
void kvr_budget_secret(kvr_budget_t *budget, const uint8_t *secret);

/*
 * Returns the key of a name's account.  An account owes time, which is worth
 * other tokens at another rate, so each rate has an account of its own.
 */
uint64_t kvr_budget_key(uint64_t hash, const kvr_budget_limit_t *limit);

/*
 * Returns the account of a key, a new one if necessary, or NULL.  now: ms, here
 * and below.
 */
kvr_budget_account_t *kvr_budget_account(kvr_budget_t *budget, uint64_t key,
    uint64_t now);

/*
 * Charges tokens, which can be negative, if the account owes less than the
 * burst, or always.  KVR_DECLINED: it owes more.
 */
int kvr_budget_take(kvr_budget_account_t *a, const kvr_budget_limit_t *limit,
    double tokens, uint64_t now);
void kvr_budget_charge(kvr_budget_account_t *a,
    const kvr_budget_limit_t *limit, double tokens, uint64_t now);

/* Returns the tokens that are left of the burst. */
double kvr_budget_left(const kvr_budget_account_t *a,
    const kvr_budget_limit_t *limit, uint64_t now);

/* Returns the ms until a request is admitted, and until nothing is owed. */
uint64_t kvr_budget_wait(const kvr_budget_account_t *a,
    const kvr_budget_limit_t *limit, uint64_t now);
uint64_t kvr_budget_reset(const kvr_budget_account_t *a, uint64_t now);

/* Estimates a request at its arrival; output: its max_tokens, 0: none. */
void kvr_budget_estimate(const kvr_budget_account_t *a, uint64_t bytes,
    uint64_t cached, uint64_t output, kvr_budget_use_t *use);

/*
 * Adds a part of a request to its use.  What was not reported, or is absurd, is
 * estimated, and the account learns from what was.
 */
void kvr_budget_add(kvr_budget_account_t *a, const kvr_budget_part_t *part,
    kvr_budget_use_t *use);

double kvr_budget_cost(const kvr_budget_use_t *use,
    kvr_budget_charge_e charge);

/*
 * Reads an amount such as 100k, of which k, m and g are thousands, millions and
 * billions; a rate such as 100k/m, in s, m, h or d.  The burst of a rate is its
 * amount.  KVR_DECLINED: invalid.
 */
int kvr_budget_read_amount(const uint8_t *text, size_t len, double *amount);
int kvr_budget_read_rate(const uint8_t *text, size_t len,
    kvr_budget_limit_t *limit);


/* data is a kvr_budget_t */
extern const kvr_hooks_t  kvr_budget_hooks;


#endif /* _KVR_BUDGET_H_INCLUDED_ */
