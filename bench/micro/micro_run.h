
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _MICRO_RUN_H_INCLUDED_
#define _MICRO_RUN_H_INCLUDED_


/*
 * Measures single functions of the core.  Each file of cases registers its own
 * cases.  The runner runs all cases in turn, several times, and reports medians.
 */


#include "core/prompt/kvr_prompt.h"
#include "core/index/kvr_index.h"
#include "core/state/kvr_load.h"
#include "core/policy/kvr_policy.h"
#include "bench_body.h"

#include <stdio.h>
#include <stdlib.h>
#include <cjson/cJSON.h>


typedef struct micro_case_s  micro_case_t;

/* makes n calls; returns a value of them, so that the compiler keeps the calls */
typedef uint64_t (*micro_run_pt)(micro_case_t *c, unsigned n);


struct micro_case_s {
    char            name[48];
    const char     *per;         /* unit: results are ns and instructions per */
    double          units;       /* units in a call */
    micro_run_pt    run;
    void           *data;
    size_t          size;        /* for the case's own use */
    uint64_t        state;
    const char     *usual;       /* case to compare with, or NULL */

    unsigned        calls;       /* calls in a turn */
    double          ns[32];      /* ns per call, by turn */
    double          instructions;
};


extern uint8_t  micro_secret[KVR_SECRET_LEN];
extern int      micro_full;


micro_case_t *micro_add(micro_run_pt run, void *data, const char *per,
    double units, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* CPU time of this process, in nanoseconds */
double micro_now(void);

double micro_median(double *v, unsigned n);

/* both return whole pages of zeros or exit; _shared: in shared memory */
void *micro_alloc(size_t size);
void *micro_alloc_shared(size_t size);

/* removes the cases whose names do not contain part */
void micro_run_only(const char *part);

/* runs the turns of all cases; adds their results, and the kind of memory */
void micro_run_all(cJSON *results);

/* under callgrind: makes a few calls of each case, or of the one named */
void micro_run_count(const char *only);


#endif /* _MICRO_RUN_H_INCLUDED_ */
