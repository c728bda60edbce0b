
/*
 * Copyright (C) kvroute contributors
 */


#include "core/continue/kvr_continue.h"


static void *kvr_continue_base(const kvr_zone_t *zone, void *data,
    kvr_counter_group_e group, uint32_t number, uint32_t *set);


static const char *const  kvr_continue_causes[] = {
    "broken", "timeout", "short", "error", "moved"
};

_Static_assert(kvr_nelts(kvr_continue_causes) == KVR_CONTINUE_CAUSES,
    "causes");


static const char *const  kvr_continue_lates[] = {
    "", "twice", "first", "second", "hedge", "busy"
};

_Static_assert(kvr_nelts(kvr_continue_lates) == KVR_CONTINUE_LATES, "lates");


static const kvr_counter_t  kvr_continue_rows[] = {
    kvr_counter(UPSTREAM, COUNT, kvr_continue_stats_t, continued, "continued",
        "kvroute_continued_total",
        "Answers that broke and were continued by another server.",
        .needs = KVR_COUNTER_OWN, .n = KVR_CONTINUE_CAUSES, .by = "cause",
        .name = kvr_continue_cause),
    kvr_counter(UPSTREAM, COUNT, kvr_continue_stats_t, cut, "cut",
        "kvroute_cut_total", "Answers that broke and were not continued.",
        .needs = KVR_COUNTER_OWN, .n = KVR_ANSWER_CUTS, .first = 1,
        .sparse = 1, .by = "reason", .name = kvr_answer_cut_name),
    kvr_counter(UPSTREAM, COUNT, kvr_continue_stats_t, late, "late",
        "kvroute_late_total",
        "Requests whose first token was late: sent twice, the server that "
        "answered those, or why not.",
        .needs = KVR_COUNTER_OWN, .n = KVR_CONTINUE_LATES, .first = 1,
        .sparse = 1, .by = "result", .name = kvr_continue_late)
};


const kvr_hooks_t  kvr_continue_hooks = {
    .counters = kvr_continue_rows,
    .ncounters = kvr_nelts(kvr_continue_rows),
    .base = kvr_continue_base
};


static void *
kvr_continue_base(const kvr_zone_t *zone, void *data,
    kvr_counter_group_e group, uint32_t number, uint32_t *set)
{
    kvr_continue_t *c = data;

    (void) zone;

    if (group != KVR_COUNTER_UPSTREAM) {
        return NULL;
    }

    *set |= KVR_COUNTER_OWN;

    return &c->upstream[number];
}


const char *
kvr_continue_cause(uint32_t cause)
{
    return kvr_continue_causes[cause];
}


const char *
kvr_continue_late(uint32_t late)
{
    return late < KVR_CONTINUE_LATES ? kvr_continue_lates[late] : NULL;
}
