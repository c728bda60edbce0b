/*
 * Results of earlier runs, a file for each point and seed.
 */

#include <stdio.h>

#include "bench/sim/contest/cache.h"


#define KVS_CACHE_NAME  32


typedef struct {
    char           name[KVS_CACHE_NAME];
    kvs_result_t   result;
} kvs_cache_record_t;


static FILE *
kvs_cache_open(const kvs_contest_t *c, uint32_t point, uint32_t seed,
    const char *mode)
{
    char                path[4096];
    const kvs_point_t  *p;

    if (c->options->cache == NULL) {
        return NULL;
    }

    p = &c->point[point];

    snprintf(path, sizeof(path), "%s/%s-%.4f-%u-%ju", c->options->cache,
             p->scenario->name, p->rate, p->requests,
             (uintmax_t) (c->options->seed + seed));

    return fopen(path, mode);
}


void
kvs_cache_load(const kvs_contest_t *c, uint32_t point, uint32_t seed)
{
    FILE                *f;
    uint32_t             p;
    kvs_cache_record_t   rec;

    f = kvs_cache_open(c, point, seed, "r");

    if (f == NULL) {
        return;
    }

    while (fread(&rec, sizeof(rec), 1, f) == 1) {
        for (p = 0; p < c->npolicies; p++) {
            if (strncmp(c->policy[p]->name, rec.name, KVS_CACHE_NAME) == 0) {
                *kvs_contest_result(c, point, p, seed) = rec.result;
            }
        }
    }

    fclose(f);
}


void
kvs_cache_save(const kvs_contest_t *c, uint32_t point, uint32_t policy,
    uint32_t seed)
{
    FILE                *f;
    kvs_cache_record_t   rec;

    f = kvs_cache_open(c, point, seed, "a");

    if (f == NULL) {
        return;
    }

    memset(&rec, 0, sizeof(rec));
    strncpy(rec.name, c->policy[policy]->name, KVS_CACHE_NAME - 1);
    rec.result = *kvs_contest_result(c, point, policy, seed);

    fwrite(&rec, sizeof(rec), 1, f);
    fclose(f);
}
