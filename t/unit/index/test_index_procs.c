
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_index with eight processes in one table, small and thrashed or large;
 * also with processes that are killed at any time.
 *
 * Prompts come in groups with a common prefix.  Only some peers ever get the
 * prompts of a group, and only some of those each prompt.  So each look-up
 * finds a peer that is credited with a block that it never got.
 * test_load_steps.c tries the races step by step.
 */


#include "util.h"
#include "core/index/kvr_index_line.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>


#define PROCESSES   8
#define PEERS       16
#define ENTRIES     24
#define HEAD        4            /* common entries of a group */
#define GROUP       16           /* prompts in a group */

#define CLAIM       (1U << 24)

/*
 * Allowed wrong credits.  Measured: none in 10^8, with two cores and eight
 * processes.
 */
#define HINT_RATE   1e-6


typedef struct {
    _Atomic uint64_t   ops;
    _Atomic uint64_t   credits;
    _Atomic uint64_t   tags;     /* wrong credits */
    _Atomic uint64_t  stay;     /* those found again at once */
} tally_t;


typedef struct {
    _Atomic uint32_t   stop;
    tally_t            tally[PROCESSES];

    _Alignas(KVR_CACHE_LINE)
    kvr_index_t        ix;
} shared_t;


static shared_t     *shared;
static kvr_index_t  *ix;
static unsigned      prompts;
static unsigned      wide;       /* peers of a large zone, with equal ids */
static kvr_set_t     everybody;


/* the slot of a peer: groups of four have equal ids */
static uint32_t
who(unsigned p)
{
    return wide ? (p & 3) << KVR_INDEX_ID | p >> 2 : p;
}


static void
lookup(const uint64_t *c, uint32_t n, uint32_t *matched)
{
    unsigned  p;
    uint32_t  found[KVR_PEERS];

    (void) kvr_index_lookup(ix, c, n, everybody, found);

    for (p = 0; p < PEERS; p++) {
        matched[p] = found[who(p)];
    }
}


static void
table(uint64_t lines, unsigned n, uint64_t capacity)
{
    unsigned  i;
    uint32_t  max_peers;

    max_peers = wide ? KVR_PEERS : KVR_PEERS_FEW;

    shared = mmap(NULL, sizeof(shared_t) + kvr_index_size(lines, max_peers),
                  PROT_READ|PROT_WRITE, MAP_SHARED|MAP_ANONYMOUS, -1, 0);
    util_check(shared != MAP_FAILED, "mmap: %d", errno);

    ix = &shared->ix;
    prompts = n;

    kvr_index_init(ix, lines, max_peers);
    everybody = kvr_set_none();

    for (i = 0; i < PEERS; i++) {
        kvr_set_add(&everybody, who(i));
        kvr_index_flush(ix, who(i));
        kvr_index_capacity(ix, who(i), capacity,
                           i & 1 ? KVR_INDEX_REPORTED : KVR_INDEX_ASSUMED);
    }
}


static uint64_t
value(uint64_t name, uint32_t k)
{
    util_rng_t  r;

    r.state = kvr_mix(name + 1, k + 1);

    return util_next(&r);
}


static void
chain(uint64_t *c, unsigned prompt)
{
    uint32_t  k;

    for (k = 0; k < ENTRIES; k++) {
        c[k] = value(k < HEAD ? 1000000 + prompt / GROUP : prompt, k);
    }
}


/* twelve peers of a group, six of them for each prompt */
static uint64_t
group_set(unsigned prompt)
{
    util_rng_t  r;
    uint64_t    set;

    r.state = prompt / GROUP * 77 + 1;
    set = (1 << PEERS) - 1;

    while (__builtin_popcountll(set) > 12) {
        set &= ~(1ULL << util_below(&r, PEERS));
    }

    return set;
}


static uint64_t
prompt_set(unsigned prompt)
{
    util_rng_t  r;
    uint64_t    set;

    r.state = prompt * 177 + 5;
    set = group_set(prompt);

    while (__builtin_popcountll(set) > 6) {
        set &= ~(1ULL << util_below(&r, PEERS));
    }

    return set;
}


/* returns the peers that are credited with a block that they never got */
static uint64_t
wrong(unsigned prompt, const uint32_t *matched, unsigned *credits)
{
    uint64_t  set, all, own;
    unsigned  p;

    set = 0;
    all = group_set(prompt);
    own = prompt_set(prompt);
    *credits = 0;

    /* only prefixes have masks, with bits for four peers */

    for (p = 0; p < PEERS && wide; p += 4) {
        all |= (all >> p & 0xf) ? 0xfULL << p : 0;
    }

    for (p = 0; p < PEERS; p++) {

        if (matched[p] == 0) {
            continue;
        }

        ++*credits;

        if (!((matched[p] > HEAD ? own : all) >> p & 1)) {
            set |= 1ULL << p;
        }
    }

    return set;
}


static void
hammer(unsigned self, uint64_t seed, uint64_t ops)
{
    tally_t          *t;
    uint64_t          c[ENTRIES], set, i;
    uint32_t          n, matched[PEERS];
    unsigned          prompt, p, credits;
    util_rng_t        r;
    kvr_index_undo_t  undo;

    util_seed(&r, "index process", seed);
    t = &shared->tally[self];

    for (i = 0; i < ops && !atomic_load(&shared->stop); i++) {

        kvr_add(&t->ops, 1);

        /* some are used more often than others */

        prompt = util_below(&r, prompts);
        prompt = util_below(&r, 2) ? util_below(&r, prompt + 1) : prompt;

        chain(c, prompt);
        n = 1 + util_below(&r, ENTRIES);

        lookup(c, n, matched);

        set = wrong(prompt, matched, &credits);
        kvr_add(&t->credits, credits);

        if (set) {
            kvr_add(&t->tags, (unsigned) __builtin_popcountll(set));

            lookup(c, n, matched);
            set &= wrong(prompt, matched, &credits);
            kvr_add(&t->stay, (unsigned) __builtin_popcountll(set));
        }

        /* one process in three only reads */

        if (self % 3 == 2) {
            continue;
        }

        do {
            p = util_below(&r, PEERS);
        } while (!(prompt_set(prompt) >> p & 1));

        switch (util_below(&r, 200)) {

        case 0:
            kvr_index_flush(ix, who(p));
            break;

        case 1:
            kvr_index_capacity(ix, who(p), 100 + util_below(&r, 100000),
                               util_below(&r, 2) ? KVR_INDEX_REPORTED
                                                 : KVR_INDEX_ASSUMED);
            break;

        case 2:
            (void) kvr_index_fill(ix, i);
            break;

        default:
            kvr_index_insert(ix, c, n, n, who(p),
                             util_below(&r, 4) ? matched[p] : 0, &undo);

            if (util_below(&r, 8) == 0) {
                kvr_index_undo(ix, c, n, &undo);
            }
        }
    }
}


static pid_t
hire(unsigned self, uint64_t seed, uint64_t ops)
{
    pid_t  pid;

    pid = fork();
    util_check(pid != -1, "fork: %d", errno);

    if (pid == 0) {

        /* otherwise the killing process gets no CPU among all these */

        (void) !nice(10);

        hammer(self, seed, ops);
        _exit(0);
    }

    return pid;
}


/* all processes have ended well, with hardly any wrong credit */
static void
settle(pid_t *pid, const char *what)
{
    int       status;
    unsigned  i;
    uint64_t  credits, tags, stay;

    credits = 0;
    tags = 0;
    stay = 0;

    for (i = 0; i < PROCESSES; i++) {
        waitpid(pid[i], &status, 0);
        util_check(WIFEXITED(status) && WEXITSTATUS(status) == 0,
                   "process %u: %x", i, status);

        credits += shared->tally[i].credits;
        tags += shared->tally[i].tags;
        stay += shared->tally[i].stay;

        util_check(shared->tally[i].ops, "process %u did nothing", i);
    }

    if (getenv("KVR_TEST_RATES")) {
        fprintf(stderr, "%s: %llu credits, %llu wrong, %llu twice\n", what,
                (unsigned long long) credits, (unsigned long long) tags,
                (unsigned long long) stay);
    }

    util_check((double) tags <= 1 + (double) credits * HINT_RATE,
               "%llu of %llu credits are wrong", (unsigned long long) tags,
               (unsigned long long) credits);
}


/* at rest: each line is valid and right, and all can be freed */
static void
check_table(void)
{
    uint64_t           i, h, c[ENTRIES], claims, tags;
    uint32_t           k, matched[PEERS];
    unsigned           prompt, p, s, credits;
    kvr_index_undo_t   undo;
    kvr_index_line_t  *line;

    /* claims of killed processes, at most one each */

    claims = 0;

    for (i = 0; i < ix->nlines; i++) {
        line = &ix->line[i];
        h = line->key;

        if (h == 0) {
            continue;
        }

        if (h <= UINT32_MAX) {
            claims++;
            continue;
        }

        util_check(kvr_reduce(h, ix->nbuckets) == i / KVR_INDEX_WAYS,
                   "line %llu is in a wrong place", (unsigned long long) i);
        util_check(((line->ids ^ h) & KVR_INDEX_TAG) == 0,
                   "line %llu has ids of another block",
                   (unsigned long long) i);
        util_check(line->mask >> PEERS == 0, "a peer that does not exist");

        for (s = 0; s < KVR_INDEX_HOLDERS; s++) {
            util_check(kvr_set_test(&everybody,
                                    kvr_index_id(line->ids, s, line->stamp[s])),
                       "a peer that does not exist");
        }
    }

                /* peers that never got the block */

    tags = 0;

    for (prompt = 0; prompt < prompts; prompt++) {
        chain(c, prompt);
        for (k = 1; k <= ENTRIES; k++) {
            lookup(c, k, matched);
            tags += (wrong(prompt, matched, &credits) != 0);
        }
    }

    util_check(tags <= 1, "%llu wrong hints are left",
               (unsigned long long) tags);

    /* claims are freed in time */

    ix->clock += 2 * CLAIM;

    for (i = 0; i < 5 * kvr_line_turns(ix) * ix->nlines; i += 1000) {
        kvr_index_insert(ix, c, 0, 1000, 0, 0, &undo);
    }

    for (i = 0; i < ix->nlines; i++) {
        util_check(ix->line[i].key == 0 || ix->line[i].key > UINT32_MAX,
                   "line %llu is lost for ever", (unsigned long long) i);
    }

    util_check(claims < 1000, "%llu claims", (unsigned long long) claims);

    /* everything expires: all lines are free */

    for (p = 0; p < PEERS; p++) {
        kvr_index_flush(ix, who(p));
    }

    for (i = 0; i < 5 * kvr_line_turns(ix) * ix->nlines; i += 1000) {
        kvr_index_insert(ix, c, 0, 1000, 0, 0, &undo);
    }

    for (i = 0; i < ix->nlines; i++) {
        util_check(ix->line[i].key == 0, "line %llu is not free",
                   (unsigned long long) i);
    }

    /* and the table works like a new one */

    for (p = 0; p < PEERS; p++) {
        kvr_index_capacity(ix, who(p), 1000000, KVR_INDEX_ASSUMED);

        chain(c, p);
        kvr_index_insert(ix, c, 3, 3, who(p), 0, &undo);

        lookup(c, 3, matched);
        util_check(matched[p] == 3, "peer %u: %u", p, matched[p]);
    }
}


static void
run(const char *name, uint64_t lines, unsigned n, uint64_t capacity,
    uint64_t ops)
{
    pid_t     pid[PROCESSES];
    unsigned  i;

    util_note("%s", name);
    table(lines, n, capacity);

    for (i = 0; i < PROCESSES; i++) {
        pid[i] = hire(i, i, ops);
    }

    settle(pid, name);
    check_table();
}


/* 64 buckets for 12,000 blocks: lines are evicted all the time */
TEST(test_index_procs_small)
{
    run("small table", 256, 512, 100000, util_cases(50000));
}


/* four lines: all processes use the same ones */
TEST(test_index_procs_tiny)
{
    run("tiny table", 4, 64, 100000, util_cases(100000));
}


TEST(test_index_procs_large)
{
    run("large table", 65536, 4096, 100000, util_cases(40000));
}


/* a few prompts that all peers have, in caches that turn over fast */
TEST(test_index_procs_hot)
{
    run("hot lines", 4096, 16, 2000, util_cases(50000));
}


TEST(test_index_procs_wide)
{
    wide = 1;
    run("wide", 4096, 16, 2000, util_cases(30000));
    run("wide, tiny", 4, 64, 100000, util_cases(30000));
}


static void
run_kills(const char *name, uint64_t lines, unsigned n, unsigned kills)
{
    int         status;
    pid_t       pid[PROCESSES];
    uint64_t    ops;
    unsigned    i, k, first, last;
    util_rng_t  r;

    util_note("%s", name);
    table(lines, n, 100000);
    util_seed(&r, name, 0);

    for (i = 0; i < PROCESSES; i++) {
        pid[i] = hire(i, i, UINT64_MAX);
    }

    /* one or several at a time: each needs CPU time to die */

    for (k = 0; k < kills; k += last - first) {

        usleep(util_below(&r, 3000));

        first = util_below(&r, PROCESSES);
        last = first + 1 + util_below(&r, PROCESSES - first);

        for (i = first; i < last; i++) {
            kill(pid[i], SIGKILL);
        }

        for (i = first; i < last; i++) {
            waitpid(pid[i], &status, 0);
            pid[i] = hire(i, PROCESSES + k + i, UINT64_MAX);
        }
    }

    /* the others continue */

    for (i = 0; i < PROCESSES; i++) {
        ops = shared->tally[i].ops;

        while (shared->tally[i].ops < ops + 100) {
            sched_yield();
        }
    }

    atomic_store(&shared->stop, 1);

    settle(pid, name);
    check_table();
}


TEST(test_index_procs_kills)
{
    run_kills("small table, kills", 256, 512, util_cases(300));
}


TEST(test_index_procs_kills_wide)
{
    wide = 1;
    run_kills("wide table, kills", 256, 512, util_cases(100));
}


TEST(test_index_procs_kills_large)
{
    run_kills("large table, kills", 65536, 4096, util_cases(200));
}
