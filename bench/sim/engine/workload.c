#include <stdio.h>

#include "bench/sim/engine/workload.h"


#define KVS_TRIALS  2000


static kvs_session_t *kvs_workload_draw(kvs_workload_t *w, double *time);
static kvs_session_t *kvs_workload_hot(kvs_workload_t *w);
static kvs_session_t *kvs_workload_agent(kvs_workload_t *w);
static kvs_session_t *kvs_workload_mixed(kvs_workload_t *w);
static kvs_session_t *kvs_workload_rag(kvs_workload_t *w);
static kvs_session_t *kvs_workload_burst(kvs_workload_t *w);
static kvs_session_t *kvs_workload_asked(kvs_workload_t *w);
static void kvs_workload_trials(kvs_workload_t *w);
static void kvs_session_due(kvs_session_t *s, const kvs_sim_t *sim);


/* kinds of content have different seeds */
enum {
    KVS_SEED_PREFIX = 1,
    KVS_SEED_QUESTION,
    KVS_SEED_REPLY,
    KVS_SEED_GROUP,
    KVS_SEED_DOCUMENT
};


static uint64_t
kvs_seed(unsigned kind, uint64_t n)
{
    return kvr_mix(n * 8 + kind, 0xa0761d6478bd642fULL);
}


static uint32_t
kvs_draw(kvs_rng_t *rng, const kvs_spread_t *s, uint32_t least, uint32_t most)
{
    return (uint32_t) kvs_rng_lognormal(rng, s->mean, s->sigma, least, most);
}


/* "conversation" is conversation_trace.jsonl, or with the project's name */
static kvs_trace_t *
kvs_workload_trace(const char *name, const char *traces)
{
    char          path[4096];
    size_t        i;
    kvs_trace_t  *t;

    static const char  *const forms[] = {
        "%s/%s_trace.jsonl", "%s/mooncake_%s.jsonl"
    };

    if (traces == NULL) {
        return NULL;
    }

    for (i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        snprintf(path, sizeof(path), forms[i], traces, name);

        t = kvs_trace_load(path);

        if (t) {
            return t;
        }
    }

    return NULL;
}


kvs_workload_t *
kvs_workload_create(const kvs_shape_t *shape, const char *traces)
{
    kvs_workload_t  *w;

    w = kvs_alloc(sizeof(kvs_workload_t));
    w->shape = *shape;

    if (shape->shape == KVS_TRACE) {

        w->trace = kvs_workload_trace(shape->trace, traces);

        if (w->trace == NULL) {
            free(w);
            return NULL;
        }
    }

    kvs_zipf_init(&w->zipf, kvr_max(shape->prefixes, 1), shape->zipf);

    return w;
}


void
kvs_workload_destroy(kvs_workload_t *w)
{
    if (w->trace) {
        kvs_trace_destroy(w->trace);
    }

    kvs_zipf_done(&w->zipf);
    free(w);
}


void
kvs_workload_start(kvs_workload_t *w, uint64_t seed, uint32_t limit)
{
    w->limit = limit;
    w->clock = 0;
    w->phase = 0;
    w->serial = 0;
    w->siblings = 0;
    memset(w->users, 0, sizeof(w->users));

    /* equal for all seeds, so that a rate means the same */

    kvs_rng_seed(&w->rng, 1, 0x747269616c730c33ULL);
    kvs_workload_trials(w);

    kvs_rng_seed(&w->rng, seed, 0x776f726b6c0d44ULL);

    w->siblings = 0;
    memset(w->users, 0, sizeof(w->users));
    w->serial = kvs_rng_next(&w->rng);

    if (w->trace) {
        kvs_trace_start(w->trace, &w->rng);
        w->position = kvs_rng_below(&w->rng,
                                    (uint32_t) kvs_trace_size(w->trace));
        w->count = 0;
        w->clock = NAN;
    }
}


static void
kvs_workload_trials(kvs_workload_t *w)
{
    double          t;
    uint32_t        i, k;
    uint64_t        steps, prompt, output;
    kvs_session_t  *s;

    steps = 0;
    prompt = 0;
    output = 0;

    if (w->trace) {
        kvs_trace_start(w->trace, &w->rng);
    }

    for (i = 0; i < KVS_TRIALS; i++) {

        w->position = i;
        s = kvs_workload_draw(w, &t);

        for (k = 0; k < s->nsteps; k++) {
            prompt += s->steps[k].prompt;
            output += s->steps[k].output;
        }

        steps += s->nsteps;
        free(s);
    }

    w->steps = (double) steps / KVS_TRIALS;
    w->prompt = (double) prompt / (double) steps;
    w->output = (double) output / (double) steps;
}


kvs_session_t *
kvs_workload_next(kvs_workload_t *w, const kvs_sim_t *sim)
{
    double          t, rate;
    kvs_session_t  *s;

    rate = sim->rate / w->steps;

    if (w->trace) {

        s = kvs_workload_draw(w, &t);
        w->position++;

        if (isnan(w->clock)) {
            w->clock = t;
        }

        s->arrival = (t - w->clock) / sim->rate;

    } else if (w->shape.shape == KVS_BURST) {

        if (w->siblings == 0) {
            w->clock += kvs_rng_exp(&w->rng, fmax(w->shape.parts / rate
                                                  - w->shape.pause.mean, 0));
            w->start = w->clock;
        }

        s = kvs_workload_draw(w, &t);

        /*
         * at even intervals, so that they come in order; the first one earlier
         */

        s->arrival = w->start
                     + w->shape.spread * (w->shape.parts - 1 - w->siblings)
                       / w->shape.parts
                     + (w->siblings + 1 < w->shape.parts
                        ? w->shape.pause.mean : 0);

        /* bursts can overlap, but arrivals must be in order */

        if (s->arrival < w->clock) {
            s->arrival = w->clock;
        }

        w->clock = s->arrival;

    } else {
        w->clock += rate > 0 ? kvs_rng_exp(&w->rng, 1 / rate) : 0;
        w->phase = w->clock / sim->length;
        s = kvs_workload_draw(w, &t);
        s->arrival = w->clock;
    }

    kvs_session_due(s, sim);

    return s;
}


/* returns when its steps would be due if the replicas were idle */
static void
kvs_session_due(kvs_session_t *s, const kvs_sim_t *sim)
{
    double       t;
    uint32_t     i, known;
    kvs_step_t  *step;

    t = s->arrival;
    known = 0;

    for (i = 0; i < s->nsteps; i++) {
        step = &s->steps[i];

        t += step->pause;
        step->due = t;
        t += kvs_session_nominal(&sim->hw,
                                 step->prompt - kvr_min(known, step->prompt),
                                 step->output);
        known = step->prompt + step->output;
    }
}


static kvs_session_t *
kvs_workload_draw(kvs_workload_t *w, double *time)
{
    w->serial++;
    *time = 0;

    switch (w->shape.shape) {

    case KVS_HOT:
        return kvs_workload_hot(w);

    case KVS_AGENTS:
        return kvs_workload_agent(w);

    case KVS_MIXED:
        return kvs_workload_mixed(w);

    case KVS_RAG:
        return kvs_workload_rag(w);

    case KVS_BURST:
        return kvs_workload_burst(w);

    case KVS_ASKED:
        return kvs_workload_asked(w);

    case KVS_TRACE:
        break;
    }

    return kvs_trace_session(w->trace, w->position, w->limit, time);
}


/* makes a step with parts of given lengths; text is filled in order */
static kvs_session_t *
kvs_session_single(kvs_workload_t *w, kvs_text_t *text, uint32_t prompt,
    uint32_t output)
{
    kvs_session_t  *s;

    s = kvs_session_create(1, prompt + output);

    s->steps[0].prompt = prompt;
    s->steps[0].output = output;
    s->key_session = kvs_seed(KVS_SEED_QUESTION, w->serial);
    s->key_text = s->key_session;

    kvs_text_init(text, s->chain, s->units);

    return s;
}


/* the length of a shared prefix depends on its number */
static uint32_t
kvs_workload_prefix(const kvs_workload_t *w, uint32_t n)
{
    uint32_t  range;

    range = w->shape.prefix_max - w->shape.prefix_min + 1;

    return w->shape.prefix_min
           + (uint32_t) kvr_reduce(kvs_seed(KVS_SEED_PREFIX, n), range);
}


static kvs_session_t *
kvs_workload_hot(kvs_workload_t *w)
{
    uint32_t        n, prefix, question, output;
    kvs_text_t      text;
    kvs_session_t  *s;

    n = 0;
    prefix = 0;

    if (w->shape.prefixes) {
        n = kvs_zipf_draw(&w->zipf, &w->rng);

        /* the surge has a prefix of its own */

        if (w->phase >= w->shape.from && w->phase < w->shape.to
            && kvs_rng_uniform(&w->rng) < w->shape.share)
        {
            n = w->shape.prefixes;
        }

        prefix = kvs_workload_prefix(w, n);
    }

    question = kvs_draw(&w->rng, &w->shape.question, 4, w->limit / 2);
    output = kvs_draw(&w->rng, &w->shape.output, 1, w->limit / 4);

    s = kvs_session_single(w, &text, prefix + question, output);

    if (prefix) {
        kvs_text_append(&text, kvs_seed(KVS_SEED_PREFIX, n), 0, prefix);
        s->key_text = kvs_seed(KVS_SEED_PREFIX, n);
    }

    kvs_text_append(&text, kvs_seed(KVS_SEED_QUESTION, w->serial), 0, question);
    kvs_text_append(&text, kvs_seed(KVS_SEED_REPLY, w->serial), 0, output);
    s->units = text.units;

    return s;
}


static kvs_session_t *
kvs_workload_agent(kvs_workload_t *w)
{
    uint32_t        i, n, kind, prefix, question, total, steps;
    kvs_step_t     *step, script[1024];
    kvs_text_t      text;
    kvs_session_t  *s;

    kind = kvs_zipf_draw(&w->zipf, &w->rng);
    prefix = w->shape.prefixes ? kvs_workload_prefix(w, kind) : 0;

    steps = kvs_draw(&w->rng, &w->shape.steps, 1, 1024);
    total = prefix;

    for (n = 0; n < steps; n++) {
        step = &script[n];

        question = kvs_draw(&w->rng, &w->shape.question, 4, w->limit / 8);

        if (n == 0 && w->shape.task.mean > 0) {
            question += kvs_draw(&w->rng, &w->shape.task, 4, w->limit / 2);
        }

        step->prompt = total + question;
        step->output = kvs_draw(&w->rng, &w->shape.output, 1, w->limit / 8);
        step->pause = n ? kvs_rng_lognormal(&w->rng, w->shape.pause.mean,
                                            w->shape.pause.sigma, 0.01,
                                            20 * w->shape.pause.mean)
                        : 0;

        if (n && step->prompt + step->output > w->limit) {
            break;
        }

        total = step->prompt + step->output;
    }

    s = kvs_session_create(n, total);

    memcpy(s->steps, script, n * sizeof(kvs_step_t));

    s->key_session = kvs_seed(KVS_SEED_QUESTION, w->serial);
    s->key_text = s->key_session;

    kvs_text_init(&text, s->chain, s->units);
    kvs_text_append(&text, kvs_seed(KVS_SEED_PREFIX, kind), 0, prefix);

    total = prefix;

    for (i = 0; i < n; i++) {
        step = &s->steps[i];

        kvs_text_append(&text, kvs_seed(KVS_SEED_QUESTION, w->serial), total,
                        step->prompt - total);
        kvs_text_append(&text, kvs_seed(KVS_SEED_REPLY, w->serial),
                        step->prompt, step->output);

        total = step->prompt + step->output;
    }

    s->units = text.units;

    return s;
}


static kvs_session_t *
kvs_workload_mixed(kvs_workload_t *w)
{
    uint32_t        document, question, output;
    uint64_t        n;
    kvs_rng_t       rng;
    kvs_text_t      text;
    kvs_session_t  *s;

    if (kvs_rng_uniform(&w->rng) >= w->shape.share) {
        return kvs_workload_hot(w);
    }

    question = 0;

    if (w->shape.parts) {
        n = kvs_rng_below(&w->rng, w->shape.parts);
        question = kvs_draw(&w->rng, &w->shape.question, 4, w->limit / 4);

        kvs_rng_seed(&rng, n, KVS_SEED_DOCUMENT);
        document = kvs_draw(&rng, &w->shape.document, 64, w->limit / 2);

    } else {
        n = w->serial;
        document = kvs_draw(&w->rng, &w->shape.document, 64, w->limit / 2);
    }

    output = kvs_draw(&w->rng, &w->shape.output, 1, w->limit / 4);

    s = kvs_session_single(w, &text, document + question, output);

    kvs_text_append(&text, kvs_seed(KVS_SEED_DOCUMENT, n), 0, document);
    kvs_text_append(&text, kvs_seed(KVS_SEED_QUESTION, w->serial), 0, question);
    kvs_text_append(&text, kvs_seed(KVS_SEED_REPLY, w->serial), 0, output);
    s->units = text.units;

    return s;
}


/* instructions, some documents in any order, a question */
static kvs_session_t *
kvs_workload_rag(kvs_workload_t *w)
{
    uint32_t        i, k, n, length[16], doc[16], prompt, question, output;
    kvs_text_t      text;
    kvs_session_t  *s;

    prompt = 2 * KVS_UNIT_TOKENS;
    n = kvr_min(w->shape.parts, 16);

    for (i = 0; i < n; i++) {

        do {
            doc[i] = kvs_zipf_draw(&w->zipf, &w->rng);

            for (k = 0; k < i && doc[k] != doc[i]; k++) {
                /* void */
            }

        } while (k < i);

        /*
         * whole units: otherwise no engine could reuse them in another place
         */

        length[i] = kvs_workload_prefix(w, doc[i])
                    / KVS_UNIT_TOKENS * KVS_UNIT_TOKENS;
        prompt += length[i];
    }

    question = kvs_draw(&w->rng, &w->shape.question, 4, w->limit / 8);
    output = kvs_draw(&w->rng, &w->shape.output, 1, w->limit / 8);
    prompt += question;

    s = kvs_session_single(w, &text, prompt, output);

    s->key_text = kvs_seed(KVS_SEED_DOCUMENT, doc[0]);

    kvs_text_append(&text, kvs_seed(KVS_SEED_PREFIX, 0), 0,
                    2 * KVS_UNIT_TOKENS);

    for (i = 0; i < n; i++) {
        kvs_text_append(&text, kvs_seed(KVS_SEED_DOCUMENT, doc[i]), 0,
                        length[i]);
    }

    kvs_text_append(&text, kvs_seed(KVS_SEED_QUESTION, w->serial), 0, question);
    kvs_text_append(&text, kvs_seed(KVS_SEED_REPLY, w->serial), 0, output);
    s->units = text.units;

    return s;
}


static kvs_session_t *
kvs_workload_burst(kvs_workload_t *w)
{
    uint32_t        question, output;
    kvs_text_t      text;
    kvs_session_t  *s;

    if (w->siblings == 0) {
        w->siblings = w->shape.parts;
        w->group = w->serial;
        w->group_prefix = kvr_min(kvs_workload_prefix(w, (uint32_t) w->group),
                                  w->limit / 2);
    }

    w->siblings--;

    question = kvs_draw(&w->rng, &w->shape.question, 4, w->limit / 8);
    output = kvs_draw(&w->rng, &w->shape.output, 1, w->limit / 8);

    s = kvs_session_single(w, &text, w->group_prefix + question, output);

    s->key_session = kvs_seed(KVS_SEED_GROUP, w->group);
    s->key_text = s->key_session;

    kvs_text_append(&text, kvs_seed(KVS_SEED_GROUP, w->group), 0,
                    w->group_prefix);
    kvs_text_append(&text, kvs_seed(KVS_SEED_QUESTION, w->serial), 0, question);
    kvs_text_append(&text, kvs_seed(KVS_SEED_REPLY, w->serial), 0, output);
    s->units = text.units;

    return s;
}


/* returns one of the current documents, until all its users have asked */
static kvs_session_t *
kvs_workload_asked(kvs_workload_t *w)
{
    uint32_t        i, length, question, output;
    kvs_text_t      text;
    kvs_session_t  *s;

    i = kvs_rng_below(&w->rng, kvr_min(w->shape.prefixes, KVS_POOL));

    if (w->users[i] == 0) {
        w->users[i] = w->shape.parts;
        w->pool[i] = w->serial;
    }

    w->users[i]--;

    length = kvr_min(kvs_workload_prefix(w, (uint32_t) w->pool[i]),
                     w->limit / 2);
    question = kvs_draw(&w->rng, &w->shape.question, 4, w->limit / 8);
    output = kvs_draw(&w->rng, &w->shape.output, 1, w->limit / 8);

    s = kvs_session_single(w, &text, length + question, output);

    s->key_text = kvs_seed(KVS_SEED_GROUP, w->pool[i]);

    kvs_text_append(&text, kvs_seed(KVS_SEED_GROUP, w->pool[i]), 0, length);
    kvs_text_append(&text, kvs_seed(KVS_SEED_QUESTION, w->serial), 0, question);
    kvs_text_append(&text, kvs_seed(KVS_SEED_REPLY, w->serial), 0, output);
    s->units = text.units;

    return s;
}
