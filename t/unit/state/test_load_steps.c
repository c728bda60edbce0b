
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_index, kvr_load and kvr_registry, while processes overtake each other or
 * are killed between any two accesses to shared memory.
 *
 * The three files are compiled into this one, with atomic accesses at which
 * the scheduler below can switch to another coroutine, or never return to this
 * one.  A seed repeats a run exactly.  Accesses happen in program order;
 * reordering by weaker machines is not tested.
 */


#include "util_registry.h"
#include "util.h"

#include <ucontext.h>


static void step(void);


#undef atomic_load
#undef atomic_load_explicit
#undef atomic_store
#undef atomic_store_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_and_explicit
#undef atomic_fetch_or
#undef atomic_compare_exchange_weak
#undef atomic_compare_exchange_weak_explicit
#undef atomic_compare_exchange_strong
#undef atomic_compare_exchange_strong_explicit

#define SC  __ATOMIC_SEQ_CST

#define atomic_load(p)                      (step(), __atomic_load_n(p, SC))
#define atomic_load_explicit(p, o)          (step(), __atomic_load_n(p, o))
#define atomic_store(p, v)                  (step(), __atomic_store_n(p, v, SC))
#define atomic_store_explicit(p, v, o)      (step(), __atomic_store_n(p, v, o))

#define atomic_fetch_add_explicit(p, v, o)                                    \
    (step(), __atomic_fetch_add(p, v, o))
#define atomic_fetch_and_explicit(p, v, o)                                    \
    (step(), __atomic_fetch_and(p, v, o))
#define atomic_fetch_or(p, v)                                                 \
    (step(), __atomic_fetch_or(p, v, SC))

#define atomic_compare_exchange_strong_explicit(p, e, v, s, f)                \
    (step(), __atomic_compare_exchange_n(p, e, v, 0, s, f))
#define atomic_compare_exchange_weak_explicit(p, e, v, s, f)                  \
    (step(), __atomic_compare_exchange_n(p, e, v, 0, s, f))
#define atomic_compare_exchange_strong(p, e, v)                               \
    (step(), __atomic_compare_exchange_n(p, e, v, 0, SC, SC))
#define atomic_compare_exchange_weak(p, e, v)                                 \
    (step(), __atomic_compare_exchange_n(p, e, v, 0, SC, SC))

#include "core/index/kvr_index_line.c"
#include "core/index/kvr_index_lookup.c"
#include "core/index/kvr_index_insert.c"
#include "core/index/kvr_index.c"
#include "core/state/kvr_load.c"
#include "core/state/kvr_registry.c"


/* the scheduler */

#define THREADS     4
#define STACK       (64 * 1024)

typedef enum {
    RUNNING = 0,
    DONE,
    KILLED
} state_e;

typedef struct {
    ucontext_t      context;
    state_e         state;
    void          (*run)(unsigned self);
    char           *stack;
} thread_t;


static thread_t     threads[THREADS];
static ucontext_t   scheduler;
static unsigned     current = THREADS;  /* no steps outside a thread */
static util_rng_t   rng;

static unsigned  turn_rate;      /* a switch at one of this many accesses */
static unsigned  kill_rate;      /* a kill at one of this many switches */
static unsigned  stop_at;        /* or one switch after this many accesses */
static unsigned     steps;


static void
leave(state_e state)
{
    unsigned  self;

    self = current;
    threads[self].state = state;
    current = THREADS;

    swapcontext(&threads[self].context, &scheduler);
}


static void
step(void)
{
    if (current == THREADS) {
        return;
    }

    steps++;

    if (stop_at) {
        if (steps == stop_at) {
            leave(RUNNING);
        }

        return;
    }

    if (turn_rate && util_below(&rng, turn_rate) == 0) {
        leave(kill_rate && util_below(&rng, kill_rate) == 0 ? KILLED
                                                            : RUNNING);
    }
}


static void
trampoline(int self)
{
    threads[self].run((unsigned) self);
    leave(DONE);
}


static void
start(unsigned n, void (*run)(unsigned self))
{
    thread_t  *t;

    t = &threads[n];

    if (t->stack == NULL) {
        t->stack = malloc(STACK);
    }

    t->state = RUNNING;
    t->run = run;

    getcontext(&t->context);

    t->context.uc_stack.ss_sp = t->stack;
    t->context.uc_stack.ss_size = STACK;
    t->context.uc_link = NULL;

    makecontext(&t->context, (void (*)(void)) trampoline, 1, (int) n);
}


/* runs a thread until it yields, ends or is killed */
static void
resume(unsigned n)
{
    current = n;
    swapcontext(&scheduler, &threads[n].context);
    current = THREADS;
}


/* runs the first n threads in random order until none is left */
static void
run_all(unsigned n)
{
    unsigned  i, live, pick;

    for ( ;; ) {
        live = 0;

        for (i = 0; i < n; i++) {
            live += (threads[i].state == RUNNING);
        }

        if (live == 0) {
            return;
        }

        pick = util_below(&rng, live);

        for (i = 0; threads[i].state != RUNNING || pick--; i++) { /* void */ }

        resume(i);
    }
}


/*
 * The index: few lines and slots, many keys and peers.  For each key and peer
 * the test knows whether the block was inserted since the peer's last restart,
 * or is being inserted now.
 */

#define KEYS        12
#define PEERS       12
#define LINES       4
#define CAPACITY    100

typedef struct {
    uint8_t         peer;
    uint8_t         n;
    uint8_t         key[2];
} lesson_t;


static kvr_index_t  *ix;
static uint64_t      keys[KEYS];
static uint8_t       given[KEYS][PEERS];
static uint32_t      inserted[KEYS][PEERS];  /* counts, to see changes */
static lesson_t  flying[THREADS];    /* inserts in progress: n is not 0 */

static uint64_t      credits;
static uint64_t      tags;                 /* wrong hints */


static void
index_start(unsigned prompts)
{
    unsigned          i, k, p;
    kvr_index_undo_t  undo;

    static size_t  size;

    if (ix == NULL) {
        size = kvr_index_size(LINES, KVR_PEERS_FEW);
        ix = aligned_alloc(KVR_CACHE_LINE, size);
    }

    memset((void *) ix, 0, size);
    memset(given, 0, sizeof(given));
    memset(flying, 0, sizeof(flying));

    kvr_index_init(ix, LINES, KVR_PEERS_FEW);

    for (i = 0; i < KEYS; i++) {
        keys[i] = util_next(&rng);
    }

    for (i = 0; i < PEERS; i++) {
        kvr_index_flush(ix, i);
        kvr_index_capacity(ix, i, CAPACITY, KVR_INDEX_ASSUMED);
    }

    /* half of the time one of two keys, so that lines are full */

    for (i = 0; i < prompts; i++) {
        k = util_below(&rng, i & 1 ? KEYS : 2);
        p = util_below(&rng, PEERS);

        given[k][p] = 1;
        kvr_index_insert(ix, &keys[k], 1, 1, p, 0, &undo);
    }
}


static void
index_learn(unsigned self)
{
    unsigned          i, k;
    uint64_t          chain[2];
    lesson_t         *l;
    kvr_index_undo_t  undo;

    l = &flying[self];

    l->peer = (uint8_t) util_below(&rng, PEERS);
    l->n = (uint8_t) (1 + util_below(&rng, 2));

    for (i = 0; i < l->n; i++) {
        k = util_below(&rng, util_below(&rng, 2) ? 2 : KEYS);

        l->key[i] = (uint8_t) k;
        chain[i] = keys[k];

        given[k][l->peer] = 1;
        inserted[k][l->peer]++;
    }

    kvr_index_insert(ix, chain, l->n, l->n, l->peer, 0, &undo);

    if (util_below(&rng, 4) == 0) {
        kvr_index_undo(ix, chain, l->n, &undo);
    }

    l->n = 0;
}


    /* an insert from before a flush does not count when it ends */
static void
index_flush(void)
{
    uint8_t   fly[KEYS] = { 0 };
    uint32_t  before[KEYS];
    unsigned  i, k, t, peer;

    peer = util_below(&rng, PEERS);

    for (t = 0; t < THREADS; t++) {
        for (i = 0; i < flying[t].n; i++) {
            fly[flying[t].key[i]] |= (flying[t].peer == peer);
        }
    }

    for (k = 0; k < KEYS; k++) {
        before[k] = inserted[k][peer];
    }

    kvr_index_flush(ix, peer);

    for (k = 0; k < KEYS; k++) {
        if (!fly[k] && before[k] == inserted[k][peer]) {
            given[k][peer] = 0;
        }
    }
}


static void
index_look(unsigned k)
{
    uint8_t   before[PEERS];
    uint32_t  count[PEERS], matched[PEERS];
    unsigned  p;

    memcpy(before, given[k], sizeof(before));
    memcpy(count, inserted[k], sizeof(count));

    kvr_index_lookup(ix, &keys[k], 1, util_set((1U << PEERS) - 1), matched);

    for (p = 0; p < PEERS; p++) {
        if (matched[p]) {
            credits++;
            tags += (!before[p] && count[p] == inserted[k][p]);
        }
    }
}


static void
index_thread(unsigned self)
{
    unsigned  n;

    for (n = 1 + util_below(&rng, 4); n; n--) {

        switch (util_below(&rng, 10)) {

        case 0:
            index_flush();
            break;

        case 1:
        case 2:
        case 3:
            index_look(util_below(&rng, KEYS));
            break;

        default:
            index_learn(self);
        }
    }
}


/* at rest: each line is valid and right */
static void
index_check(void)
{
    unsigned           i, s, k;
    uint32_t           matched[PEERS];
    uint64_t           before;
    kvr_index_undo_t   undo;
    kvr_index_line_t  *line;

    memset(flying, 0, sizeof(flying));
    before = tags;

    for (k = 0; k < KEYS; k++) {
        index_look(k);
    }

    for (i = 0; i < LINES; i++) {
        line = &ix->line[i];

        if (line->key <= KVR_INDEX_CLAIMED) {
            continue;
        }

        for (k = 0; k < KEYS && (keys[k] & ~1ULL) != line->key; k++) {
            /* void */
        }

        util_check(k < KEYS, "line %u has an unknown key", i);
        util_check(((line->ids ^ line->key) & KVR_INDEX_TAG) == 0,
                   "line %u has ids of another block", i);
        util_check(line->mask >> PEERS == 0, "line %u: mask", i);

        for (s = 0; s < KVR_INDEX_HOLDERS; s++) {
            util_check(kvr_index_id(line->ids, s, line->stamp[s]) < PEERS, "line %u: id", i);
        }
    }

    util_check(kill_rate || tags == before,
               "%llu wrong hints are left though no process was killed",
               (unsigned long long) (tags - before));

    /* claims of killed processes expire, then there is room again */

    ix->clock += 2 * KVR_INDEX_CLAIM;

    for (k = 0; k < 5; k++) {
        kvr_index_insert(ix, keys, 0, 4 * LINES, PEERS, 0, &undo);
    }

    for (i = 0; i < LINES; i++) {
        util_check(ix->line[i].key == 0
                   || ix->line[i].key > KVR_INDEX_CLAIMED,
                   "line %u is lost for ever", i);
    }

    kvr_index_insert(ix, keys, 1, 1, 3, 0, &undo);
    (void) kvr_index_lookup(ix, keys, 1, util_set(1U << 3), matched);
    util_check(matched[3] == 1, "an insert was not stored");
}


static void
index_schedules(const char *name, unsigned cases, unsigned turns,
    unsigned kills)
{
    unsigned  i, t;

    turn_rate = turns;
    kill_rate = kills;
    stop_at = 0;
    credits = 0;
    tags = 0;

    for (i = 0; i < cases; i++) {

        util_seed(&rng, name, i);
        index_start(20);

        for (t = 0; t < 3; t++) {
            start(t, index_thread);
        }

        run_all(3);
        index_check();
    }
}


TEST(test_steps_index)
{
    index_schedules("index steps, often", util_cases(30000), 4, 0);
    util_check(tags == 0, "%llu wrong hints of %llu",
               (unsigned long long) tags, (unsigned long long) credits);

    index_schedules("index steps, seldom", util_cases(30000), 20, 0);
    util_check(tags == 0, "%llu wrong hints of %llu",
               (unsigned long long) tags, (unsigned long long) credits);
}


/*
 * With kills: a wrong holder needs two processes in a window of a few steps,
 * and one of them dies there.  Measured: 1 in 2 * 10^7.
 */
TEST(test_steps_index_kills)
{
    index_schedules("index steps, kills", util_cases(50000), 4, 4);
    util_check(tags <= 1, "%llu wrong hints of %llu",
               (unsigned long long) tags, (unsigned long long) credits);
}


/*
 * One thread is stopped after each of its steps in turn, another one does all
 * its work, then the first one continues, or does not.
 */

static uint64_t  first_seed, second_seed;

static void
first_thread(unsigned self)
{
    rng.state = first_seed;
    index_learn(self);
}


static void
second_thread(unsigned self)
{
    rng.state = second_seed;

    if (second_seed % 5 == 0) {
        index_flush();
    }

    index_learn(self);
    index_learn(self);
    index_learn(self);
}


TEST(test_steps_index_each)
{
    unsigned  i, k, dies, most;

    credits = 0;
    tags = 0;
    turn_rate = 0;
    most = 0;

    for (i = 0; i < util_cases(400); i++) {
        for (k = 1; k < 1000; k++) {

            for (dies = 0; dies < 2; dies++) {

                util_seed(&rng, "index steps, each", i);
                index_start(20);

                first_seed = util_next(&rng);
                second_seed = util_next(&rng);

                start(0, first_thread);
                start(1, second_thread);

                steps = 0;
                stop_at = k;
                resume(0);

                if (threads[0].state == DONE) {
                    break;
                }

                stop_at = UINT32_MAX;
                resume(1);

                if (!dies) {
                    resume(0);
                }

                kill_rate = dies;
                stop_at = 0;

                index_check();
            }

            if (threads[0].state == DONE && dies == 0) {
                break;
            }
        }

        most = kvr_max(most, k);
    }

    util_check(most > 20 && most < 1000, "%u steps", most);
    util_check(tags == 0, "%llu wrong hints of %llu",
               (unsigned long long) tags, (unsigned long long) credits);
}


/*
 * The load table: processes that claim a row, count, sweep dead processes, and
 * are killed or exit.
 */

#define ROWS        3
#define COLUMNS     3
#define SERIALS     16

static kvr_load_t   *load;
static unsigned      serial;
static uint8_t       lives[SERIALS];
static unsigned      owner_of[THREADS];


/* a lock like nginx's: readers, or -1; and its holders' records */

#define WRITER  ((uint64_t) -1)

typedef enum {
    AWAY = 0,
    UNNOTED,        /* held, not recorded yet */
    NOTED
} holding_e;

static uint64_t      lock;
static holding_e     holding[THREADS + 1];
static uint64_t  inside[THREADS];    /* the mode of the lock */
static int           lost;              /* by one killed before it recorded */


static int
load_alive(void *data, kvr_load_owner_t owner)
{
    (void) data;

    return lives[owner >> 32];
}


static void
lock_release(void)
{
    if (__atomic_load_n(&lock, SC) == WRITER) {
        atomic_store(&lock, 0);

    } else {
        (void) atomic_fetch_add_explicit(&lock, -1, SC);
    }

    holding[current] = AWAY;
}


static int
load_drop(void *data, kvr_load_row_t *row)
{
    (void) data;

    util_check(atomic_load(&row->held) == 7, "held");

    atomic_store(&row->held, 0);
    holding[current] = UNNOTED;

    lock_release();

    return KVR_OK;
}


/* takes the lock if it is free, and is never in it with a writer */
static void
lock_use(unsigned self, uint32_t row)
{
    unsigned  t;
    uint64_t  was, want;

    was = atomic_load(&lock);
    want = util_below(&rng, 2) ? WRITER : was + 1;

    if (was == WRITER || (want == WRITER && was)
        || !atomic_compare_exchange_strong(&lock, &was, want))
    {
        return;
    }

    holding[self] = UNNOTED;
    inside[self] = want == WRITER ? WRITER : 1;

    for (t = 0; t < THREADS; t++) {
        util_check(t == self || threads[t].state != RUNNING || inside[t] == 0
                   || (inside[t] == 1 && inside[self] == 1),
                   "%u is in the lock with %u", self, t);
    }

    kvr_load_hold(load, row, 7);
    holding[self] = NOTED;

    kvr_load_hold(load, row, 0);
    holding[self] = UNNOTED;

        /* others can enter before it continues */

    step();
    inside[self] = 0;
    lock_release();
}


static void
load_thread(unsigned self)
{
    uint32_t           row, column, n, s;
    uint64_t           word[COLUMNS] = { 0 };
    _Atomic uint64_t  *words;
    kvr_load_owner_t   owner;

    s = owner_of[self];
    owner = kvr_load_owner(s, 1);

    if (util_below(&rng, 2)) {
        kvr_load_sweep(load, owner, load_alive, load_drop, NULL, NULL);
    }

    row = kvr_load_claim(load, owner, s);

    if (row == ROWS) {
        lives[s] = 0;
        return;
    }

    words = kvr_load_words(load, row);

    for (column = 0; column < COLUMNS; column++) {
        util_check(__atomic_load_n(&words[column], SC) == 0,
                   "row %u was not clean", row);
    }

    util_check(__atomic_load_n(&kvr_load_names(load, row)[0], SC) == 0,
               "row %u had names", row);

    for (n = util_below(&rng, 6); n; n--) {

        if (util_below(&rng, 3) == 0) {
            kvr_load_sweep(load, owner, load_alive, load_drop, NULL, NULL);
            continue;
        }

        lock_use(self, row);

        column = util_below(&rng, COLUMNS);

        kvr_load_name(load, row, column);
        kvr_load_add(load, row, column, 1, 5);
        word[column] += (1ULL << KVR_LOAD_BYTES_BITS) + 5;

        for (column = 0; column < COLUMNS; column++) {
            util_check(__atomic_load_n(&words[column], SC) == word[column],
                       "another process changed row %u", row);
        }

        util_check(__atomic_load_n(&load->row[row].owner, SC) == owner,
                   "another process took row %u", row);
    }

    if (util_below(&rng, 2)) {

        for (column = 0; column < COLUMNS; column++) {
            kvr_load_add(load, row, column, -100, -1000);
        }
    }

    kvr_load_release(load, row);
    lives[s] = 0;
}


static void
load_case(const char *name, unsigned i, unsigned turns, unsigned kills)
{
    unsigned        t, n, live, column;
    kvr_load_sum_t  sum;

    static size_t  size;

    if (load == NULL) {
        size = kvr_load_size(ROWS, COLUMNS);
        load = aligned_alloc(KVR_CACHE_LINE, size);
    }

    util_seed(&rng, name, i);

    memset((void *) load, 0, size);
    memset(lives, 0, sizeof(lives));
    memset(holding, 0, sizeof(holding));
    memset(inside, 0, sizeof(inside));
    kvr_load_init(load, ROWS, COLUMNS);

    lock = 0;
    lost = 0;

    turn_rate = turns;
    kill_rate = kills;
    stop_at = 0;
    serial = 1;

    for (t = 0; t < THREADS; t++) {
        owner_of[t] = serial;
        lives[serial++] = 1;
        start(t, load_thread);
    }

    /* new processes replace the dead ones */

    for ( ;; ) {
        live = 0;

        for (t = 0; t < THREADS; t++) {

            if (threads[t].state == KILLED) {
                lives[owner_of[t]] = 0;
                lost |= holding[t] == UNNOTED;
                holding[t] = AWAY;
                inside[t] = 0;
            }

            if (threads[t].state != RUNNING && serial < SERIALS) {
                owner_of[t] = serial;
                lives[serial++] = 1;
                start(t, load_thread);
            }

            live += (threads[t].state == RUNNING);
        }

        if (live == 0) {
            break;
        }

        t = util_below(&rng, THREADS);

        if (threads[t].state == RUNNING) {
            resume(t);
        }
    }

    kvr_load_sweep(load, kvr_load_owner(SERIALS, 1), load_alive, load_drop,
                   NULL, NULL);

    for (column = 0; column < COLUMNS; column++) {
        sum = kvr_load_get(load, column);

        util_check(sum.active == 0 && sum.pending == 0, "column %u: %u %llu",
                   column, sum.active, (unsigned long long) sum.pending);
        util_check(!kvr_load_used(load, column), "column %u is used", column);
    }

    for (n = 0; n < ROWS; n++) {
        util_check(load->row[n].owner == 0, "row %u is lost", n);
    }

    util_check(lock == 0 || lost, "the lock is held for ever");
}


TEST(test_steps_load)
{
    unsigned  i;

    for (i = 0; i < util_cases(15000); i++) {
        load_case("load steps", i, 5, 0);
    }
}


TEST(test_steps_load_kills)
{
    unsigned  i;

    for (i = 0; i < util_cases(15000); i++) {
        load_case("load steps, kills", i, 5, 4);
        load_case("load steps, some kills", i, 8, 20);
    }
}


/*
 * The registry: a process with the mutex is killed at each of its steps, and
 * the next process gets the mutex.
 */

#define REG_PEERS   3

static kvr_registry_t  *reg;
static char             reg_name[8][8];
static char             reg_upstream[4][8];


static uint32_t
reg_enter(uint32_t row, unsigned name, unsigned upstream)
{
    uint32_t  id;

    id = kvr_registry_peer(reg, load, row, ix, reg_name[name],
                           strlen(reg_name[name]), CAPACITY);

    if (id != KVR_REGISTRY_NONE) {
        (void) kvr_registry_member(reg, load, row, id, reg_upstream[upstream],
                                   strlen(reg_upstream[upstream]));
    }

    return id;
}


static void
reg_thread(unsigned self)
{
    rng.state = first_seed;

    (void) self;
    (void) reg_enter(1, 4 + util_below(&rng, 4), util_below(&rng, 4));
    (void) reg_enter(1, util_below(&rng, 8), util_below(&rng, 4));
}


/* a name has one slot, a slot one name, a member one peer and one upstream */
static void
reg_check(void)
{
    uint32_t       i, k, n;
    kvr_member_t  *s, *t;

    for (i = 0; i < 8; i++) {
        n = 0;

        for (k = 0; k < REG_PEERS; k++) {
            n += (reg->peer[k].len == strlen(reg_name[i])
                  && memcmp(reg->peer[k].name, reg_name[i],
                            reg->peer[k].len) == 0);
        }

        util_check(n <= 1, "%s has %u slots", reg_name[i], n);
    }

    for (k = 0; k < REG_PEERS; k++) {
        if (reg->peer[k].len == 0) {
            continue;
        }

        for (i = 0; i < 8; i++) {
            if (reg->peer[k].len == strlen(reg_name[i])
                && memcmp(reg->peer[k].name, reg_name[i], reg->peer[k].len)
                   == 0)
            {
                break;
            }
        }

        util_check(i < 8, "peer %u has an unknown name", k);
    }

    for (i = 0; i < reg->max_members; i++) {
        s = &reg->member[i];

        if (!s->used) {
            continue;
        }

        util_check(s->peer < REG_PEERS && s->upstream < KVR_REGISTRY_UPSTREAMS
                   && reg->upstream[s->upstream].len, "seat %u", i);

        for (k = 0; k < i; k++) {
            t = &reg->member[k];

            util_check(!t->used || t->peer != s->peer
                       || t->upstream != s->upstream, "members %u, %u", i, k);
        }
    }
}


TEST(test_steps_registry)
{
    size_t            size;
    uint32_t          matched[KVR_PEERS], id, found;
    uint64_t          block, names[KVR_REGISTRY_NAMES];
    unsigned          i, k, p, most;
    kvr_index_undo_t  undo;

    for (i = 0; i < 8; i++) {
        sprintf(reg_name[i], "p%u:80", i * 11);
    }

    for (i = 0; i < 4; i++) {
        sprintf(reg_upstream[i], "up%u", i);
    }

    size = kvr_load_size(ROWS, kvr_registry_columns(REG_PEERS));
    reg = util_registry(REG_PEERS);
    load = aligned_alloc(KVR_CACHE_LINE, size);

    turn_rate = 0;
    kill_rate = 0;
    most = 0;

    for (i = 0; i < util_cases(60); i++) {
        for (k = 1; k < 100000; k += 1 + k / 40) {

            util_seed(&rng, "registry steps", i);
            index_start(0);

            util_registry_clear(reg, REG_PEERS);
            memset((void *) load, 0, size);
            kvr_load_init(load, ROWS, kvr_registry_columns(REG_PEERS));

            (void) kvr_load_claim(load, kvr_load_owner(1, 1), 1);
            (void) kvr_load_claim(load, kvr_load_owner(2, 1), 1);

            /* three peers of row 0, which keeps the first one */

            for (p = 0; p < REG_PEERS; p++) {
                util_check(reg_enter(0, p, p) == p, "%u", p);

                block = (1ULL << 40) + p;
                kvr_index_insert(ix, &block, 1, 1, p, 0, &undo);
            }

            memset(names, 0, sizeof(names));
            names[0] = 1;
            names[1] = 1;
            kvr_load_rename(load, 0, names);

            first_seed = util_next(&rng);

            start(1, reg_thread);
            steps = 0;
            stop_at = k;
            resume(1);
            stop_at = 0;

            if (threads[1].state == DONE) {
                break;
            }

            reg_check();

            /* the next process sweeps it, and then has its turn */

            lives[1] = 1;
            lives[2] = 0;
            kvr_load_sweep(load, kvr_load_owner(1, 1), load_alive, NULL, NULL,
                           NULL);

            util_check(reg_enter(0, 0, 0) == 0, "the peer in use");

            for (p = 3; p < 5; p++) {
                id = reg_enter(0, p, 2);
                util_check(id == 1 || id == 2, "peer %u: %u", p, id);

                reg_check();

                found = kvr_registry_find_peer(reg, reg_name[p],
                                               strlen(reg_name[p]));
                util_check(found == id, "%u, not %u", found, id);

            /* the old peer's blocks do not count for the new one */

                block = (1ULL << 40) + id;
                (void) kvr_index_lookup(ix, &block, 1, kvr_set_of(id),
                                        matched);
                util_check(matched[id] == 0, "peer %u was not flushed", id);
            }

            util_check(reg_enter(0, 5, 2) == KVR_REGISTRY_NONE, "no room");

            block = 1ULL << 40;
            (void) kvr_index_lookup(ix, &block, 1, util_set(1), matched);
            util_check(matched[0] == 1, "the peer in use was flushed");
        }

        most = kvr_max(most, k);
    }

    util_check(most > 100, "%u steps", most);
}
