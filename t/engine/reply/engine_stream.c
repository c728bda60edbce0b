#include <string.h>

#include "reply/engine_reply.h"
#include "reply/engine_send.h"
#include "reply/engine_stream.h"
#include "reply/engine_whole.h"


/*
 * Streamed replies.  Each token is an event of its own, as in real engines;
 * tokens due together can share a write.
 */


#define kve_is_vllm(job)                                                     \
    ((job)->server->engine->opt.dialect <= KVE_VLLM_OLD)

#define kve_is_llamacpp(job)                                                 \
    ((job)->server->engine->opt.dialect == KVE_LLAMACPP)


static void
kve_stream_choice(kve_job_t *job, kve_sub_t *sub)
{
    kve_buf_str(&job->out, "data: ");
    kve_buf_add(&job->out, job->head.data, job->head.len);
    kve_buf_printf(&job->out, "\"choices\":[{\"index\":%d,", sub->index);

    if (job->parsed.api == KVE_CHAT) {
        kve_buf_str(&job->out, "\"delta\":{");

    } else {
        kve_buf_str(&job->out, "\"text\":\"");
    }
}


static void
kve_stream_choice_end(kve_job_t *job, const char *finish)
{
    kve_buf_t  *b;

    b = &job->out;

    kve_buf_str(b, job->parsed.api == KVE_CHAT ? "}" : "\"");
    kve_buf_str(b, ",\"logprobs\":null,\"finish_reason\":");

    if (finish) {
        kve_buf_printf(b, "\"%s\"", finish);

        if (kve_is_vllm(job)) {
            kve_buf_str(b, ",\"stop_reason\":null");
        }

    } else {
        kve_buf_str(b, "null");
    }

    kve_buf_str(b, "}]");
    kve_buf_add(b, job->tail.data, job->tail.len);

    if (job->parsed.continuous_usage && job->parsed.include_usage) {
        kve_buf_str(b, ",");
        kve_reply_usage(b, job);
    }

    if (job->parsed.timings_per_token && kve_is_llamacpp(job)) {
        kve_buf_str(b, ",");
        kve_reply_timings(b, job, &job->subs[0]);
    }

    kve_buf_str(b, "}\n\n");
}


/* the first event of a chat, and llama.cpp's progress of the prefill */

static void
kve_stream_role(kve_job_t *job, kve_sub_t *sub)
{
    kve_stream_choice(job, sub);
    kve_buf_str(&job->out, kve_is_llamacpp(job)
                           ? "\"role\":\"assistant\",\"content\":null"
                           : "\"role\":\"assistant\",\"content\":\"\"");

    kve_stream_choice_end(job, NULL);
}


static void
kve_stream_event(kve_job_t *job, const char *name)
{
    kve_buf_printf(&job->out, "event: %s\ndata: {\"type\":\"%s\"", name,
                   name);

    if (job->parsed.api == KVE_RESPONSES && !kve_is_llamacpp(job)) {
        kve_buf_printf(&job->out, ",\"sequence_number\":%d", job->sequence++);
    }
}


static void
kve_stream_event_end(kve_job_t *job)
{
    kve_buf_str(&job->out, "}\n\n");
}


static void
kve_stream_responses_start(kve_job_t *job)
{
    kve_stream_event(job, "response.created");
    kve_buf_str(&job->out, ",\"response\":");
    kve_reply_responses_object(&job->out, job, "in_progress");
    kve_stream_event_end(job);

    kve_stream_event(job, "response.in_progress");
    kve_buf_str(&job->out, ",\"response\":");
    kve_reply_responses_object(&job->out, job, "in_progress");
    kve_stream_event_end(job);
}


/*
 * Headers are sent.  vLLM sends a response object before it computes the
 * prompt, so for the Responses API the first event is not the first token.
 */

void
kve_stream_open(kve_job_t *job)
{
    if (job->parsed.api == KVE_CHAT) {
        kve_reply_frame(job, "chat.completion.chunk");

    } else if (job->parsed.api == KVE_COMPLETIONS) {
        kve_reply_frame(job, "text_completion");

    } else if (job->parsed.api == KVE_RESPONSES && !kve_is_llamacpp(job)) {
        kve_stream_responses_start(job);
        kve_send_flush(job);
    }
}


void
kve_stream_first(kve_job_t *job, kve_sub_t *sub)
{
    switch (job->parsed.api) {

    case KVE_CHAT:
        kve_stream_role(job, sub);
        break;

    case KVE_RESPONSES:
        if (kve_is_llamacpp(job)) {
            kve_stream_responses_start(job);
        }

        break;

    case KVE_MESSAGES:
        kve_stream_event(job, "message_start");
        kve_buf_printf(&job->out, ",\"message\":{\"id\":\"%s\","
                       "\"type\":\"message\",\"role\":\"assistant\","
                       "\"content\":[],\"model\":", job->id);
        kve_buf_quote(&job->out, job->parsed.model);
        kve_buf_str(&job->out, ",\"stop_reason\":null,"
                               "\"stop_sequence\":null,");
        kve_reply_messages_usage(&job->out, job, 1);
        kve_buf_str(&job->out, "}");
        kve_stream_event_end(job);
        break;

    default:
        break;
    }
}


static void
kve_stream_chat(kve_job_t *job, kve_sub_t *sub, kve_part_e kind,
    const char *data, size_t len, int last)
{
    int         opening;
    kve_buf_t  *b;

    b = &job->out;
    opening = sub->part != (int) kind;

    if (kind == KVE_PART_TOOL && opening) {
        kve_stream_choice(job, sub);
        kve_buf_printf(b, "\"tool_calls\":[{\"index\":0,\"id\":\"%s\","
                       "\"type\":\"function\",\"function\":{\"name\":",
                       sub->reply.tool_id);
        kve_buf_quote(b, sub->reply.tool_name);
        kve_buf_str(b, ",\"arguments\":\"\"}}]");
        kve_stream_choice_end(job, NULL);
    }

    kve_stream_choice(job, sub);

    if (job->parsed.api != KVE_CHAT) {
        kve_buf_escape(b, data, len);

    } else if (kind == KVE_PART_TOOL) {
        kve_buf_str(b, "\"tool_calls\":[{\"index\":0,\"function\":"
                       "{\"arguments\":\"");
        kve_buf_escape(b, data, len);
        kve_buf_str(b, "\"}}]");

    } else if (kind == KVE_PART_REASONING) {
        kve_buf_str(b, "\"reasoning_content\":\"");
        kve_buf_escape(b, data, len);
        kve_buf_str(b, "\"");

        if (job->server->engine->opt.dialect == KVE_VLLM) {
            kve_buf_str(b, ",\"reasoning\":\"");
            kve_buf_escape(b, data, len);
            kve_buf_str(b, "\"");
        }

    } else {
        kve_buf_str(b, "\"content\":\"");
        kve_buf_escape(b, data, len);
        kve_buf_str(b, "\"");
    }

    /* vLLM sends the finish reason with the last token */

    if (last && kve_is_vllm(job)) {
        kve_stream_choice_end(job, sub->reply.finish);
        sub->closed = 1;
        return;
    }

    kve_stream_choice_end(job, NULL);
}


static void
kve_stream_messages_block_end(kve_job_t *job, kve_sub_t *sub)
{
    if (sub->part < 0) {
        return;
    }

    if (sub->part == KVE_PART_REASONING) {
        kve_stream_event(job, "content_block_delta");
        kve_buf_printf(&job->out, ",\"index\":%d,\"delta\":{\"type\":"
                       "\"signature_delta\",\"signature\":\"%016llx\"}",
                       sub->block,
                       (unsigned long long) kve_mix(job->parsed.root));
        kve_stream_event_end(job);
    }

    kve_stream_event(job, "content_block_stop");
    kve_buf_printf(&job->out, ",\"index\":%d", sub->block);
    kve_stream_event_end(job);
    sub->block++;
}


static void
kve_stream_messages(kve_job_t *job, kve_sub_t *sub, kve_part_e kind,
    const char *data, size_t len)
{
    kve_buf_t  *b;

    static const char  *deltas[] = {
        "\"thinking_delta\",\"thinking\":\"",
        "\"text_delta\",\"text\":\"",
        "\"input_json_delta\",\"partial_json\":\""
    };

    _Static_assert(sizeof(deltas) / sizeof(deltas[0]) == KVE_PART_TOOL + 1,
                   "deltas");

    b = &job->out;

    if (sub->part != (int) kind) {
        kve_stream_messages_block_end(job, sub);

        kve_stream_event(job, "content_block_start");
        kve_buf_printf(b, ",\"index\":%d,\"content_block\":", sub->block);

        if (kind == KVE_PART_TOOL) {
            kve_buf_printf(b, "{\"type\":\"tool_use\",\"id\":\"%s\","
                           "\"name\":", sub->reply.tool_id);
            kve_buf_quote(b, sub->reply.tool_name);
            kve_buf_str(b, ",\"input\":{}}");

        } else if (kind == KVE_PART_REASONING) {
            kve_buf_str(b, "{\"type\":\"thinking\",\"thinking\":\"\"}");

        } else {
            kve_buf_str(b, "{\"type\":\"text\",\"text\":\"\"}");
        }

        kve_stream_event_end(job);
    }

    kve_stream_event(job, "content_block_delta");
    kve_buf_printf(b, ",\"index\":%d,\"delta\":{\"type\":", sub->block);
    kve_buf_str(b, deltas[kind]);
    kve_buf_escape(b, data, len);
    kve_buf_str(b, "\"}");
    kve_stream_event_end(job);
}


static void
kve_stream_item_id(kve_job_t *job, kve_sub_t *sub)
{
    kve_buf_printf(&job->out, ",\"item_id\":\"msg_%s\",\"output_index\":%d,"
                   "\"content_index\":0", job->id + 5, sub->block);
}


static void
kve_stream_responses_item_end(kve_job_t *job, kve_sub_t *sub)
{
    kve_buf_t   *b;
    kve_part_e   kind;

    if (sub->part < 0) {
        return;
    }

    b = &job->out;
    kind = (kve_part_e) sub->part;

    kve_stream_event(job, "response.output_text.done");
    kve_stream_item_id(job, sub);
    kve_buf_str(b, ",\"text\":\"");
    kve_reply_part(b, sub, kind);
    kve_buf_str(b, "\"");
    kve_stream_event_end(job);

    if (kind == KVE_PART_CONTENT) {
        kve_stream_event(job, "response.content_part.done");
        kve_stream_item_id(job, sub);
        kve_buf_str(b, ",\"part\":{\"type\":\"output_text\","
                       "\"annotations\":[],\"logprobs\":null,\"text\":\"");
        kve_reply_part(b, sub, kind);
        kve_buf_str(b, "\"}");
        kve_stream_event_end(job);
    }

    kve_stream_event(job, "response.output_item.done");
    kve_buf_printf(b, ",\"output_index\":%d,\"item\":", sub->block);
    kve_reply_item(b, job, sub, kind, 1);
    kve_stream_event_end(job);

    sub->block++;
}


static void
kve_stream_responses(kve_job_t *job, kve_sub_t *sub, kve_part_e kind,
    const char *data, size_t len)
{
    kve_buf_t  *b;

    b = &job->out;

    if (sub->part != (int) kind) {
        kve_stream_responses_item_end(job, sub);

        kve_stream_event(job, "response.output_item.added");
        kve_buf_printf(b, ",\"output_index\":%d,\"item\":", sub->block);
        kve_reply_item(b, job, sub, kind, 0);
        kve_stream_event_end(job);

        if (kind == KVE_PART_CONTENT) {
            kve_stream_event(job, "response.content_part.added");
            kve_stream_item_id(job, sub);
            kve_buf_str(b, ",\"part\":{\"type\":\"output_text\","
                           "\"annotations\":[],\"text\":\"\"}");
            kve_stream_event_end(job);
        }
    }

    kve_stream_event(job, "response.output_text.delta");
    kve_stream_item_id(job, sub);
    kve_buf_str(b, ",\"delta\":\"");
    kve_buf_escape(b, data, len);
    kve_buf_str(b, "\"");
    kve_stream_event_end(job);
}


/* token n (from 1): sends the visible part */

void
kve_stream_token(kve_job_t *job, kve_sub_t *sub, uint32_t n)
{
    int                i;
    size_t             from, to, start, end, bpt;
    const char        *data;
    const kve_part_t  *part;

    bpt = job->server->engine->opt.bytes_per_token;
    start = (n - 1) * bpt;
    end = n * bpt;

    if (end > sub->reply.text.len) {
        end = sub->reply.text.len;
    }

    for (i = 0; i < sub->reply.nparts; i++) {
        part = &sub->reply.parts[i];
        from = start > part->start ? start : part->start;
        to = end < part->end ? end : part->end;

        if (from >= to) {
            continue;
        }

        data = sub->reply.text.data + from;

        switch (job->parsed.api) {

        case KVE_CHAT:
        case KVE_COMPLETIONS:
            kve_stream_chat(job, sub, part->kind, data, to - from,
                            n == sub->req.output_tokens
                            && i == sub->reply.nparts - 1);
            break;

        case KVE_MESSAGES:
            kve_stream_messages(job, sub, part->kind, data, to - from);
            break;

        case KVE_RESPONSES:
            kve_stream_responses(job, sub, part->kind, data, to - from);
            break;

        default:
            break;
        }

        sub->part = part->kind;
    }
}


void
kve_stream_finish(kve_job_t *job, kve_sub_t *sub)
{
    switch (job->parsed.api) {

    case KVE_CHAT:
    case KVE_COMPLETIONS:
        if (!sub->closed) {
            kve_stream_choice(job, sub);
            kve_stream_choice_end(job, sub->reply.finish);
        }

        break;

    case KVE_MESSAGES:
        kve_stream_messages_block_end(job, sub);
        break;

    case KVE_RESPONSES:
        kve_stream_responses_item_end(job, sub);
        break;

    default:
        break;
    }
}


/* all sequences have ended */

void
kve_stream_close(kve_job_t *job)
{
    kve_buf_t  *b;
    kve_sub_t  *sub;

    b = &job->out;
    sub = &job->subs[0];

    switch (job->parsed.api) {

    case KVE_CHAT:
    case KVE_COMPLETIONS:
        if (job->parsed.include_usage) {
            kve_buf_str(b, "data: ");
            kve_buf_add(b, job->head.data, job->head.len);
            kve_buf_str(b, "\"choices\":[]");
            kve_buf_add(b, job->tail.data, job->tail.len);
            kve_buf_str(b, ",");
            kve_reply_usage(b, job);

            if (kve_is_llamacpp(job)) {
                kve_buf_str(b, ",");
                kve_reply_timings(b, job, sub);
            }

            kve_buf_str(b, "}\n\n");
        }

        kve_buf_str(b, "data: [DONE]\n\n");
        break;

    case KVE_MESSAGES:
        kve_stream_event(job, "message_delta");
        kve_buf_printf(b, ",\"delta\":{\"stop_reason\":\"%s\","
                       "\"stop_sequence\":null},",
                       kve_reply_stop_reason(sub));

        if (kve_is_llamacpp(job)) {
            kve_buf_printf(b, "\"usage\":{\"output_tokens\":%u}",
                           sub->req.output_tokens);
        } else {
            kve_reply_messages_usage(b, job, 0);
        }

        kve_stream_event_end(job);
        kve_stream_event(job, "message_stop");
        kve_stream_event_end(job);
        break;

    case KVE_RESPONSES:
        kve_stream_event(job, "response.completed");
        kve_buf_str(b, ",\"response\":");
        kve_reply_responses_object(b, job, "completed");
        kve_stream_event_end(job);
        break;

    default:
        break;
    }
}


/* an engine's error after the 200; code 0: SGLang's own, without one */

void
kve_stream_error(kve_job_t *job, int code, const char *message)
{
    if (job->parsed.api == KVE_MESSAGES) {
        kve_buf_printf(&job->out, "event: error\ndata: {\"type\":\"error\","
                       "\"error\":{\"type\":\"internal_error\","
                       "\"message\":\"%s\"}}\n\n", message);
        return;
    }

    kve_buf_printf(&job->out, "data: {\"error\":{\"message\":\"%s\"", message);

    if (code) {
        kve_buf_printf(&job->out, ",\"type\":\"%s\",\"param\":null,"
                       "\"code\":%d",
                       code < 500 ? "BadRequestError" : "InternalServerError",
                       code);
    }

    kve_buf_str(&job->out, "}}\n\ndata: [DONE]\n\n");
}
