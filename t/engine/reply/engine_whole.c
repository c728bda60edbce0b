#include <stdio.h>
#include <string.h>

#include "reply/engine_reply.h"
#include "reply/engine_transfer.h"
#include "reply/engine_whole.h"


/*
 * Replies without streaming, in each engine's format.
 */


/* the JSON before and after "choices" */

void
kve_reply_frame(kve_job_t *job, const char *object)
{
    int             llama;
    kve_buf_t      *b;
    kve_options_t  *opt;

    opt = &job->server->engine->opt;
    llama = opt->dialect == KVE_LLAMACPP;

    job->head.len = 0;
    job->tail.len = 0;

    if (llama) {
        kve_buf_str(&job->head, "{");
        b = &job->tail;
        kve_buf_printf(b, ",\"created\":%lld,\"id\":\"%s\",\"model\":",
                       (long long) job->created, job->id);
    } else {
        b = &job->head;
        kve_buf_printf(b, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,"
                       "\"model\":", job->id, object,
                       (long long) job->created);
    }

    kve_buf_quote(b, job->parsed.model);

    if (llama) {
        kve_buf_printf(b, ",\"system_fingerprint\":\"b11669-kve\","
                       "\"object\":\"%s\"", object);

    } else if (opt->dialect == KVE_TGI) {
        kve_buf_str(b, ",\"system_fingerprint\":\"3.3.6-kve\",");

    } else {
        kve_buf_str(b, ",");
    }

    kve_buf_str(&job->tail, "");
}


static void
kve_whole_message(kve_buf_t *b, kve_job_t *job, kve_sub_t *sub)
{
    kve_dialect_e  dialect;

    dialect = job->server->engine->opt.dialect;

    kve_buf_printf(b, "{\"index\":%d,\"message\":{\"role\":\"assistant\","
                   "\"content\":", sub->index);

    if (kve_reply_has(sub, KVE_PART_CONTENT)) {
        kve_buf_str(b, "\"");
        kve_reply_part(b, sub, KVE_PART_CONTENT);
        kve_buf_str(b, "\"");

    } else {
        kve_buf_str(b, "null");
    }

    if (kve_reply_has(sub, KVE_PART_REASONING)) {
        kve_buf_str(b, ",\"reasoning_content\":\"");
        kve_reply_part(b, sub, KVE_PART_REASONING);
        kve_buf_str(b, "\"");

        if (dialect == KVE_VLLM) {
            kve_buf_str(b, ",\"reasoning\":\"");
            kve_reply_part(b, sub, KVE_PART_REASONING);
            kve_buf_str(b, "\"");
        }
    }

    if (sub->reply.tool_name) {
        kve_buf_printf(b, ",\"tool_calls\":[{\"id\":\"%s\",\"type\":"
                       "\"function\",\"function\":{\"name\":",
                       sub->reply.tool_id);
        kve_buf_quote(b, sub->reply.tool_name);
        kve_buf_str(b, ",\"arguments\":\"");
        kve_reply_part(b, sub, KVE_PART_TOOL);
        kve_buf_str(b, "\"}}]");

    } else if (dialect == KVE_VLLM || dialect == KVE_VLLM_OLD) {
        kve_buf_str(b, ",\"tool_calls\":[]");
    }

    kve_buf_printf(b, "},\"logprobs\":null,\"finish_reason\":\"%s\"%s}",
                   sub->reply.finish,
                   dialect == KVE_SGLANG ? ",\"matched_stop\":null"
                   : dialect <= KVE_VLLM_OLD ? ",\"stop_reason\":null" : "");
}


static void
kve_whole_completions(kve_buf_t *b, kve_job_t *job, int chat)
{
    int             i;
    kve_sub_t      *sub;
    kve_options_t  *opt;

    opt = &job->server->engine->opt;

    kve_reply_frame(job, chat ? "chat.completion" : "text_completion");
    kve_buf_add(b, job->head.data, job->head.len);
    kve_buf_str(b, "\"choices\":[");

    for (i = 0; i < job->nsubs; i++) {
        sub = &job->subs[i];
        kve_buf_str(b, i ? "," : "");

        if (chat) {
            kve_whole_message(b, job, sub);
            continue;
        }

        kve_buf_printf(b, "{\"index\":%d,\"text\":\"", sub->index);
        kve_reply_part(b, sub, KVE_PART_CONTENT);
        kve_buf_printf(b, "\",\"logprobs\":null,\"finish_reason\":\"%s\"}",
                       sub->reply.finish);
    }

    kve_buf_str(b, "]");
    kve_buf_add(b, job->tail.data, job->tail.len);
    kve_buf_str(b, ",");
    kve_reply_usage(b, job);

    if (opt->dialect == KVE_LLAMACPP) {
        kve_buf_str(b, ",");
        kve_reply_timings(b, job, &job->subs[0]);
    }

    kve_buf_str(b, "}");
}


static void
kve_whole_messages(kve_buf_t *b, kve_job_t *job)
{
    kve_sub_t  *sub;

    sub = &job->subs[0];

    kve_buf_printf(b, "{\"id\":\"%s\",\"type\":\"message\",\"role\":"
                   "\"assistant\",\"content\":[", job->id);

    if (kve_reply_has(sub, KVE_PART_REASONING)) {
        kve_buf_str(b, "{\"type\":\"thinking\",\"thinking\":\"");
        kve_reply_part(b, sub, KVE_PART_REASONING);
        kve_buf_str(b, "\",\"signature\":\"\"},");
    }

    if (sub->reply.tool_name) {
        kve_buf_printf(b, "{\"type\":\"tool_use\",\"id\":\"%s\",\"name\":",
                       sub->reply.tool_id);
        kve_buf_quote(b, sub->reply.tool_name);
        kve_buf_printf(b, ",\"input\":%.*s}",
                       (int) (sub->reply.parts[sub->reply.nparts - 1].end
                              - sub->reply.parts[sub->reply.nparts - 1].start),
                       sub->reply.text.data
                       + sub->reply.parts[sub->reply.nparts - 1].start);
    } else {
        kve_buf_str(b, "{\"type\":\"text\",\"text\":\"");
        kve_reply_part(b, sub, KVE_PART_CONTENT);
        kve_buf_str(b, "\"}");
    }

    kve_buf_str(b, "],\"model\":");
    kve_buf_quote(b, job->parsed.model);
    kve_buf_printf(b, ",\"stop_reason\":\"%s\",\"stop_sequence\":null,",
                   kve_reply_stop_reason(sub));
    kve_reply_messages_usage(b, job, 0);
    kve_buf_str(b, "}");
}


static void
kve_whole_embeddings(kve_buf_t *b, kve_job_t *job)
{
    int       i, k, dim;
    uint64_t  state;

    dim = kve_json_int(job->parsed.body, "dimensions", 8);

    if (dim < 1 || dim > 8192) {
        dim = 8;
    }

    kve_buf_printf(b, "{\"id\":\"%s\",\"object\":\"list\",\"created\":%lld,"
                   "\"model\":", job->id, (long long) job->created);
    kve_buf_quote(b, job->parsed.model);
    kve_buf_str(b, ",\"data\":[");

    for (i = 0; i < job->nsubs; i++) {
        kve_buf_printf(b, "%s{\"index\":%d,\"object\":\"embedding\","
                       "\"embedding\":[", i ? "," : "", i);

        state = job->parsed.root + job->subs[i].req.prompt_tokens;

        for (k = 0; k < dim; k++) {
            kve_buf_printf(b, k ? ",%.6f" : "%.6f",
                           kve_random_unit(&state) * 2 - 1);
        }

        kve_buf_str(b, "]}");
    }

    kve_buf_str(b, "],");
    kve_reply_usage(b, job);
    kve_buf_str(b, "}");
}


void
kve_reply_body(kve_job_t *job, kve_buf_t *b)
{
    switch (job->parsed.api) {

    case KVE_CHAT:
        kve_whole_completions(b, job, 1);
        break;

    case KVE_COMPLETIONS:
        kve_whole_completions(b, job, 0);
        break;

    case KVE_RESPONSES:
        kve_reply_responses_object(b, job, "completed");
        break;

    case KVE_MESSAGES:
        kve_whole_messages(b, job);
        break;

    case KVE_EMBEDDINGS:
        kve_whole_embeddings(b, job);
        break;
    }

    kve_transfer_reply(job, b);
}
