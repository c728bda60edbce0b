#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/engine_http.h"
#include "reply/engine_transfer.h"


#define KVE_TRANSFERS  65536


/* a descriptor that was given, in the place that its number is of */

struct kve_transfer_s {
    uint64_t            number;             /* 0: none */
    uint64_t            prompt;
    double              ends;               /* real */
    int                 used;
};


static uint64_t
kve_transfer_prompt(kve_job_t *job)
{
    return XXH3_64bits_withSeed(job->parsed.prompts[0].data,
                                job->parsed.prompts[0].len, job->parsed.root);
}


static const char *
kve_transfer_prefill(kve_job_t *job)
{
    kve_engine_t    *e;
    kve_parsed_t    *p;
    kve_transfer_t  *t;

    e = job->server->engine;
    p = &job->parsed;

    if (p->stream || p->max_tokens != 1 || p->n != 1 || p->nprompts != 1
        || p->min_tokens > 1 || kve_json_get(p->body, "stream_options"))
    {
        return "a prefill is one token, in one piece";
    }

    if (e->transfers == NULL) {
        e->transfers = calloc(KVE_TRANSFERS, sizeof(kve_transfer_t));
        if (e->transfers == NULL) {
            abort();
        }
    }

    job->transfer = ++e->ntransfers;

    t = &e->transfers[job->transfer % KVE_TRANSFERS];
    t->number = job->transfer;
    t->prompt = kve_transfer_prompt(job);
    t->used = 0;
    t->ends = 0;

    return NULL;
}


const char *
kve_transfer_start(kve_job_t *job)
{
    int              well;
    double           number;
    const char      *id;
    const cJSON     *params;
    kve_server_t    *s;
    kve_engine_t    *e;
    kve_transfer_t  *t;

    s = job->server;
    e = s->engine;

    params = kve_json_get(job->parsed.body, "kv_transfer_params");

    if (!cJSON_IsObject(params)) {
        return NULL;
    }

    if (kve_json_true(params, "do_remote_decode", 0)) {
        s->counters.prefills++;
        return kve_transfer_prefill(job);
    }

    if (!kve_json_true(params, "do_remote_prefill", 0)) {
        return NULL;
    }

    s->counters.pulls++;

    id = kve_json_str(params, "remote_request_id");
    number = id ? strtod(id, NULL) : 0;

    t = e->transfers ? &e->transfers[(uint64_t) number % KVE_TRANSFERS] : NULL;

    well = t && number > 0 && t->number == (uint64_t) number && !t->used
           && kve_now() < t->ends && t->prompt == kve_transfer_prompt(job)
           && cJSON_IsArray(kve_json_get(params, "remote_block_ids"))
           && kve_json_str(params, "remote_engine_id")
           && kve_json_str(params, "remote_host")
           && cJSON_IsNumber(kve_json_get(params, "remote_port"));

    if (well) {
        t->used = 1;

    } else {
        job->corrupt = 1;
        s->counters.corrupt++;
    }

    return NULL;
}


void
kve_transfer_spoil(kve_sub_t *sub)
{
    int          i;
    size_t       n;
    kve_part_t  *part;

    for (i = 0; sub->job->corrupt && i < sub->reply.nparts; i++) {
        part = &sub->reply.parts[i];
        n = part->end - part->start;

        if (part->kind == KVE_PART_CONTENT) {
            memcpy(sub->reply.text.data + part->start, "CORRUPT",
                   n < 7 ? n : 7);
        }
    }
}


void
kve_transfer_reply(kve_job_t *job, kve_buf_t *b)
{
    int              i, n;
    kve_server_t    *s;
    kve_transfer_t  *t;

    s = job->server;

    if (job->transfer == 0 || s->settings.transfer_lost == 1) {
        return;
    }

    while (b->len && b->data[--b->len] != '}') {
        /* void */
    }

    if (s->settings.transfer_lost == 2) {
        kve_buf_str(b, ",\"kv_transfer_params\":null}");
        return;
    }

    t = &s->engine->transfers[job->transfer % KVE_TRANSFERS];
    t->ends = kve_now() + s->engine->opt.kv_lease / 1000;

    kve_buf_printf(b, ",\"kv_transfer_params\":{\"do_remote_prefill\":true,"
                   "\"do_remote_decode\":false,\"remote_block_ids\":[[");

    n = job->subs[0].req.prompt_tokens
        / kve_replica_config(s->model)->block_size + 1;
    n += s->settings.transfer_blocks;

    for (i = 0; i < n; i++) {
        kve_buf_printf(b, i ? ",%d" : "%d", i);
    }

    kve_buf_printf(b, "]],\"remote_engine_id\":\"kve-%d\","
                   "\"remote_request_id\":\"%llu\",\"remote_host\":"
                   "\"127.0.0.1\",\"remote_port\":%d,\"tp_size\":1,"
                   "\"remote_num_tokens\":%u,\"note\":\"\\\"}{\"}}",
                   s->index, (unsigned long long) job->transfer, s->port,
                   job->subs[0].req.prompt_tokens);
}


void
kve_transfer_free(kve_engine_t *e)
{
    free(e->transfers);
}
