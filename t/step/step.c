
/*
 * Copyright (C) kvroute contributors
 */


/*
 * A kill at every step.  A process performs a dozen operations of victim.c,
 * and is killed before its n-th store to shared memory, for each n.  After
 * each kill another process continues, and world.c checks the invariants.
 * Then the next dozen operations follow.
 *
 *     step FILE [SECONDS]         writes the number of kills, as JSON
 *
 * A kill is a longjmp() that leaves the shared memory unchanged.  As core/ has
 * no variables, this equals a dead process, and is a thousand times cheaper.
 * KVR_TEST_SEED chooses other dozens.
 */


#include "world.h"
#include "hook.h"

#include <setjmp.h>
#include <time.h>


#define OPS      12
#define KINDS    16


static jmp_buf   dead;
static uint64_t  stores;
static uint64_t  last;               /* the store that is not done; 0: none */
static int       armed;


int
hook_counts(const volatile void *addr)
{
    return armed && (size_t) ((const volatile uint8_t *) addr - world_memory)
                    < world_size;
}


void
hook_store(const volatile void *addr)
{
    if (hook_counts(addr) && ++stores == last) {
        armed = 0;
        longjmp(dead, 1);
    }
}


static double
seconds(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return (double) ts.tv_sec + (double) ts.tv_nsec / 1e9;
}


int
main(int argc, char **argv)
{
    FILE                *f;
    double               start, limit;
    uint8_t             *before;
    unsigned             i, nops;
    uint64_t             n, script, kills, all, by[KINDS] = { 0 };
    util_rng_t           rng, check;
    world_begun_t        clean;
    kvr_zone_t           zone;
    unsigned             op[OPS];
    static volatile unsigned  at;

    if (argc < 2) {
        fprintf(stderr, "usage: step FILE [SECONDS]\n");
        return 2;
    }

    limit = argc > 2 ? atof(argv[2]) : 10;
    start = seconds();
    kills = 0;
    all = 0;
    before = NULL;

    for (nops = 0; victim_op(nops); nops++) { /* void */ }

    for (script = 0; script == 0 || seconds() - start < limit; script++) {

        util_seed(&rng, "step", script);
        world_init(&rng, script % 3 == 2);

        if (before == NULL) {
            before = malloc(world_size);
        }

        memcpy(before, world_memory, world_size);
        clean = begun;
        zone = victim;

        for (i = 0; i < OPS; i++) {
            op[i] = util_below(&rng, nops);
        }

        for (n = 1; ; n++) {

            memcpy(world_memory, before, world_size);
            begun = clean;
            victim = zone;
            victim_begin();
            util_seed(&rng, "step of", script);
            util_seed(&check, "check", n);

            stores = 0;
            last = n;

            util_note("script %llu, killed at store %llu",
                      (unsigned long long) script, (unsigned long long) n);

            if (setjmp(dead) == 0) {
                for (at = 0; at < OPS; at++) {
                    armed = 1;
                    victim_do(op[at], &rng);
                    armed = 0;
                }

                all += stores;
            }

            util_note("script %llu, killed at store %llu, in %s",
                      (unsigned long long) script, (unsigned long long) n,
                      at < OPS ? victim_op(op[at]) : "nothing");

            world_check(&check);

            if (at == OPS) {
                break;
            }

            by[op[at]]++;
            kills++;
        }
    }

    f = fopen(argv[1], "w");

    if (f == NULL) {
        perror(argv[1]);
        return 1;
    }

    fprintf(f, "{\n  \"scripts\": %llu,\n  \"stores\": %llu,\n"
            "  \"kills\": %llu,\n  \"kills_in\": {",
            (unsigned long long) script, (unsigned long long) all,
            (unsigned long long) kills);

    for (i = 0; i < nops; i++) {
        fprintf(f, "%s\n    \"%s\": %llu", i ? "," : "", victim_op(i),
                (unsigned long long) by[i]);
    }

    fprintf(f, "\n  },\n  \"wrong\": 0,\n  \"seconds\": %.1f\n}\n",
            seconds() - start);
    fclose(f);

    printf("step: %llu kills at %llu stores, in %.1f s\n",
           (unsigned long long) kills, (unsigned long long) all,
           seconds() - start);

    return 0;
}
