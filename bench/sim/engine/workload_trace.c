/*
 * Mooncake's traces: a line of JSON per request, with the ids of its blocks of
 * 512 tokens.  These ids are chained already, so a block's units get their
 * names from its id alone.
 *
 * The traces do not contain replies.  But a later request that continues an
 * earlier prompt contains the reply to it.  It also has the true id of the
 * block in which the earlier prompt ended: there that block was not full, and
 * so had another id.
 */

#include <stdio.h>

#include <cjson/cJSON.h>

#include "bench/sim/engine/workload.h"


#define KVS_TRACE_BLOCK    512
#define KVS_TRACE_UNITS    (KVS_TRACE_BLOCK / KVS_UNIT_TOKENS)
#define KVS_TRACE_QUANTUM  3.0        /* s */


typedef struct {
    double     time;
    uint32_t   input;
    uint32_t   output;
    uint32_t   nids;
    uint32_t   full;       /* number of full blocks */
    uint32_t  *ids;
    size_t     next;       /* request that continues this one, or 0 */
} kvs_line_t;


typedef struct {
    double     time;
    size_t     line;
} kvs_order_t;


struct kvs_trace_s {
    kvs_line_t   *line;
    kvs_order_t  *order;
    size_t        n;
    double        span;
};


static void
kvs_trace_link(kvs_trace_t *t)
{
    size_t       i, *later;
    uint32_t     k, most;
    kvs_line_t  *l, *next;

    most = 0;

    for (i = 0; i < t->n; i++) {
        for (k = 0; k < t->line[i].nids; k++) {
            most = kvr_max(most, t->line[i].ids[k]);
        }
    }

    /* the next later request that has a block */

    later = kvs_alloc((most + 1) * sizeof(size_t));

    for (i = t->n; i-- > 0; /* void */ ) {
        l = &t->line[i];

        /* all requests have block 0 */

        if (l->full >= 2) {
            l->next = later[l->ids[l->full - 1]];
            next = &t->line[l->next];

            if (l->next
                && (next->nids <= l->full
                    || next->ids[l->full - 1] != l->ids[l->full - 1]
                    || next->input < l->input + l->output))
            {
                l->next = 0;
            }
        }

        for (k = 0; k < l->full; k++) {
            later[l->ids[k]] = i;
        }
    }

    free(later);
}


static int
kvs_trace_line(kvs_line_t *l, const char *text)
{
    int     i, n;
    cJSON  *json, *ids, *time, *input, *output, *id;

    json = cJSON_Parse(text);
    ids = cJSON_GetObjectItem(json, "hash_ids");
    time = cJSON_GetObjectItem(json, "timestamp");
    input = cJSON_GetObjectItem(json, "input_length");
    output = cJSON_GetObjectItem(json, "output_length");

    if (!cJSON_IsArray(ids) || !cJSON_IsNumber(time)
        || !cJSON_IsNumber(input) || !cJSON_IsNumber(output))
    {
        cJSON_Delete(json);
        return KVR_ERROR;
    }

    n = cJSON_GetArraySize(ids);

    l->time = time->valuedouble / 1000;
    l->input = (uint32_t) kvr_max(input->valuedouble, 1);
    l->output = (uint32_t) kvr_max(output->valuedouble, 1);
    l->nids = (uint32_t) n;
    l->full = kvr_min(l->input / KVS_TRACE_BLOCK, l->nids);
    l->next = 0;
    l->ids = kvs_alloc((size_t) n * sizeof(uint32_t));

    i = 0;

    cJSON_ArrayForEach(id, ids) {
        l->ids[i++] = (uint32_t) id->valuedouble;
    }

    cJSON_Delete(json);

    return KVR_OK;
}


kvs_trace_t *
kvs_trace_load(const char *path)
{
    FILE         *f;
    char         *text;
    size_t        size, cap;
    kvs_trace_t  *t;

    f = fopen(path, "r");

    if (f == NULL) {
        return NULL;
    }

    t = kvs_alloc(sizeof(kvs_trace_t));
    text = NULL;
    size = 0;
    cap = 0;

    while (getline(&text, &size, f) > 0) {

        if (t->n == cap) {
            cap = cap ? cap * 2 : 4096;
            t->line = realloc(t->line, cap * sizeof(kvs_line_t));

            if (t->line == NULL) {
                abort();
            }
        }

        if (kvs_trace_line(&t->line[t->n], text) == KVR_OK) {
            t->n++;
        }
    }

    free(text);
    fclose(f);

    if (t->n < 2) {
        kvs_trace_destroy(t);
        return NULL;
    }

    t->span = t->line[t->n - 1].time - t->line[0].time + KVS_TRACE_QUANTUM;
    t->order = kvs_alloc(t->n * sizeof(kvs_order_t));

    kvs_trace_link(t);

    return t;
}


void
kvs_trace_destroy(kvs_trace_t *t)
{
    size_t  i;

    for (i = 0; i < t->n; i++) {
        free(t->line[i].ids);
    }

    free(t->line);
    free(t->order);
    free(t);
}


size_t
kvs_trace_size(const kvs_trace_t *t)
{
    return t->n;
}


static int
kvs_trace_compare(const void *a, const void *b)
{
    const kvs_order_t  *x = a, *y = b;

    if (x->time != y->time) {
        return x->time < y->time ? -1 : 1;
    }

    return (x->line > y->line) - (x->line < y->line);
}


void
kvs_trace_start(kvs_trace_t *t, kvs_rng_t *rng)
{
    size_t  i;

    for (i = 0; i < t->n; i++) {
        t->order[i].line = i;
        t->order[i].time = t->line[i].time - t->line[0].time
                           + KVS_TRACE_QUANTUM * kvs_rng_uniform(rng);
    }

    qsort(t->order, t->n, sizeof(kvs_order_t), kvs_trace_compare);
}


/* returns the id of a request's block, prompt or reply; 0: unknown */
static uint64_t
kvs_trace_id(const kvs_trace_t *t, size_t i, uint32_t b)
{
    const kvs_line_t  *l;

    for ( ;; ) {
        l = &t->line[i];

        if (b < l->full || (b < l->nids && l->next == 0)) {
            return l->ids[b] + 1;
        }

        if (l->next == 0) {
            return 0;
        }

        i = l->next;
    }
}


kvs_session_t *
kvs_trace_session(kvs_trace_t *t, size_t i, uint32_t limit, double *time)
{
    size_t             line, round;
    uint32_t           u, b, block, prompt, output;
    uint64_t           id;
    kvs_session_t     *s;
    const kvs_line_t  *l;

    round = i / t->n;
    i %= t->n;

    line = t->order[i].line;
    l = &t->line[line];

    *time = (t->order[i].time + (double) round * t->span)
            * (double) t->n / t->span;

    output = kvr_min(l->output, limit / 4);
    prompt = kvr_min(l->input, limit - output);

    s = kvs_session_create(1, prompt + output);

    s->steps[0].prompt = prompt;
    s->steps[0].output = output;

    s->units = (prompt + output) / KVS_UNIT_TOKENS;

    id = 0;
    block = UINT32_MAX;

    for (u = 0; u < s->units; u++) {

        b = u / KVS_TRACE_UNITS;

        if (b != block) {
            block = b;
            id = kvs_trace_id(t, line, b);

            if (id == 0) {
                id = kvr_mix(line, b) | 1ULL << 63;
            }

            /* a trace that is too short is repeated with other texts */

            if (round && id != 1) {
                id = kvr_mix(id, round);
            }
        }

        s->chain[u] = kvr_mix(id, u % KVS_TRACE_UNITS + 1);
    }

    /* the first block that not all share identifies it */

    s->key_session = kvr_mix(kvs_trace_id(t, line, l->nids > 1), 1 + round);
    s->key_text = s->key_session;

    return s;
}
