
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_counter: the table of the status's counters, and its reset */


#include "util.h"
#include "core/state/kvr_counter.h"
#include "core/queue/kvr_queue.h"


static int
same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}


TEST(test_counter_rows)
{
    uint32_t              i, k;
    const kvr_counter_t  *a, *b;

    for (i = 0; i < kvr_counter_rows; i++) {
        a = &kvr_counter_table[i];

        util_check(a->group < KVR_COUNTER_GROUPS, "row %u: group", i);
        util_check(a->metric_type < KVR_COUNTER_TYPES, "row %u: type", i);

        /* reset writes words of 8 bytes */

        if (a->metric_type != KVR_COUNTER_GAUGE) {
            util_check(a->size % sizeof(uint64_t) == 0, "row %u: size", i);
        }

        util_check((a->n == 0) == (a->name == NULL)
                   && (a->n == 0) == (a->by == NULL),
                   "row %u: values have names", i);

        if (a->metric == NULL) {
            util_check(a->help == NULL && a->label == NULL, "row %u", i);
            continue;
        }

        /* a row without a help text continues the metric before it */

        util_check(a->help || (i && same(a->metric, a[-1].metric)),
                   "row %u: \"%s\" has no text", i, a->metric);
        util_check(a->help || (a->label && a->metric_type == a[-1].metric_type),
                   "row %u: \"%s\" has no label", i, a->metric);

        /* as Prometheus requires */

        k = (uint32_t) strlen(a->metric);
        util_check((a->metric_type == KVR_COUNTER_COUNT
                    || a->metric_type == KVR_COUNTER_REPORTED)
                   == (strcmp(&a->metric[k - 6], "_total") == 0),
                   "row %u: \"%s\" is no counter", i, a->metric);
    }

    /* all names differ */

    for (i = 0; i < kvr_counter_rows; i++) {
        for (k = 0; k < i; k++) {
            a = &kvr_counter_table[i];
            b = &kvr_counter_table[k];

            util_check(a->json == NULL || a->group != b->group
                       || !same(a->json, b->json), "\"%s\" twice", a->json);
            util_check(a->metric == NULL || !same(a->metric, b->metric)
                       || !same(a->label, b->label),
                       "\"%s\" twice", a->metric);
        }
    }
}


TEST(test_counter_names)
{
    uint32_t              i, k, n;
    const char           *name;
    const kvr_counter_t  *row;

    for (i = 0, n = 0; i < kvr_counter_rows; i++) {
        row = &kvr_counter_table[i];

        for (k = row->first; k < row->n; k++, n++) {
            name = row->name(k);
            util_check(name && *name, "\"%s\": place %u", row->json, k);
        }
    }

    util_check(n == KVR_STATUS_CLASSES + KVR_REASON_MAX - 1 + KVR_POLICIES
                    + KVR_DISAGGREGATE_MAX - 1,
               "%u places", n);
}


TEST(test_counter_values)
{
    uint32_t              i;
    kvr_member_t          member;
    kvr_engine_t          s;
    kvr_counter_zone_t    zone = { 0 };
    const kvr_counter_t  *row;

    memset((void *) &member, 0, sizeof(kvr_member_t));
    memset((void *) &s, 0, sizeof(kvr_engine_t));

    member.requests = 7;
    member.responses[2] = 9;
    member.headers = 4;
    member.header_ms = 1000;
    s.running = 5;
    s.kv = 2500;
    zone.fill = 0.5;

    for (i = 0; i < kvr_counter_rows; i++) {
        row = &kvr_counter_table[i];

        util_check(kvr_counter_get(row, NULL, 0) == 0, "nothing: row %u", i);

        if (same(row->json, "responses") && row->group == KVR_COUNTER_MEMBER) {
            util_check(kvr_counter_get(row, &member, 1) == 0, "a value");
            util_check(kvr_counter_get(row, &member, 2) == 9, "the next");

        } else if (same(row->json, "requests")
                   && row->group == KVR_COUNTER_MEMBER)
        {
            util_check(kvr_counter_get(row, &member, 0) == 7, "8 bytes");

        } else if (same(row->json, "header_time")) {
            util_check(kvr_counter_get(row, &member, 0) == 4, "the count");
            util_check(kvr_counter_sum(row, &member) == 1000, "their time");

        } else if (same(row->json, "running")) {
            util_check(kvr_counter_get(row, &s, 0) == 5, "4 bytes");

        } else if (same(row->json, "kv_usage")) {
            util_check(kvr_counter_get(row, &s, 0) == 0.25, "scaled");

        } else if (same(row->json, "fill")) {
            util_check(kvr_counter_get(row, &zone, 0) == 0.5, "a double");
        }
    }
}


/* returns whether all bytes of a part of a structure have this value */
static int
filled(const void *p, size_t size, uint8_t byte)
{
    size_t  i;

    for (i = 0; i < size && ((const uint8_t *) p)[i] == byte; i++) {
        /* void */
    }

    return i == size;
}


/* a counter without a row would stay; other fields are kept */
TEST(test_counter_reset)
{
    size_t             padding;
    kvr_member_t       member;
    kvr_stats_t        stats;
    kvr_queue_stats_t  queue;
    kvr_feedback_t     feedback;
    kvr_engine_t       s;

    memset((void *) &member, 0xff, sizeof(kvr_member_t));
    kvr_counter_reset(KVR_COUNTER_MEMBER, &member);

    padding = offsetof(kvr_member_t, received) + sizeof(member.received);

    util_check(filled(&member, offsetof(kvr_member_t, requests), 0xff),
               "a member's names");
    util_check(filled(&member.requests,
                      padding - offsetof(kvr_member_t, requests), 0),
               "a member's counters");

    memset((void *) &stats, 0xff, sizeof(kvr_stats_t));
    kvr_counter_reset(KVR_COUNTER_STATS, &stats);
    util_check(filled(&stats, sizeof(kvr_stats_t), 0), "an upstream's");

    memset((void *) &queue, 0xff, sizeof(kvr_queue_stats_t));
    kvr_counter_reset(KVR_COUNTER_QUEUE, &queue);
    padding = offsetof(kvr_queue_stats_t, gone) + sizeof(queue.gone);
    util_check(filled(&queue, padding, 0), "a queue's");

    memset((void *) &feedback, 0xff, sizeof(kvr_feedback_t));
    kvr_counter_reset(KVR_COUNTER_CACHE, &feedback);
    util_check(filled(&feedback, offsetof(kvr_feedback_t, clock), 0),
               "a peer's");
    util_check(filled((uint8_t *) &feedback + offsetof(kvr_feedback_t, clock),
                      offsetof(kvr_feedback_t, bytes)
                      - offsetof(kvr_feedback_t, clock), 0xff),
               "learned state");

    memset((void *) &s, 0xff, sizeof(kvr_engine_t));
    kvr_counter_reset(KVR_COUNTER_HEALTH, &s);
    util_check(s.checks == 0 && s.checks_failed == 0 && s.unhealthy == 0
               && s.asked, "checks");
    kvr_counter_reset(KVR_COUNTER_ENGINE, &s);
    util_check(s.asked == 0 && s.failed == 0, "probes");
    util_check(s.hits && s.queries && s.preemptions && s.running && s.health,
               "the engine's reports");
}


TEST(test_counter_copy)
{
    kvr_member_t  a, b;

    memset((void *) &a, 0x5a, sizeof(kvr_member_t));
    memset((void *) &b, 0, sizeof(kvr_member_t));

    kvr_counter_copy(&b, &a, sizeof(kvr_member_t));

    util_check(filled(&b, sizeof(kvr_member_t), 0x5a), "the member is filled");
}
