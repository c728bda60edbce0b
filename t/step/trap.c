
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Like step.c, in an nginx worker with t/die.c: the module is built with
 * -fsanitize=thread, and this library is preloaded.  A worker that finds the
 * number n in the file KVROUTE_DIE stops before its n-th store to shared
 * memory; the test records its connections and kills it.
 */


#define _GNU_SOURCE

#include "hook.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>


#define TRAP_ZONES  64


void die_after(uint64_t n);


static struct {
    uintptr_t   start;
    uintptr_t   end;
} trap_zone[TRAP_ZONES];

static unsigned  trap_zones;
static uint64_t  trap_left;


int
hook_counts(const volatile void *addr)
{
    unsigned   i;
    uintptr_t  p;

    if (trap_left == 0) {
        return 0;
    }

    p = (uintptr_t) addr;

    for (i = 0; i < trap_zones; i++) {
        if (p >= trap_zone[i].start && p < trap_zone[i].end) {
            return 1;
        }
    }

    return 0;
}


void
hook_store(const volatile void *addr)
{
    if (hook_counts(addr) && --trap_left == 0) {
        (void) raise(SIGSTOP);
    }
}


/* nginx's shared memory has no name */

void
die_after(uint64_t n)
{
    FILE                *f;
    char                 line[512];
    unsigned long long   start, end;

    f = fopen("/proc/self/maps", "r");

    if (f == NULL) {
        return;
    }

    trap_zones = 0;

    while (trap_zones < TRAP_ZONES && fgets(line, sizeof(line), f)) {

        if (strstr(line, " rw-s ") && strstr(line, "/dev/zero")
            && sscanf(line, "%llx-%llx", &start, &end) == 2)
        {
            trap_zone[trap_zones].start = (uintptr_t) start;
            trap_zone[trap_zones++].end = (uintptr_t) end;
        }
    }

    fclose(f);

    trap_left = n;
}
