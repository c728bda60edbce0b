#include <fcntl.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/engine_http.h"
#include "reply/engine_transfer.h"


#define KVE_TRANSFERS  65536


/*
 * A descriptor, in the slot given by its number.  All processes with the same
 * file share them.  Slot 0 counts over restarts: number is the last one, pulls
 * the requested ones, used the wrongly used ones.
 */

struct kve_transfer_s {
    _Atomic uint64_t    number;             /* 0: none */
    _Atomic uint64_t    pulls;
    _Atomic uint64_t    used;
    uint64_t            prompt;
    double              ends;               /* real */
};


static void
kve_transfer_open(kve_engine_t *e)
{
    int     fd;
    void   *p;
    size_t  size;

    if (e->transfers) {
        return;
    }

    size = (KVE_TRANSFERS + 1) * sizeof(kve_transfer_t);
    fd = -1;

    if (e->opt.kv_transfers) {
        fd = open(e->opt.kv_transfers, O_RDWR|O_CREAT, 0600);

        if (fd < 0 || ftruncate(fd, (off_t) size) != 0) {
            abort();
        }
    }

    p = mmap(NULL, size, PROT_READ|PROT_WRITE,
             fd < 0 ? MAP_PRIVATE|MAP_ANONYMOUS : MAP_SHARED, fd, 0);

    if (p == MAP_FAILED) {
        abort();
    }

    if (fd >= 0) {
        close(fd);
    }

    e->transfers = p;
}


static kve_transfer_t *
kve_transfer_of(kve_engine_t *e, uint64_t number)
{
    return &e->transfers[1 + number % KVE_TRANSFERS];
}


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

    kve_transfer_open(e);

    job->transfer = 1 + atomic_fetch_add(&e->transfers[0].number, 1);

    t = kve_transfer_of(e, job->transfer);

    t->prompt = kve_transfer_prompt(job);
    t->ends = 0;
    t->used = 0;
    t->number = job->transfer;

    return NULL;
}


/* Finds the replica to fetch from; a source without an address is counted. */
static void
kve_transfer_source(kve_job_t *job, const cJSON *source)
{
    int            i;
    const char    *host, *last;
    kve_server_t  *s;

    s = job->server;
    host = kve_json_str(source, "remote_host");
    last = host ? strrchr(host, '.') : NULL;

    s->counters.pulls++;

    if (last == NULL || kve_json_str(source, "kv_request_id") == NULL
        || !cJSON_IsNumber(kve_json_get(source, "remote_port")))
    {
        s->counters.corrupt++;
        return;
    }

    i = atoi(last + 1) - 1;

    if (i >= 0 && i < s->engine->nservers && i != s->index) {
        job->source = s->engine->servers[i].model;
    }
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

    if (cJSON_IsObject(kve_json_get(params, "remote_kv_source"))) {
        kve_transfer_source(job, kve_json_get(params, "remote_kv_source"));
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
    kve_transfer_open(e);
    atomic_fetch_add(&e->transfers[0].pulls, 1);

    id = kve_json_str(params, "remote_request_id");
    number = id ? strtod(id, NULL) : 0;

    t = kve_transfer_of(e, (uint64_t) number);

    well = number > 0 && t->number == (uint64_t) number
           && atomic_exchange(&t->used, 1) == 0
           && kve_now() < t->ends && t->prompt == kve_transfer_prompt(job)
           && cJSON_IsArray(kve_json_get(params, "remote_block_ids"))
           && kve_json_str(params, "remote_engine_id")
           && kve_json_str(params, "remote_host")
           && cJSON_IsNumber(kve_json_get(params, "remote_port"));

    job->given = well;

    if (!well) {
        job->corrupt = 1;
        s->counters.corrupt++;
        atomic_fetch_add(&e->transfers[0].used, 1);
    }

    return NULL;
}


double
kve_transfer_wait(kve_job_t *job)
{
    double          now, left;
    uint32_t        tokens;
    kve_req_t      *req;
    kve_server_t   *s;
    kve_options_t  *opt;

    if (!job->given) {
        return 0;
    }

    s = job->server;
    opt = &s->engine->opt;
    now = kve_virtual(s->engine);

    if (job->arrives == 0) {
        req = &job->subs[0].req;
        tokens = req->prompt_tokens
                 - kve_replica_match(s->rank[job->rank], req->hashes,
                                     req->nhashes, req->prompt_tokens);

        s->counters.transferred += tokens;

        if (opt->kv_bandwidth <= 0) {
            job->arrives = now;
            return 0;
        }

        s->link = fmax(s->link, now)
                  + tokens * opt->kv_bytes / opt->kv_bandwidth;
        job->arrives = s->link;
    }

    left = job->arrives - now;

    return left > 0 ? left / opt->speed : 0;
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

    t = kve_transfer_of(s->engine, job->transfer);
    t->ends = kve_now() + 30;

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
