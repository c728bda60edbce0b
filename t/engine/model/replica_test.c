/*
 * The replica model in cases computed by hand.  The hardware of most: 10 ms to
 * read the weights, 0.1 ms a token, 1 us per context token of a decoding
 * sequence, 1 ms a step.  So a decode step of one request at context c takes
 * 11 ms + c us, and a prefill of n > 100 tokens takes n / 10 + 1 ms.
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "replica.h"
#include "suite.h"


#define EPS  1e-9

#define kve_assert_time(a, b)  ck_assert_double_eq_tol(a, b, EPS)


typedef struct {
    kve_req_t    req;
    uint64_t     hash[512];
} kve_case_t;


static kve_config_t        cf;
static kve_replica_t      *r;
static kve_case_t          a, b, c, d;
static kve_stats_t         st;
static const kve_event_t  *ev;


static kve_config_t
kve_test_config(uint32_t blocks)
{
    kve_hw_t      hw = { 0 };
    kve_config_t  cf;

    hw.floor = 0.010;
    hw.linear = 0.0001;
    hw.kv = 1e-6;
    hw.step = 0.001;
    hw.max_seqs = 256;
    hw.max_batched = 8192;

    kve_config_init(&cf, &hw);

    cf.blocks = blocks;
    cf.token_log = 1;

    return cf;
}


static void
kve_test_replica(uint32_t blocks)
{
    cf = kve_test_config(blocks);
    r = kve_replica_create(&cf);
}


static void
kve_test_end(void)
{
    if (r) {
        kve_replica_destroy(r);
    }
}


suite_around(NULL, kve_test_end);


/* blocks named base, base + 1, ... */

static void
kve_case_init(kve_case_t *c, uint64_t base, uint32_t prompt, uint32_t output)
{
    uint32_t  i;

    memset(c, 0, sizeof(kve_case_t));

    for (i = 0; i < 512; i++) {
        c->hash[i] = base + i;
    }

    c->req.hashes = c->hash;
    c->req.nhashes = 512;
    c->req.prompt_tokens = prompt;
    c->req.output_tokens = output;
}


/* runs until nothing more happens; returns the time of the last event */

static double
kve_test_drain(kve_replica_t *r)
{
    size_t              n;
    double              t, last;
    const kve_event_t  *ev;

    last = 0;

    for ( ;; ) {
        t = kve_replica_next(r);
        if (isinf(t)) {
            break;
        }

        n = kve_replica_advance(r, t, &ev);
        ck_assert_int_eq(kve_replica_check(r), 0);

        if (n) {
            last = ev[n - 1].time;
        }
    }

    return last;
}


static void
kve_test_one(kve_replica_t *r, kve_case_t *c, double t)
{
    kve_replica_submit(r, &c->req, t);
    kve_test_drain(r);
    ck_assert(!isnan(c->req.done_time));
}


TEST(hardware)
{
    kve_hw_t  hw;

    /* the published table, with all its digits */

    ck_assert(kve_hw_find("llama-8b-bf16-h100", &hw));
    ck_assert_double_eq_tol(hw.floor, 0.0056, 0.00005);
    ck_assert_double_eq_tol(hw.linear, 21.8e-6, 0.05e-6);
    ck_assert_double_eq_tol(hw.kv, 48.9e-9, 0.05e-9);
    ck_assert_uint_eq(hw.kv_tokens, 450000);
    ck_assert_double_eq_tol(8192 * hw.linear + hw.step
                            + hw.attention * 8192 * 4096, 0.219, 0.0005);

    ck_assert(kve_hw_find("devstral-24b-fp8-h100-tp2", &hw));
    ck_assert_double_eq_tol(hw.floor, 0.0044, 0.00005);
    ck_assert_double_eq_tol(hw.linear, 20.8e-6, 0.05e-6);
    ck_assert_double_eq_tol(hw.kv, 30.6e-9, 0.05e-9);
    ck_assert_uint_eq(hw.kv_tokens, 686000);

    ck_assert(kve_hw_find("llama-8b-bf16-a10g", &hw));
    ck_assert_double_eq_tol(8192 * hw.linear + hw.step
                            + hw.attention * 8192 * 4096, 3.1, 0.05);

    ck_assert(kve_hw_find("llama-70b-bf16-h100-tp4", &hw));
    ck_assert_double_eq_tol(hw.floor, 0.0136, 0.00005);
    ck_assert_double_eq_tol(hw.linear, 56e-6, 0.5e-6);

    ck_assert(!kve_hw_find("abacus", &hw));
}


TEST(alone)
{
    double          t, times[5];
    uint32_t        k;

    kve_test_replica(100);

    kve_case_init(&c, 1000, 200, 5);
    kve_replica_submit(r, &c.req, 1.0);

    kve_test_drain(r);

    /* prefill: 200 * 0.1 ms + 1 ms; then 11 ms + (200 + k) us each */

    t = 1.021;
    kve_assert_time(c.req.admit_time, 1.0);
    kve_assert_time(c.req.first_time, t);

    kve_req_times(r, &c.req, 1, 5, times);
    kve_assert_time(times[0], t);

    for (k = 1; k < 5; k++) {
        t += 0.011 + (200 + k) * 1e-6;
        kve_assert_time(times[k], t);
    }

    kve_assert_time(c.req.done_time, t);
}


TEST(overheads)
{
    double          times[3];

    cf = kve_test_config(100);
    cf.hw.api = 0.015;
    cf.hw.output = 0.001;
    cf.hw.kv = 0;
    r = kve_replica_create(&cf);

    kve_case_init(&c, 1000, 200, 3);
    kve_test_one(r, &c, 0);

    kve_assert_time(c.req.admit_time, 0.015);
    kve_assert_time(c.req.first_time, 0.015 + 0.021 + 0.001);
    kve_assert_time(c.req.done_time, 0.015 + 0.021 + 0.022 + 0.003);

    kve_req_times(r, &c.req, 2, 1, times);
    kve_assert_time(times[0], 0.015 + 0.021 + 0.011 + 0.002);
}


TEST(speed)
{
    cf = kve_test_config(100);
    cf.hw.kv = 0;
    cf.speed = 0.5;
    r = kve_replica_create(&cf);

    kve_case_init(&a, 1000, 200, 3);
    kve_test_one(r, &a, 0);
    kve_assert_time(a.req.done_time, 2 * (0.021 + 2 * 0.011));

    kve_replica_set_speed(r, 2, 1);
    kve_case_init(&b, 2000, 200, 3);
    kve_test_one(r, &b, 1);
    kve_assert_time(b.req.done_time - 1, (0.021 + 2 * 0.011) / 2);
}


TEST(chunked_prefill)
{
    cf = kve_test_config(2000);
    cf.hw.attention = 1e-9;
    r = kve_replica_create(&cf);

    kve_case_init(&c, 1000, 20000, 1);
    kve_test_one(r, &c, 0);

    /* 8192 + 8192 + 3616 tokens, in contexts 0, 8192 and 16384 */

    kve_assert_time(c.req.first_time,
                    3 * 0.001 + 20000 * 0.0001
                    + 1e-9 * (8192.0 * 4096 + 8192.0 * (8192 + 4096)
                              + 3616.0 * (16384 + 1808)));
    kve_assert_time(c.req.done_time, c.req.first_time);
}


TEST(decode_first)
{
    double          t0, times[4];

    cf = kve_test_config(2000);
    cf.hw.kv = 0;
    r = kve_replica_create(&cf);

    kve_case_init(&a, 1000, 200, 100);
    kve_case_init(&b, 5000, 10000, 1);

    kve_replica_submit(r, &a.req, 0);
    kve_replica_submit(r, &b.req, 0.001);
    kve_test_drain(r);

    /*
     * a's prefill is over at 21 ms; two steps of 8191 + 1 and 1809 + 1 tokens
     * follow, and a gets its token in each of them
     */

    t0 = 0.021;
    kve_req_times(r, &a.req, 1, 4, times);
    kve_assert_time(times[0], t0);
    kve_assert_time(times[1], t0 + 0.8192 + 0.001);
    kve_assert_time(times[2], t0 + 0.8192 + 0.181 + 0.002);
    kve_assert_time(times[3], t0 + 0.8192 + 0.181 + 0.002 + 0.011);
    kve_assert_time(b.req.first_time, times[2]);
}


TEST(batching_slows_decode)
{
    uint32_t        i;
    double          gap1, gap200, times[3];
    kve_case_t     *c;

    cf = kve_test_config(10000);
    cf.hw.request = 5e-6;
    r = kve_replica_create(&cf);
    c = calloc(200, sizeof(kve_case_t));

    kve_case_init(&c[0], 1000, 100, 3);
    kve_test_one(r, &c[0], 0);
    kve_req_times(r, &c[0].req, 2, 2, times);
    gap1 = times[1] - times[0];
    kve_assert_time(gap1, 0.011 + 5e-6 + 102e-6);

    /* 200 in one step: 20000 tokens of prefill in three, then 200 a step */

    for (i = 0; i < 200; i++) {
        kve_case_init(&c[i], 100000 * (i + 1), 100, 50);
        kve_replica_submit(r, &c[i].req, 10);
    }

    kve_test_drain(r);

    /*
     * the last 38 were prefilled in the third step, when the others had had
     * one or two tokens already; 162 of them have a context of 102 or 103
     * when those have 101
     */

    kve_req_times(r, &c[199].req, 1, 2, times);
    gap200 = times[1] - times[0];
    ck_assert_double_eq_tol(gap200,
                            0.001 + 200 * (0.0001 + 5e-6)
                            + 1e-6 * 200 * 102, 200e-6);
    free(c);
}


TEST(last_token_is_computed)
{
    kve_test_replica(100);

    kve_case_init(&c, 1000, 33, 1);
    kve_test_one(r, &c, 0);
    ck_assert_uint_eq(c.req.cached_tokens, 0);

    kve_case_init(&c, 1000, 33, 1);
    kve_test_one(r, &c, 1);
    ck_assert_uint_eq(c.req.cached_tokens, 32);

    /* all 32 are cached, but one must be computed: the whole last block */

    kve_case_init(&c, 1000, 32, 1);
    ck_assert_uint_eq(kve_replica_match(r, c.hash, 512, 32), 16);
    kve_test_one(r, &c, 2);
    ck_assert_uint_eq(c.req.cached_tokens, 16);
}


TEST(lru_tail_first)
{
    uint32_t             i;
    uint64_t             hash;
    const kve_blocks_t  *blocks;

    /* expected order of eviction, once a, b and a's first half are used */

    static const uint64_t  order[] = {
        103, 102, 203, 202, 201, 200, 101, 100
    };

    kve_test_replica(8);
    blocks = kve_replica_blocks(r);

    kve_case_init(&a, 100, 64, 1);
    kve_case_init(&b, 200, 64, 1);
    kve_test_one(r, &a, 0);
    kve_test_one(r, &b, 1);

    /* 48 tokens of a: two blocks hit, the third one computed again */

    kve_case_init(&a, 100, 33, 1);
    kve_test_one(r, &a, 2);
    ck_assert_uint_eq(a.req.cached_tokens, 32);

    /*
     * a's third block (nameless: 1 token) took the place of 103, so that one
     * is gone, and the nameless one is the first to go
     */

    ck_assert_uint_eq(kve_blocks_find(blocks, 103), KVE_BLOCK_NONE);
    ck_assert(!kve_blocks_hash(blocks, kve_blocks_next_victim(blocks, 0),
                               &hash));

    for (i = 1; i < 8; i++) {
        ck_assert(kve_blocks_hash(blocks, kve_blocks_next_victim(blocks, i),
                                  &hash));
        ck_assert_uint_eq(hash, order[i]);
    }

    /* two more blocks: the nameless one and 102 */

    kve_case_init(&c, 300, 32, 1);
    kve_test_one(r, &c, 3);
    ck_assert_uint_eq(kve_replica_match(r, a.hash, 512, 64), 32);
    ck_assert_uint_eq(kve_replica_match(r, b.hash, 512, 65), 64);

    /* one more evicts b's last block, not its first */

    kve_case_init(&c, 400, 16, 1);
    kve_test_one(r, &c, 4);
    ck_assert_uint_eq(kve_replica_match(r, b.hash, 512, 65), 48);
}


TEST(used_blocks_are_pinned)
{
    uint32_t             i;

    kve_test_replica(8);

    /* a holds 4 blocks and decodes; others pass through the other 4 */

    kve_case_init(&a, 100, 60, 20);
    kve_replica_submit(r, &a.req, 0);
    kve_replica_advance(r, 0.02, &ev);
    kve_replica_stats(r, &st);
    ck_assert_uint_eq(st.held_blocks, 4);
    kve_assert_time(st.kv_usage, 0.5);

    for (i = 0; i < 5; i++) {
        kve_case_init(&b, 1000 * (i + 1), 40, 1);
        kve_replica_submit(r, &b.req, 0.02 + i * 0.04);
        kve_replica_advance(r, 0.05 + i * 0.04, &ev);
        ck_assert(!isnan(b.req.done_time));
        ck_assert_uint_eq(kve_replica_match(r, a.hash, 512, 49), 48);
    }

    kve_test_drain(r);
    ck_assert_uint_eq(a.req.preemptions, 0);
}


TEST(replies_are_cached)
{
    kve_test_replica(100);

    /* 40 + 25 tokens; the last one's KV is never computed: 64 in 4 blocks */

    kve_case_init(&a, 100, 40, 25);
    kve_test_one(r, &a, 0);

    kve_case_init(&b, 100, 200, 1);
    ck_assert_uint_eq(kve_replica_match(r, b.hash, 512, 200), 64);
    kve_test_one(r, &b, 1);
    ck_assert_uint_eq(b.req.cached_tokens, 64);

    /* 24 tokens of reply: one short of the fourth block */

    kve_case_init(&a, 1100, 40, 24);
    kve_test_one(r, &a, 2);
    ck_assert_uint_eq(kve_replica_match(r, a.hash, 512, 200), 48);

    /* hashes of the prompt only: the reply is not found again */

    kve_case_init(&a, 2100, 40, 100);
    a.req.nhashes = 2;
    kve_test_one(r, &a, 3);
    ck_assert_uint_eq(kve_replica_match(r, a.hash, 512, 200), 32);
}


TEST(siblings_share)
{
    cf = kve_test_config(100);
    cf.max_batched = 512;
    r = kve_replica_create(&cf);

    kve_case_init(&a, 100, 321, 1);
    kve_case_init(&b, 100, 321, 1);
    kve_replica_submit(r, &a.req, 0);
    kve_replica_submit(r, &b.req, 0);

    /* the first starts at once, the second one a step later, all but cached */

    kve_replica_advance(r, 0, &ev);
    ck_assert_uint_eq(kve_replica_match(r, a.hash, 512, 321), 320);
    kve_test_drain(r);

    ck_assert_uint_eq(a.req.cached_tokens, 0);
    ck_assert_uint_eq(b.req.cached_tokens, 320);
    kve_assert_time(a.req.first_time, 0.0331);
    kve_assert_time(b.req.first_time, 0.0331 + 0.011);

    kve_replica_stats(r, &st);
    ck_assert_uint_eq(st.queries, 642);
    ck_assert_uint_eq(st.hits, 320);
    ck_assert_uint_eq(st.prompt_tokens, 642);
    ck_assert_uint_eq(st.generation_tokens, 2);
}


TEST(admission_waits_for_blocks)
{
    cf = kve_test_config(10);
    cf.hw.kv = 0;
    r = kve_replica_create(&cf);

    kve_case_init(&a, 100, 90, 6);
    kve_case_init(&b, 200, 100, 1);
    kve_case_init(&c, 300, 16, 1);
    kve_replica_submit(r, &a.req, 0);
    kve_replica_submit(r, &b.req, 0.001);
    kve_replica_submit(r, &c.req, 0.002);
    kve_test_drain(r);

    /* b does not fit beside a, and c, that would, does not overtake b */

    kve_assert_time(a.req.done_time, 0.011 + 5 * 0.011);
    kve_assert_time(b.req.admit_time, a.req.done_time);
    kve_assert_time(c.req.admit_time, a.req.done_time);
    kve_assert_time(b.req.first_time, a.req.done_time + 0.0116 + 0.001);
}


TEST(admission_waits_for_a_seat)
{
    cf = kve_test_config(100);
    cf.hw.kv = 0;
    cf.max_seqs = 2;
    r = kve_replica_create(&cf);

    kve_case_init(&a, 100, 50, 10);
    kve_case_init(&b, 200, 50, 5);
    kve_case_init(&c, 300, 50, 1);
    kve_replica_submit(r, &a.req, 0);
    kve_replica_submit(r, &b.req, 0);
    kve_replica_submit(r, &c.req, 0);

    kve_replica_advance(r, 0.030, &ev);
    kve_replica_stats(r, &st);
    ck_assert_uint_eq(st.running, 2);
    ck_assert_uint_eq(st.waiting, 1);
    ck_assert_uint_eq(st.waiting_tokens, 50);

    kve_test_drain(r);
    kve_assert_time(c.req.admit_time, b.req.done_time);
}


TEST(too_big)
{
    size_t              n;

    kve_test_replica(10);

    kve_case_init(&a, 100, 150, 20);
    kve_case_init(&b, 200, 150, 11);
    kve_replica_submit(r, &a.req, 0);
    kve_replica_submit(r, &b.req, 0);

    n = kve_replica_advance(r, 0, &ev);
    ck_assert_uint_eq(n, 2);
    ck_assert_int_eq(ev[0].type, KVE_ABORTED);
    ck_assert_ptr_eq(ev[0].req, &a.req);
    ck_assert_int_eq(ev[1].type, KVE_ADMITTED);

    kve_test_drain(r);
    ck_assert(!isnan(b.req.done_time));
    ck_assert_uint_eq(b.req.preemptions, 0);
}


TEST(preemption)
{
    double              t, times[80];
    size_t              i, n;
    uint32_t            preempted;

    /*
     * Two prompts of 4 blocks each in 9: both fit, the one block left goes to
     * a, which asks first, and b, the latest, has to go.
     */

    cf = kve_test_config(9);
    cf.hw.kv = 0;
    r = kve_replica_create(&cf);

    kve_case_init(&a, 100, 64, 17);
    kve_case_init(&b, 200, 63, 60);
    kve_replica_submit(r, &a.req, 0);
    kve_replica_submit(r, &b.req, 0);

    preempted = 0;

    for ( ;; ) {
        t = kve_replica_next(r);
        if (isinf(t)) {
            break;
        }

        n = kve_replica_advance(r, t, &ev);
        ck_assert_int_eq(kve_replica_check(r), 0);

        for (i = 0; i < n; i++) {
            if (ev[i].type == KVE_PREEMPTED) {
                ck_assert_ptr_eq(ev[i].req, &b.req);
                ck_assert_uint_eq(kve_req_tokens(r, ev[i].req), 2);
                preempted++;
            }
        }
    }

    /*
     * a: 7.4 ms of prefill is less than the floor, so 11 ms; b comes a step
     * later.  a's 5th block at its first decode step (64 tokens are full), b
     * has two tokens when its 64 are full and nothing is left.
     */

    ck_assert_uint_eq(preempted, 1);
    ck_assert_uint_eq(b.req.preemptions, 1);
    ck_assert_uint_eq(a.req.preemptions, 0);

    kve_req_times(r, &b.req, 1, 60, times);
    kve_assert_time(times[0], 0.022);
    kve_assert_time(times[1], 0.033);

    /*
     * a ends at 11 + 16 * 11 ms; only then b's 65 tokens find 5 blocks, and
     * all but the last one of them are in the cache
     */

    kve_assert_time(a.req.done_time, 17 * 0.011);
    kve_assert_time(times[2], 18 * 0.011);
    kve_assert_time(times[59], (18 + 57) * 0.011);
    kve_assert_time(b.req.done_time, times[59]);

    kve_replica_stats(r, &st);
    ck_assert_uint_eq(st.preemptions, 1);
    ck_assert_uint_eq(st.recomputed_tokens, 1);
    ck_assert_uint_eq(st.generation_tokens, 77);
    ck_assert_uint_eq(st.queries, 127);

    for (i = 1; i < 60; i++) {
        ck_assert(times[i] > times[i - 1]);
    }
}


TEST(restart)
{
    size_t              i, n;

    cf = kve_test_config(100);
    cf.max_seqs = 1;
    cf.hw.api = 0.010;
    r = kve_replica_create(&cf);

    kve_case_init(&d, 400, 50, 1);
    kve_test_one(r, &d, 0);
    ck_assert_uint_eq(kve_replica_match(r, d.hash, 512, 50), 48);

    /* one running, one waiting, one not even in the queue */

    kve_case_init(&a, 100, 50, 50);
    kve_case_init(&b, 200, 50, 50);
    kve_case_init(&c, 300, 50, 50);
    kve_replica_submit(r, &a.req, 1);
    kve_replica_submit(r, &b.req, 1);
    kve_replica_submit(r, &c.req, 1.195);
    kve_replica_advance(r, 1.1, &ev);

    n = kve_replica_restart(r, 1.2, &ev);
    ck_assert_uint_eq(n, 3);

    for (i = 0; i < n; i++) {
        ck_assert_int_eq(ev[i].type, KVE_ABORTED);
    }

    ck_assert(isinf(kve_replica_next(r)));
    kve_replica_stats(r, &st);
    ck_assert_uint_eq(st.running + st.waiting + st.held_blocks, 0);
    ck_assert_uint_eq(st.queries + st.hits + st.generation_tokens, 0);
    ck_assert_uint_eq(kve_replica_match(r, d.hash, 512, 50), 0);
    ck_assert_int_eq(kve_replica_check(r), 0);

    kve_test_one(r, &d, 2);
    kve_assert_time(d.req.first_time, 2.021);
    ck_assert_uint_eq(d.req.cached_tokens, 0);
}


TEST(abort_frees)
{
    double              times[1];
    size_t              i, n;

    cf = kve_test_config(10);
    cf.hw.kv = 0;
    r = kve_replica_create(&cf);

    kve_case_init(&a, 100, 100, 50);
    kve_case_init(&b, 200, 100, 50);
    kve_case_init(&c, 300, 100, 2);
    kve_replica_submit(r, &a.req, 0);
    kve_replica_submit(r, &b.req, 0);
    kve_replica_submit(r, &c.req, 0);

    /* b from the queue, a in the middle of its 4th decode step */

    kve_replica_abort(r, &b.req, 0.020);
    kve_replica_advance(r, 0.045, &ev);
    kve_replica_abort(r, &a.req, 0.046);
    ck_assert_uint_eq(a.req.generated, 4);

    n = kve_replica_advance(r, 0.046, &ev);
    ck_assert_uint_eq(n, 0);
    kve_replica_stats(r, &st);
    ck_assert_uint_eq(st.running, 0);
    ck_assert_uint_eq(st.waiting, 1);
    ck_assert_uint_eq(st.held_blocks, 0);

    /* the step under way is not taken back: c starts when it is over */

    for ( ;; ) {
        double  t = kve_replica_next(r);

        if (isinf(t)) {
            break;
        }

        n = kve_replica_advance(r, t, &ev);

        for (i = 0; i < n; i++) {
            ck_assert_ptr_eq(ev[i].req, &c.req);
        }
    }

    kve_assert_time(c.req.admit_time, 5 * 0.011);
    kve_assert_time(c.req.done_time, 7 * 0.011);
    kve_req_times(r, &c.req, 2, 1, times);
    kve_assert_time(times[0], c.req.done_time);

    /* and what a had computed can still be found */

    ck_assert_uint_eq(kve_replica_match(r, a.hash, 512, 60), 48);
}


TEST(abort_swallows_events)
{
    size_t              n;

    kve_test_replica(10);

    kve_case_init(&a, 100, 50, 5);
    kve_replica_submit(r, &a.req, 0);
    kve_replica_abort(r, &a.req, 1);

    n = kve_replica_advance(r, 2, &ev);
    ck_assert_uint_eq(n, 0);
    ck_assert(isinf(kve_replica_next(r)));
}


/*
 * A prefill server's request: its blocks are held until they were transferred,
 * and other requests wait for their room.
 */

TEST(kept_until_released)
{
    double          t;

    kve_test_replica(10);

    kve_case_init(&a, 1000, 128, 1);
    kve_case_init(&b, 2000, 128, 1);
    a.req.keep = 1;

    kve_test_one(r, &a, 0);
    ck_assert_uint_eq(kve_blocks_held(kve_replica_blocks(r)), 8);

    kve_replica_submit(r, &b.req, 1);
    kve_test_drain(r);
    ck_assert(isnan(b.req.done_time));

    kve_replica_release(r, &a.req, 2);
    t = kve_test_drain(r);

    ck_assert(b.req.admit_time == 2);
    ck_assert(b.req.done_time == t);
    ck_assert_uint_eq(kve_blocks_held(kve_replica_blocks(r)), 0);

    /* a second call does nothing */

    kve_replica_release(r, &a.req, 3);
}


/* a decode server's request: of the transferred tokens the last is computed */

TEST(given_is_not_computed)
{
    kve_test_replica(64);

    kve_case_init(&a, 1000, 500, 2);
    a.req.given = 1;

    kve_test_one(r, &a, 0);

    ck_assert_uint_eq(a.req.cached_tokens, 499);
    ck_assert_uint_eq(kve_replica_match(r, a.hash, 512, 500), 496);
}


/* 10 blocks of 16 tokens; host memory for 40, disk for 80 */

static kve_replica_t *
kve_test_tiers(double host, double disk)
{
    kve_config_t  cf;

    cf = kve_test_config(10);
    cf.tier[KVE_HOST].blocks = 40;
    cf.tier[KVE_HOST].load = host;
    cf.tier[KVE_DISK].blocks = disk > 0 ? 80 : 0;
    cf.tier[KVE_DISK].load = disk;

    return kve_replica_create(&cf);
}


TEST(tiers)
{
    uint32_t            i, tokens[KVE_TIERS];
    kve_case_t          c[8];
    kve_replica_t      *r;
    const kve_event_t  *ev;

    r = kve_test_tiers(0.0005, 0.001);

    /* six prompts of nine blocks: the GPU has the last, the host four */

    for (i = 0; i < 6; i++) {
        kve_case_init(&c[i], 1000 * (i + 1), 144, 1);
        kve_test_one(r, &c[i], i);
    }

    kve_replica_reach(r, c[5].hash, 512, 145, tokens);
    ck_assert_uint_eq(tokens[KVE_GPU], 144);

    kve_replica_reach(r, c[3].hash, 512, 145, tokens);
    ck_assert_uint_eq(tokens[KVE_GPU], 0);
    ck_assert_uint_eq(tokens[KVE_HOST], 144);

    kve_replica_reach(r, c[0].hash, 512, 145, tokens);
    ck_assert_uint_eq(tokens[KVE_DISK], 144);

    /* 128 tokens are loaded in 64 ms, then 16 are computed in one step */

    kve_case_init(&c[6], 4000, 144, 1);
    kve_test_one(r, &c[6], 10);
    ck_assert_uint_eq(c[6].req.cached_tokens, 128);
    ck_assert_uint_eq(c[6].req.loaded[KVE_HOST], 128);
    kve_assert_time(c[6].req.first_time, 10 + 0.064 + 0.011);

    /* they are in the GPU's memory then */

    kve_replica_reach(r, c[6].hash, 512, 145, tokens);
    ck_assert_uint_eq(tokens[KVE_GPU], 144);

    /* a new process has the blocks on disk */

    kve_replica_restart(r, 20, &ev);
    kve_replica_reach(r, c[6].hash, 512, 145, tokens);
    ck_assert_uint_eq(tokens[KVE_GPU], 0);
    ck_assert_uint_eq(tokens[KVE_HOST], 0);
    ck_assert_uint_eq(tokens[KVE_DISK], 144);
}


/* others continue while a prompt loads; two prompts load one after another */

TEST(loading)
{
    uint32_t        i;
    kve_case_t      c[5];

    cf = kve_test_config(40);
    cf.tier[KVE_HOST].blocks = 100;
    cf.tier[KVE_HOST].load = 0.001;
    r = kve_replica_create(&cf);

    for (i = 0; i < 2; i++) {
        kve_case_init(&c[i], 1000 * (i + 1), 160, 1);
        kve_test_one(r, &c[i], i);
    }

    ck_assert_int_eq(kve_replica_reset_cache(r, 5), 1);

    kve_case_init(&c[2], 1000, 161, 1);
    kve_case_init(&c[3], 2000, 161, 1);
    kve_case_init(&c[4], 9000, 100, 4);
    kve_replica_submit(r, &c[2].req, 10);
    kve_replica_submit(r, &c[3].req, 10);
    kve_replica_submit(r, &c[4].req, 10);
    kve_test_drain(r);

    ck_assert_uint_eq(c[2].req.loaded[KVE_HOST], 160);
    ck_assert_uint_eq(c[3].req.loaded[KVE_HOST], 160);

    /* 100 tokens in a step of 11 ms; three decode steps; then each alone */

    kve_assert_time(c[4].req.first_time, 10.011);
    ck_assert(c[4].req.done_time < 10.05);
    kve_assert_time(c[2].req.first_time, 10.160 + 0.011);
    kve_assert_time(c[3].req.first_time, 10.320 + 0.011);
}


/* a state for each 64 tokens */

static void
kve_test_hybrid(int all)
{
    cf = kve_test_config(100);
    cf.state = 4;
    cf.states = all;
    r = kve_replica_create(&cf);

    kve_case_init(&c, 1000, 200, 1);
    kve_test_one(r, &c, 0);

    ck_assert_uint_eq(kve_replica_match(r, c.hash, 512, 260), 192);
}


TEST(hybrid)
{
    /* one at 192 of 200 tokens: a prompt that shares 150 of them finds none */

    kve_test_hybrid(0);
    ck_assert_uint_eq(kve_replica_match(r, c.hash, 9, 260), 0);

    kve_replica_destroy(r);

    /* one at 64, 128 and 192 */

    kve_test_hybrid(1);
    ck_assert_uint_eq(kve_replica_match(r, c.hash, 9, 260), 128);
    ck_assert_uint_eq(kve_replica_match(r, c.hash, 3, 260), 0);
}


TEST(capacity)
{
    cf = kve_test_config(20);
    cf.hw.kv = 0;
    r = kve_replica_create(&cf);

    kve_case_init(&a, 100, 161, 30);
    kve_replica_submit(r, &a.req, 0);
    kve_replica_advance(r, 0.1, &ev);

    /* fewer than a holds; b has to wait, a continues */

    ck_assert_int_eq(kve_replica_set_blocks(r, 13, 0.1), 0);
    kve_replica_stats(r, &st);
    ck_assert_uint_eq(st.blocks, 13);

    kve_case_init(&b, 300, 161, 1);
    kve_replica_submit(r, &b.req, 0.1);
    kve_replica_advance(r, 0.15, &ev);
    ck_assert(isnan(b.req.admit_time));

    ck_assert_int_eq(kve_replica_set_blocks(r, 40, 0.16), 0);
    kve_test_drain(r);
    ck_assert(b.req.admit_time < 0.18);
    ck_assert(b.req.done_time < a.req.done_time);
    ck_assert_uint_eq(kve_blocks_free(kve_replica_blocks(r)), 40);

    ck_assert_int_eq(kve_replica_set_blocks(r, 5, 2), 0);
    ck_assert_int_eq(kve_replica_check(r), 0);
    ck_assert_uint_eq(kve_blocks_free(kve_replica_blocks(r)), 5);
}


TEST(reset_cache)
{
    kve_test_replica(20);

    kve_case_init(&a, 100, 100, 10);
    kve_replica_submit(r, &a.req, 0);
    kve_replica_advance(r, 0.02, &ev);
    ck_assert_int_eq(kve_replica_reset_cache(r, 0.02), 0);
    ck_assert_uint_eq(kve_replica_match(r, a.hash, 512, 100), 96);

    kve_test_drain(r);
    ck_assert_int_eq(kve_replica_reset_cache(r, 5), 1);
    ck_assert_uint_eq(kve_replica_match(r, a.hash, 512, 100), 0);
}


TEST(prefix_caching_off)
{
    cf = kve_test_config(20);
    cf.no_cache = 1;
    r = kve_replica_create(&cf);

    kve_case_init(&a, 100, 100, 10);
    kve_test_one(r, &a, 0);
    kve_test_one(r, &a, 1);
    ck_assert_uint_eq(a.req.cached_tokens, 0);
    ck_assert_uint_eq(kve_replica_match(r, a.hash, 512, 100), 0);
}


/*
 * Random arrivals, aborts, restarts and changes of capacity.  "how" changes
 * what must not matter: steps in bulk or one by one, advancing to events only
 * or to many times in between.
 */

typedef struct {
    kve_case_t   c;
    double       first;
    double       done;
    uint32_t     cached;
    uint32_t     preempted;
    uint32_t     tokens;
    unsigned     live:1;
} kve_life_t;


#define KVE_LIVES  400


static uint64_t
kve_test_random(uint64_t *state)
{
    uint64_t  z;

    z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);

    return z ^ (z >> 31);
}


/* the names in a cache by its reports, and a sum of all reports */

typedef struct {
    uint64_t     name[512];
    uint32_t     n;
    uint64_t     sum;
    double       step;
} kve_mirror_t;


static uint32_t
kve_mirror_find(const kve_mirror_t *m, uint64_t name)
{
    uint32_t  i;

    for (i = 0; i < m->n && m->name[i] != name; i++) {
        /* void */
    }

    return i;
}


static void
kve_mirror_sum(kve_mirror_t *m, uint64_t x)
{
    m->sum ^= x;
    kve_test_random(&m->sum);
}


static void
kve_mirror_stored(void *data, const kve_req_t *req, uint32_t first, uint32_t n)
{
    uint32_t       i;
    kve_mirror_t  *m;

    m = data;
    ck_assert_uint_gt(n, 0);

    for (i = first; i < first + n; i++) {
        ck_assert_uint_eq(kve_mirror_find(m, req->hashes[i]), m->n);
        m->name[m->n++] = req->hashes[i];
        kve_mirror_sum(m, req->hashes[i]);
    }
}


static void
kve_mirror_removed(void *data, uint64_t hash)
{
    uint32_t       i;
    kve_mirror_t  *m;

    m = data;
    i = kve_mirror_find(m, hash);
    ck_assert_uint_lt(i, m->n);
    m->name[i] = m->name[--m->n];
    kve_mirror_sum(m, ~hash);
}


static void
kve_mirror_cleared(void *data)
{
    kve_mirror_t  *m;

    m = data;
    m->n = 0;
    kve_mirror_sum(m, 1);
}


static void
kve_mirror_step(void *data, double t)
{
    kve_mirror_t  *m;

    m = data;
    ck_assert(t > m->step - EPS);
    m->step = t;
    kve_mirror_sum(m, 2);
}


static void
kve_mirror_check(const kve_mirror_t *m, const kve_replica_t *r)
{
    uint64_t               hash;
    uint32_t               i, named, found;
    const kve_blocks_t    *b;

    b = kve_replica_blocks(r);
    named = 0;
    found = 0;

    for (i = 0; i < kve_blocks_total(b); i++) {
        named += kve_blocks_hash(b, i, &hash);
    }

    /* one assertion: Check writes to a file for each */

    for (i = 0; i < m->n; i++) {
        found += kve_blocks_find(b, m->name[i]) != KVE_BLOCK_NONE;
    }

    ck_assert_uint_eq(found, m->n);
    ck_assert_uint_le(named, m->n);
}


static void
kve_test_events(kve_replica_t *r, double t, kve_life_t *lives)
{
    size_t              i, n;
    double              times[2];
    kve_life_t         *l;
    const kve_event_t  *ev;

    n = kve_replica_advance(r, t, &ev);
    ck_assert_int_eq(kve_replica_check(r), 0);

    for (i = 0; i < n; i++) {
        l = (kve_life_t *) ev[i].req->data;
        ck_assert(l >= lives && l < lives + KVE_LIVES && l->live);

        switch (ev[i].type) {

        case KVE_FIRST:
            l->first = ev[i].time;
            break;

        case KVE_DONE:
            kve_req_times(r, ev[i].req, 1, 1, &times[0]);
            kve_req_times(r, ev[i].req, ev[i].req->output_tokens, 1,
                          &times[1]);
            kve_assert_time(times[1], ev[i].time);

            if (l->c.req.preemptions < KVE_SPANS) {
                kve_assert_time(times[0], l->first);
            }

            l->done = ev[i].time;
            l->cached = ev[i].req->cached_tokens;
            l->preempted = ev[i].req->preemptions;
            l->tokens = kve_req_tokens(r, ev[i].req);
            l->live = 0;
            break;

        case KVE_ABORTED:
            l->live = 0;
            break;

        default:
            break;
        }
    }
}


static uint64_t
kve_test_life(kve_life_t *lives, uint64_t seed, uint32_t max_run, int often,
    int upheaval)
{
    double              t, next;
    size_t              i, n;
    uint64_t            state;
    uint32_t            j, prefix;
    kve_life_t         *l;
    kve_config_t        cf;
    kve_watch_t         watch = { 0 };
    kve_mirror_t        mirror = { 0 };
    kve_replica_t      *r;
    const kve_event_t  *ev;

    watch.stored = kve_mirror_stored;
    watch.removed = kve_mirror_removed;
    watch.cleared = kve_mirror_cleared;
    watch.step = kve_mirror_step;
    watch.data = &mirror;

    cf = kve_test_config(120);
    cf.hw.attention = 1e-9;
    cf.hw.api = 0.003;
    cf.hw.output = 1e-5;
    cf.max_seqs = 12;
    cf.max_batched = 600;
    cf.max_run = max_run;
    cf.state = seed % 5 == 2 ? 3 : 0;
    cf.states = seed & 4;

    if (seed & 2) {
        cf.tier[KVE_HOST].blocks = 200;
        cf.tier[KVE_HOST].load = 1e-4;
        cf.tier[KVE_DISK].blocks = 400;
        cf.tier[KVE_DISK].load = 1e-3;
    }

    r = kve_replica_create(&cf);
    kve_replica_watch(r, &watch);

    memset(lives, 0, KVE_LIVES * sizeof(kve_life_t));
    state = seed;
    t = 0;

    for (i = 0; i < KVE_LIVES; i++) {
        t += (double) (kve_test_random(&state) % 1000) / 1000 * 0.2;

        for ( ;; ) {
            next = often ? kve_replica_next_step(r) : kve_replica_next(r);
            if (next > t) {
                break;
            }

            kve_test_events(r, next, lives);
            kve_mirror_check(&mirror, r);
        }

        if (upheaval) {
            l = &lives[kve_test_random(&state) % KVE_LIVES];

            switch (kve_test_random(&state) % 16) {

            case 0:
                if (l->live) {
                    kve_replica_abort(r, &l->c.req, t);
                    l->live = 0;
                }
                break;

            case 1:
                kve_replica_set_blocks(r, 60 + kve_test_random(&state) % 90,
                                       t);
                break;

            case 2:
                if (kve_test_random(&state) % 8 == 0) {
                    kve_test_events(r, t, lives);
                    n = kve_replica_restart(r, t, &ev);
                    mirror.n = 0;
                    while (n) {
                        n--;
                        l = (kve_life_t *) ev[n].req->data;
                        l->live = 0;
                    }
                }
                break;

            default:
                break;
            }
        }

        l = &lives[i];
        kve_case_init(&l->c, 1000000 * (i + 1),
                      1 + kve_test_random(&state) % 700,
                      1 + kve_test_random(&state) % 150);

        prefix = kve_test_random(&state) % 30;
        for (j = 0; j < prefix; j++) {
            l->c.hash[j] = 500 + j + 1000 * (i % 4);
        }

        l->c.req.data = l;
        l->live = 1;
        kve_replica_submit(r, &l->c.req, t);
    }

    for ( ;; ) {
        next = often ? kve_replica_next_step(r) : kve_replica_next(r);
        if (isinf(next)) {
            break;
        }

        kve_test_events(r, next, lives);
    }

    for (i = 0; i < KVE_LIVES; i++) {
        ck_assert(!lives[i].live);
    }

    kve_mirror_check(&mirror, r);

    /* and it can be emptied: reported with the next step */

    ck_assert_uint_eq(kve_blocks_held(kve_replica_blocks(r)), 0);
    ck_assert(kve_replica_reset_cache(r, t));
    ck_assert_uint_eq(mirror.n, 0);

    kve_replica_destroy(r);

    return mirror.sum;
}


static void
kve_test_same(const kve_life_t *a, const kve_life_t *b, double tolerance)
{
    size_t    i;
    uint32_t  preempted;

    preempted = 0;

    for (i = 0; i < KVE_LIVES; i++) {
        ck_assert(fabs(a[i].first - b[i].first) <= tolerance);
        ck_assert(fabs(a[i].done - b[i].done) <= tolerance);
        ck_assert_uint_eq(a[i].cached, b[i].cached);
        ck_assert_uint_eq(a[i].preempted, b[i].preempted);
        ck_assert_uint_eq(a[i].tokens, b[i].tokens);
        ck_assert_uint_eq(a[i].tokens,
                          a[i].done > 0 ? a[i].c.req.output_tokens : 0);
        preempted += a[i].preempted;
    }

    ck_assert_uint_gt(preempted, 0);
}


TEST_LOOP(bulk_is_step_by_step, 10)
{
    uint64_t     told;
    kve_life_t  *bulk, *steps;

    bulk = malloc(KVE_LIVES * sizeof(kve_life_t));
    steps = malloc(KVE_LIVES * sizeof(kve_life_t));

    told = kve_test_life(bulk, loop, 0, 0, 0);
    ck_assert_uint_eq(told, kve_test_life(steps, loop, 1, 0, 0));
    kve_test_same(bulk, steps, 1e-9);

    ck_assert_uint_eq(told, kve_test_life(steps, loop, 7, 1, 0));
    kve_test_same(bulk, steps, 1e-9);

    free(bulk);
    free(steps);
}


TEST_LOOP(deterministic, 4)
{
    kve_life_t  *a, *b;

    a = malloc(KVE_LIVES * sizeof(kve_life_t));
    b = malloc(KVE_LIVES * sizeof(kve_life_t));

    kve_test_life(a, 100 + loop, 0, 0, 0);
    kve_test_life(b, 100 + loop, 0, 0, 0);
    kve_test_same(a, b, 0);

    /* the number of queries does not matter either */

    kve_test_life(b, 100 + loop, 0, 1, 0);
    kve_test_same(a, b, 0);

    free(a);
    free(b);
}


TEST_LOOP(upheaval, 10)
{
    kve_life_t  *a;

    a = malloc(KVE_LIVES * sizeof(kve_life_t));
    kve_test_life(a, 200 + loop, 0, loop & 1, 1);
    free(a);
}
