
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The index: look-ups and inserts, cached and at random, in 1 and 2 processes
 */


#include "micro_cases.h"
#include "micro_run.h"

#include <sys/wait.h>
#include <unistd.h>
#include <cjson/cJSON.h>


#define MICRO_PEERS    8
#define MICRO_CHAIN    1160      /* entries of a prompt of 2 MB */
#define MICRO_AHEAD    32        /* lines prefetched */


typedef struct {
    kvr_index_t   *ix;
    unsigned       entries;      /* entries in a chain */
    unsigned       prompts;      /* inserted prompts */
    unsigned       base;         /* number of the first prompt */
    unsigned       peers;
    kvr_set_t      set;          /* all peers */
} micro_table_t;


/* the cases make chains without prompts */
static void
micro_chain_make(uint64_t *chain, unsigned n, uint64_t prompt)
{
    unsigned  i;
    uint64_t  h;

    h = kvr_mix(prompt + 1, 0x1234567);

    for (i = 0; i < n; i++) {
        h = kvr_mix(h, prompt + 77);
        chain[i] = h;
    }
}


static micro_table_t *
micro_table(size_t bytes, unsigned entries, double fill, unsigned peers)
{
    unsigned          i;
    uint32_t          max_peers;
    uint64_t          lines, chain[MICRO_CHAIN];
    kvr_index_undo_t  undo;
    micro_table_t    *t;

    t = micro_alloc(sizeof(micro_table_t));

    max_peers = kvr_max(peers, KVR_PEERS_FEW);
    lines = kvr_index_lines(bytes, max_peers);

    t->ix = micro_alloc_shared(kvr_index_size(lines, max_peers));
    t->entries = entries;
    t->peers = peers;
    t->set = kvr_set_below(peers);
    t->prompts = kvr_max((unsigned) ((double) lines * fill / entries), 1);

    kvr_index_init(t->ix, lines, max_peers);

    for (i = 0; i < peers; i++) {
        kvr_index_capacity(t->ix, i, KVR_INDEX_CAPACITY_MAX, 0);
    }

    for (i = 0; i < t->prompts; i++) {
        micro_chain_make(chain, entries, i);
        kvr_index_insert(t->ix, chain, entries, kvr_chain_depth(entries - 1),
                         i % peers, 0, &undo);
    }

    return t;
}


/* this many peers have the first prompt */
static void
micro_hot(micro_table_t *t, unsigned n)
{
    unsigned          i;
    uint64_t          chain[MICRO_CHAIN];
    kvr_index_undo_t  undo;

    micro_chain_make(chain, t->entries, 0);

    for (i = 0; i < n; i++) {
        kvr_index_insert(t->ix, chain, t->entries,
                         kvr_chain_depth(t->entries - 1), i, 0, &undo);
    }
}


static uint64_t
micro_lookup(micro_case_t *c, unsigned n)
{
    uint64_t        sum, chain[MICRO_CHAIN];
    uint32_t        matched[KVR_PEERS];
    micro_table_t  *t;

    t = c->data;
    sum = 0;

    while (n--) {
        c->state = c->state * 6364136223846793005ULL + 1442695040888963407ULL;
        micro_chain_make(chain, t->entries,
                         kvr_reduce(c->state, t->prompts));
        sum += kvr_index_lookup(t->ix, chain, t->entries, t->set, matched);
    }

    return sum;
}


/* the time that the other cases spend on making chains */
static uint64_t
micro_chains(micro_case_t *c, unsigned n)
{
    uint64_t        sum, chain[MICRO_CHAIN];
    micro_table_t  *t;

    t = c->data;
    sum = 0;

    while (n--) {
        c->state = c->state * 6364136223846793005ULL + 1442695040888963407ULL;
        micro_chain_make(chain, t->entries,
                         kvr_reduce(c->state, t->prompts));
        sum += chain[c->state % t->entries];
    }

    return sum;
}


/*
 * The lower limit set by memory: prefetches the same number of random lines of
 * the table, then reads or writes them.
 */
static inline uint64_t
micro_touch(micro_case_t *c, unsigned n, int put)
{
    unsigned           i;
    uint64_t           sum, chain[MICRO_CHAIN];
    micro_table_t     *t;
    kvr_index_line_t  *line;

    t = c->data;
    sum = 0;

    while (n--) {
        micro_chain_make(chain, t->entries, ++c->state);

        for (i = 0; i < t->entries + MICRO_AHEAD; i++) {

            if (i < t->entries) {
                line = &t->ix->line[kvr_reduce(chain[i], t->ix->nlines)];
                __builtin_prefetch(line);
            }

            if (i >= MICRO_AHEAD) {
                line = &t->ix->line[kvr_reduce(chain[i - MICRO_AHEAD],
                                               t->ix->nlines)];
                sum += kvr_get(&line->key);

                if (put) {
                    kvr_set(&line->touched, kvr_get(&line->touched));
                }
            }
        }
    }

    return sum;
}


static uint64_t
micro_lines(micro_case_t *c, unsigned n)
{
    return micro_touch(c, n, 0);
}


static uint64_t
micro_written(micro_case_t *c, unsigned n)
{
    return micro_touch(c, n, 1);
}


/* inserts a known prompt again */
static uint64_t
micro_refresh(micro_case_t *c, unsigned n)
{
    uint32_t          units;
    uint64_t          sum, prompt, chain[MICRO_CHAIN];
    kvr_index_undo_t  undo;
    micro_table_t    *t;

    t = c->data;
    sum = 0;
    units = kvr_chain_depth(t->entries - 1);

    while (n--) {
        c->state = c->state * 6364136223846793005ULL + 1442695040888963407ULL;
        prompt = kvr_reduce(c->state, t->prompts);
        micro_chain_make(chain, t->entries, prompt);
        kvr_index_insert(t->ix, chain, t->entries, units,
                         (unsigned) prompt % t->peers, units, &undo);
        sum += undo.clock;
    }

    return sum;
}


static uint64_t
micro_insert(micro_case_t *c, unsigned n)
{
    uint64_t          sum, chain[MICRO_CHAIN];
    kvr_index_undo_t  undo;
    micro_table_t    *t;

    t = c->data;
    sum = 0;

    while (n--) {
        c->state++;
        micro_chain_make(chain, t->entries, c->state << 32);
        kvr_index_insert(t->ix, chain, t->entries,
                         kvr_chain_depth(t->entries - 1),
                         (unsigned) c->state % t->peers, 0, &undo);
        sum += undo.clock;
    }

    return sum;
}


void
micro_index(void)
{
    unsigned        i, entries, peers;
    micro_table_t  *t;

    static const struct {
        size_t        size;
        double        fill;
        const char   *name;
    } tables[] = {
        { 256 << 10, 0.5, "cache" },
        { 64 << 20, 0.5, "64m" },
        { (size_t) 1 << 30, 0.5, "1g" }
    };

    for (i = 0; i < (micro_full ? 3 : 2); i++) {

        for (entries = 128; entries <= 1024; entries *= 8) {

            t = micro_table(tables[i].size, entries, tables[i].fill,
                            MICRO_PEERS);

            micro_add(micro_chains, t, "block", entries,
                      "control chain %u %s", entries, tables[i].name);
            micro_add(micro_lines, t, "line", entries,
                      "control lines %u %s", entries, tables[i].name);
            micro_add(micro_written, t, "line", entries,
                      "control written %u %s", entries, tables[i].name);
            micro_add(micro_lookup, t, "block", entries,
                      "lookup %u %s", entries, tables[i].name);
            micro_add(micro_refresh, t, "block", entries,
                      "refresh %u %s", entries, tables[i].name);

            /* a table of its own: its inserts evict other chains */

            t = micro_table(tables[i].size, entries, tables[i].fill,
                            MICRO_PEERS);

            micro_add(micro_insert, t, "block", entries,
                      "insert %u %s", entries, tables[i].name);
        }
    }

    /* larger fleets, and a prefix that many peers have */

    for (peers = 64; peers <= KVR_PEERS; peers *= 8) {

        t = micro_table(256 << 10, 128, 0.5, peers);

        micro_add(micro_lookup, t, "block", 128, "lookup 128 peers %u", peers);
        micro_add(micro_refresh, t, "block", 128, "refresh 128 peers %u",
                  peers);

        t = micro_table(256 << 10, 128, 0.1, peers);
        t->prompts = 1;
        micro_hot(t, peers == 64 ? 60 : 400);

        micro_add(micro_lookup, t, "block", 128, "lookup 128 held by %u",
                  peers == 64 ? 60 : 400);
    }
}


static uint64_t
micro_arithmetic(micro_case_t *c, unsigned n)
{
    unsigned  i;
    uint64_t  h;

    h = c->state;

    while (n--) {
        for (i = 0; i < 1000; i++) {
            h = kvr_mix(h, i);
        }
    }

    return h;
}


/* the index's part of a request: a look-up, then an insert */
static uint64_t
micro_both(micro_case_t *c, unsigned n)
{
    return micro_lookup(c, n) + micro_refresh(c, n);
}


/* CPU time per call, median of turns, in several processes at a time */
static double
micro_together(micro_run_pt run, micro_table_t *t, unsigned procs)
{
    int            fd[2];
    double         ns[9], v[2], now;
    unsigned       i, k, calls;
    micro_case_t   c;

    memset(&c, 0, sizeof(c));
    c.data = t;

    if (pipe(fd) == -1) {
        exit(1);
    }

    calls = (run == micro_arithmetic) ? 2000 : 400;

    for (i = 0; i < procs; i++) {

        if (fork() == 0) {
            c.state = i * 12345 + 1;

            for (k = 0; k < 9; k++) {
                now = micro_now();
                (void) *(volatile uint64_t *) &(uint64_t) { run(&c, calls) };
                ns[k] = (micro_now() - now) / calls;
            }

            now = micro_median(ns, 9);
            _exit(write(fd[1], &now, sizeof(now)) != sizeof(now));
        }
    }

    for (i = 0; i < procs; i++) {
        if (read(fd[0], &v[i], sizeof(double)) != sizeof(double)) {
            exit(1);
        }

        wait(NULL);
    }

    close(fd[0]);
    close(fd[1]);

    return procs == 2 ? (v[0] + v[1]) / 2 : v[0];
}


void
micro_procs(cJSON *results)
{
    double          one[7], two[7], a[7], b[7];
    cJSON          *item;
    unsigned        i;
    micro_table_t  *t;

    t = micro_table(64 << 20, 128, 0.5, MICRO_PEERS);

    for (i = 0; i < 7; i++) {
        one[i] = micro_together(micro_both, t, 1);
        a[i] = micro_together(micro_arithmetic, t, 1);
        two[i] = micro_together(micro_both, t, 2);
        b[i] = micro_together(micro_arithmetic, t, 2);
    }

    /* twice the work, in this multiple of the CPU time */

    item = cJSON_AddObjectToObject(results, "two_processes");

    cJSON_AddNumberToObject(item, "index",
                            2 * micro_median(one, 7) / micro_median(two, 7));
    cJSON_AddNumberToObject(item, "control",
                            2 * micro_median(a, 7) / micro_median(b, 7));
}


/* fills half a table with chains of 1,024 entries; counts those still found */
void
micro_kept(cJSON *results)
{
    cJSON          *item;
    double          all, kept;
    unsigned        i;
    uint32_t        units, matched[KVR_PEERS];
    uint64_t        chain[MICRO_CHAIN], lines;
    micro_table_t  *t;

    t = micro_table(64 << 20, 1024, 0.5, MICRO_PEERS);
    units = kvr_chain_depth(1023);
    lines = t->ix->nlines;
    kept = 0;
    all = 0;

    for (i = 0; i < t->prompts; i++) {
        micro_chain_make(chain, 1024, i);
        kept += kvr_index_lookup(t->ix, chain, 1024, t->set, matched);
        all += units;
    }

    item = cJSON_AddObjectToObject(results, "kept");

    cJSON_AddNumberToObject(item, "fill", kvr_index_fill(t->ix, 1));
    cJSON_AddNumberToObject(item, "matched_share", kept / all);
    cJSON_AddNumberToObject(item, "bytes_a_line",
                            (double) kvr_index_size(lines, KVR_PEERS_FEW) / (double) lines);
}
