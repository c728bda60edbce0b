
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _MICRO_RUN_H_INCLUDED_
#define _MICRO_RUN_H_INCLUDED_


/*
 * Single functions of the core, measured: each file of cases registers its
 * own, the runner takes turns between them and reports medians.
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

/* makes n calls; what it returns is thrown away, but not by the compiler */
typedef uint64_t (*micro_run_pt)(micro_case_t *c, unsigned n);


struct micro_case_s {
    char            name[48];
    const char     *per;         /* what ns and instructions are given by */
    double          units;       /* of those in a call */
    micro_run_pt    run;
    void           *data;
    size_t          size;        /* for the case's own use */
    uint64_t        state;
    const char     *usual;       /* a case that it is compared with, or NULL */

    unsigned        calls;       /* of a turn */
    double          ns[32];      /* by turn, a call */
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

/* memory in whole pages, zeroed; exits if there is none; shared as a zone is */
void *micro_alloc(size_t size);
void *micro_alloc_shared(size_t size);

/* leaves the cases whose names have this in them */
void micro_run_only(const char *part);

/* turns of all cases; adds what they took, and of what memory it was */
void micro_run_all(cJSON *results);

/* under callgrind: a few calls of each case, dumped by its name, or of one */
void micro_run_count(const char *only);


#endif /* _MICRO_RUN_H_INCLUDED_ */
