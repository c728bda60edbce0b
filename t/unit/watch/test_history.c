
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_history: samples by step, the last minute, resets, killed processes */


#include "util_registry.h"
#include "util.h"
#include "core/watch/kvr_history.h"


#define STEP  ((uint64_t) KVR_HISTORY_STEP)


static kvr_history_t        *h;
static kvr_registry_t       *reg;
static kvr_zone_t            zone;
static kvr_history_sample_t  sample[KVR_HISTORY_SAMPLES];


/* two members of upstream 1, one of upstream 0 */
static void
make(void)
{
    uint32_t  i;

    reg = util_registry(4);
    zone.registry = reg;
    zone.load = util_zeroed(kvr_load_size(2, kvr_registry_columns(4)));
    kvr_load_init(zone.load, 2, kvr_registry_columns(4));

    h = util_zeroed(kvr_history_size(reg->max_members));
    h->max_members = reg->max_members;

    for (i = 0; i < 3; i++) {
        kvr_set(&reg->member[i].used, 1);
        reg->member[i].upstream = i != 0;
    }
}


static void
drop(void)
{
    free(zone.registry);
    free(zone.load);
}


static void
count(uint32_t member, uint64_t requests, uint64_t errors, uint64_t prompt,
    uint64_t matched)
{
    kvr_add(&reg->member[member].requests, requests);
    kvr_add(&reg->member[member].responses[KVR_STATUS_CLASSES - 1], errors);
    kvr_add(&reg->member[member].prompt, prompt);
    kvr_add(&reg->member[member].matched, matched);
}


TEST(test_history_steps)
{
    uint32_t              i, n;
    kvr_verdict_server_t  m;

    make();

    util_check(kvr_history_step(h, 5) == 1, "the first");
    util_check(kvr_history_step(h, 5 + STEP - 1) == 0, "too early");
    util_check(kvr_history_step(h, 5 + STEP) == 1, "in time");
    util_check(kvr_history_step(h, 5 + STEP) == 0,
               "one process takes the step");

    kvr_history_look(h, &zone, 1, 0, 999);

    count(1, 10, 1, 1000, 250);
    count(2, 20, 2, 1000, 250);
    count(0, 500, 500, 9, 9);
    kvr_stats_observe(&reg->upstream[1].stats, KVR_STATS_TTFT, 40000);
    kvr_history_look(h, &zone, 1, 7, 1000);

    n = kvr_history_samples(h, &zone, 1, sample);
    util_check(n == 1 && sample[0].time == 1000, "%u samples", n);
    util_check(sample[0].requests == 30 && sample[0].errors == 3
               && sample[0].rejects == 7 && sample[0].matched == 2500,
               "%u %u %u %u", sample[0].requests, sample[0].errors,
               sample[0].rejects, sample[0].matched);
    util_check(sample[0].p50 > 25 && sample[0].p50 <= 50
               && sample[0].p95 >= sample[0].p50, "%u ms", sample[0].p50);
    util_check(kvr_history_samples(h, &zone, 0, sample) == 0, "the other has none");

    /* the ring has the last ones, oldest first */

    for (i = 2; i < 2 + 2 * KVR_HISTORY_SAMPLES; i++) {
        util_check(kvr_history_step(h, 5 + i * STEP) == 1, "step %u", i);
        count(1, i, 0, 0, 0);
        kvr_history_look(h, &zone, 1, 7, 1000 + i);
    }

    n = kvr_history_samples(h, &zone, 1, sample);
    util_check(n == KVR_HISTORY_SAMPLES, "%u samples", n);

    for (i = 0; i < n; i++) {
        util_check(sample[i].time == 1002 + KVR_HISTORY_SAMPLES + i
                   && sample[i].requests == 2 + KVR_HISTORY_SAMPLES + i
                   && sample[i].rejects == 0
                   && sample[i].p95 == 0
                   && sample[i].matched == KVR_HISTORY_NONE,
                   "%u: %u requests", i, sample[i].requests);
    }

    /* a minute, and the time since the last step */

    count(1, 1000, 100, 0, 0);
    kvr_history_member(h, &zone, 1, &m);

    for (n = 1000, i = 0; i < KVR_HISTORY_PARTS; i++) {
        n += 2 + 2 * KVR_HISTORY_SAMPLES - 1 - i;
    }

    util_check(m.requests == n && m.errors == 100, "%lu of %u", m.requests, n);

    drop();
}


/* the last window with five streams */
TEST(test_history_window)
{
    uint32_t              i;
    kvr_verdict_server_t  m;

    make();

    kvr_history_member(h, &zone, 1, &m);
    util_check(m.window == 0, "unknown");

    for (i = 0; i < 3 * KVR_HISTORY_PARTS; i++) {
        (void) kvr_history_step(h, 1 + i * STEP);
        kvr_history_look(h, &zone, 1, 0, 1 + i);

        /* 12 streams of 40 ms, then one of 600 ms each two steps */

        if (i == 0 || i % 2) {
            kvr_add(&reg->member[1].firsts[1], i ? 1 : 12);
            kvr_add(&reg->member[1].ttft[1], i ? 600 : 12 * 40);
        }

        kvr_history_member(h, &zone, 1, &m);
        util_check(m.window == (i < 9 ? 40 : 600), "%u: %lu ms", i, m.window);
    }

    util_check(m.firsts < KVR_VERDICT_FIRSTS, "%lu in a minute", m.firsts);

    /* a slot that another member gets */

    kvr_set(&reg->member[1].looked, 0);
    kvr_set(&reg->member[1].firsts[1], 0);
    kvr_set(&reg->member[1].ttft[1], 0);
    kvr_history_begin(h, &zone, 1);
    kvr_history_member(h, &zone, 1, &m);
    util_check(m.window == 0, "%lu ms", m.window);

    drop();
}


TEST(test_history_rejects)
{
    uint32_t  i;

    make();

    kvr_history_look(h, &zone, 1, 0, 1);

    for (i = 0; i < KVR_HISTORY_PARTS; i++) {
        (void) kvr_history_step(h, 1 + i * STEP);
        kvr_history_look(h, &zone, 1, 10 * (i + 1), 1 + i);
    }

    util_check(kvr_history_rejects(h, &zone, 1, 60) == 60,
               "rejects of a minute");
    util_check(kvr_history_rejects(h, &zone, 1, 65) == 65, "rejects up to now");

    (void) kvr_history_step(h, 1 + i * STEP);
    kvr_history_look(h, &zone, 1, 60, 1 + i);
    util_check(kvr_history_rejects(h, &zone, 1, 60) == 50, "%lu",
               kvr_history_rejects(h, &zone, 1, 60));

    drop();
}


/* the queue keeps its counters when a zone is recreated */
TEST(test_history_first)
{
    kvr_verdict_server_t  m;

    make();

    util_check(kvr_history_rejects(h, &zone, 1, 6317) == 0, "before a look");

    count(1, 5, 5, 0, 0);
    (void) kvr_history_step(h, 1);
    kvr_history_look(h, &zone, 1, 6317, 1);

    util_check(kvr_history_samples(h, &zone, 1, sample) == 1
               && sample[0].rejects == 0 && sample[0].requests == 5,
               "%u rejects, %u requests", sample[0].rejects,
               sample[0].requests);
    util_check(kvr_history_rejects(h, &zone, 1, 6317) == 0, "after it");
    util_check(kvr_history_rejects(h, &zone, 1, 6320) == 3, "since then");

    /* the slot gets another upstream, and a member's slot another member */

    kvr_set(&reg->upstream[1].looked, 0);
    kvr_set(&reg->member[1].looked, 0);
    kvr_set(&reg->member[1].requests, 6);
    kvr_set(&reg->member[1].responses[KVR_STATUS_CLASSES - 1], 1);

    util_check(kvr_history_rejects(h, &zone, 1, 9000) == 0,
               "another upstream's rejects");
    util_check(kvr_history_samples(h, &zone, 1, sample) == 0,
               "another upstream's samples");
    kvr_history_member(h, &zone, 1, &m);
    util_check(m.requests == 6 && m.errors == 1, "%lu, %lu", m.requests,
               m.errors);

    (void) kvr_history_step(h, 1 + STEP);
    kvr_history_look(h, &zone, 1, 9000, 2);
    kvr_history_member(h, &zone, 1, &m);

    util_check(m.requests == 6 && m.errors == 1, "%lu, %lu", m.requests,
               m.errors);
    util_check(kvr_history_samples(h, &zone, 1, sample) == 1
               && sample[0].rejects == 0 && sample[0].requests == 6,
               "%u rejects, %u requests", sample[0].rejects,
               sample[0].requests);

    drop();
}


/* a reset gives no negative number; a failed 5xx counts once */
TEST(test_history_counters)
{
    make();

    count(1, 100, 40, 1000, 500);
    (void) kvr_history_step(h, 1);
    kvr_history_look(h, &zone, 1, 100, 1);

    kvr_set(&reg->member[1].requests, 3);
    kvr_set(&reg->member[1].responses[KVR_STATUS_CLASSES - 1], 2);
    kvr_set(&reg->member[1].prompt, 0);
    kvr_set(&reg->member[1].fails, 2);

    (void) kvr_history_step(h, 1 + STEP);
    kvr_history_look(h, &zone, 1, 4, 2);

    util_check(kvr_history_samples(h, &zone, 1, sample) == 2, "samples");
    util_check(sample[1].requests == 3 && sample[1].errors == 2
               && sample[1].rejects == 4, "%u %u %u", sample[1].requests,
               sample[1].errors, sample[1].rejects);

    /* old failures do not hide new errors */

    kvr_set(&reg->member[1].fails, 1000000);
    (void) kvr_history_step(h, 1 + 2 * STEP);
    kvr_history_look(h, &zone, 1, 4, 3);

    count(1, 9, 9, 0, 0);
    (void) kvr_history_step(h, 1 + 3 * STEP);
    kvr_history_look(h, &zone, 1, 4, 4);
    util_check(kvr_history_samples(h, &zone, 1, sample) == 4
               && sample[3].errors == 9, "%u errors", sample[3].errors);

    drop();
}


/* the process with the step was killed before or during its look */
TEST(test_history_killed)
{
    uint32_t              i, n;
    kvr_verdict_server_t  m;

    make();

    for (i = 0; i < 2 * KVR_HISTORY_SAMPLES; i++) {
        count(1, 1, 0, 0, 0);
        util_check(kvr_history_step(h, 1 + i * STEP) == 1, "step");

        if (i % 2 == 0) {
            kvr_history_look(h, &zone, 1, 0, 1 + i);
        }
    }

    n = kvr_history_samples(h, &zone, 1, sample);
    util_check(n == KVR_HISTORY_SAMPLES / 2, "%u samples", n);

    for (i = 0; i < n; i++) {
        util_check(sample[i].requests == 2, "nothing is lost: %u",
                   sample[i].requests);
    }

    kvr_history_member(h, &zone, 1, &m);
    util_check(m.requests >= KVR_HISTORY_PARTS - 1
               && m.requests <= KVR_HISTORY_PARTS + 1, "%lu", m.requests);

    /* a reused slot has no counts of the old server */

    kvr_set(&reg->member[1].used, 0);

    for (i = 0; i < KVR_HISTORY_PARTS; i++) {
        (void) kvr_history_step(h, 1 + (2 * KVR_HISTORY_SAMPLES + i) * STEP);
        kvr_history_look(h, &zone, 1, 0, 2000 + i);
    }

    kvr_set(&reg->member[1].used, 1);
    kvr_set(&reg->member[1].requests, 0);
    kvr_history_member(h, &zone, 1, &m);
    util_check(m.requests == 0, "%lu of another", m.requests);

    drop();
}
