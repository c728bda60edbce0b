#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reply/engine_reply.h"


#define KVE_THINK       "<think>\n"
#define KVE_THOUGHT     "\n</think>\n\n"
#define KVE_CALL        "<tool_call>\n{\"name\": \""
#define KVE_CALL_ARGS   "\", \"arguments\": "
#define KVE_CALLED      "}\n</tool_call>"
#define KVE_ARGS        "{\"input\":\""
#define KVE_ARGS_END    "\"}"

#define kve_strlen(s)   (sizeof(s) - 1)


/*
 * Words of lower case letters: they need no escapes in JSON, and any byte can
 * end a token.
 */

static void
kve_reply_words(kve_buf_t *b, uint64_t *state, size_t len)
{
    int       word;
    char      c;
    uint64_t  bits;

    bits = 0;
    word = 0;

    while (len--) {
        if (bits < 32) {
            bits = kve_random(state) | UINT64_C(1) << 63;
        }

        if (word == 0) {
            word = 2 + bits % 7;
        }

        c = --word ? (char) ('a' + bits % 26) : ' ';
        bits >>= 5;
        kve_buf_add(b, &c, 1);
    }
}


static void
kve_reply_add(kve_reply_t *reply, kve_part_e kind, size_t start)
{
    kve_part_t  *part;

    part = &reply->parts[reply->nparts++];
    part->kind = kind;
    part->start = start;
    part->end = reply->text.len;
}


/*
 * The text depends on the seed only, and fills its tokens to the byte, so it
 * is cached as it will be rendered in the next prompt.
 */

void
kve_reply_build(kve_reply_t *reply, uint64_t seed, uint32_t tokens,
    int bytes_per_token, uint32_t reasoning, const char *tool)
{
    size_t      total, left, want, start;
    uint64_t    state;
    kve_buf_t  *b;

    memset(reply, 0, sizeof(kve_reply_t));

    b = &reply->text;
    state = seed;
    total = (size_t) tokens * bytes_per_token;
    left = total;

    if (reasoning) {
        want = (size_t) reasoning * bytes_per_token;

        if (want + kve_strlen(KVE_THINK) + kve_strlen(KVE_THOUGHT) < left) {
            kve_buf_str(b, KVE_THINK);
            start = b->len;
            kve_reply_words(b, &state, want);
            kve_reply_add(reply, KVE_PART_REASONING, start);
            kve_buf_str(b, KVE_THOUGHT);
        }
    }

    left = total - b->len;

    if (tool && kve_strlen(KVE_CALL) + strlen(tool)
                + kve_strlen(KVE_CALL_ARGS) + kve_strlen(KVE_CALLED)
                + kve_strlen(KVE_ARGS) + kve_strlen(KVE_ARGS_END) < left)
    {
        reply->tool_name = strdup(tool);
        snprintf(reply->tool_id, sizeof(reply->tool_id), "call_%016llx",
                 (unsigned long long) kve_mix(seed));

        kve_buf_str(b, KVE_CALL);
        kve_buf_str(b, tool);
        kve_buf_str(b, KVE_CALL_ARGS);
        start = b->len;
        kve_buf_str(b, KVE_ARGS);
        kve_reply_words(b, &state, total - b->len - kve_strlen(KVE_ARGS_END)
                                   - kve_strlen(KVE_CALLED));
        kve_buf_str(b, KVE_ARGS_END);
        kve_reply_add(reply, KVE_PART_TOOL, start);
        kve_buf_str(b, KVE_CALLED);
        return;
    }

    start = b->len;
    kve_reply_words(b, &state, left);
    kve_reply_add(reply, KVE_PART_CONTENT, start);
}


void
kve_reply_skip(kve_reply_t *reply, size_t len)
{
    reply->text.len -= len;
    memmove(reply->text.data, reply->text.data + len, reply->text.len);
    reply->parts[0].end -= len;
}


void
kve_reply_free(kve_reply_t *reply)
{
    kve_buf_free(&reply->text);
    free(reply->tool_name);
    memset(reply, 0, sizeof(kve_reply_t));
}


static const kve_part_t *
kve_reply_find(const kve_sub_t *sub, kve_part_e kind)
{
    int  i;

    for (i = 0; i < sub->reply.nparts; i++) {
        if (sub->reply.parts[i].kind == kind) {
            return &sub->reply.parts[i];
        }
    }

    return NULL;
}


int
kve_reply_has(const kve_sub_t *sub, kve_part_e kind)
{
    return kve_reply_find(sub, kind) != NULL;
}


/* escaped, without quotes */

void
kve_reply_part(kve_buf_t *b, const kve_sub_t *sub, kve_part_e kind)
{
    const kve_part_t  *part;

    part = kve_reply_find(sub, kind);

    if (part) {
        kve_buf_escape(b, sub->reply.text.data + part->start,
                       part->end - part->start);
    }
}


uint32_t
kve_reply_prompt_tokens(const kve_job_t *job)
{
    int       i;
    uint32_t  n;

    /* n replies to one prompt count it once */

    for (i = 0, n = 0; i < job->nsubs; i += job->parsed.n) {
        n += job->subs[i].req.prompt_tokens;
    }

    return n;
}


/*
 * vLLM reports the cached tokens of the last of several replies, which can
 * include the prompt computed by the first one.
 */
uint32_t
kve_reply_cached_tokens(const kve_job_t *job)
{
    int       i;
    uint32_t  n;

    if (job->server->engine->opt.dialect == KVE_VLLM) {
        return job->subs[job->nsubs - 1].req.cached_tokens;
    }

    for (i = 0, n = 0; i < job->nsubs; i += job->parsed.n) {
        n += job->subs[i].req.cached_tokens;
    }

    return n;
}


uint32_t
kve_reply_output_tokens(const kve_job_t *job)
{
    int       i;
    uint32_t  n;

    for (i = 0, n = 0; i < job->nsubs; i++) {
        n += job->parsed.stream && !job->subs[i].finished
             ? job->subs[i].sent : job->subs[i].req.output_tokens;
    }

    return n;
}


/* "usage":{...} of chat and text completions */

void
kve_reply_usage(kve_buf_t *b, kve_job_t *job)
{
    int             details;
    uint32_t        prompt, cached, output;
    kve_options_t  *opt;

    opt = &job->server->engine->opt;
    prompt = kve_reply_prompt_tokens(job);
    cached = kve_reply_cached_tokens(job);
    output = job->parsed.api == KVE_EMBEDDINGS ? 0
             : kve_reply_output_tokens(job);

    kve_buf_printf(b, "\"usage\":{\"prompt_tokens\":%u,\"total_tokens\":%u,"
                   "\"completion_tokens\":%u", prompt, prompt + output,
                   output);

    switch (opt->dialect) {

    case KVE_VLLM:
        details = opt->prompt_tokens_details;
        break;

    case KVE_VLLM_OLD:
        details = opt->prompt_tokens_details && cached;
        break;

    case KVE_SGLANG:
        details = opt->cache_report && cached;
        break;

    case KVE_TGI:
        kve_buf_str(b, "}");
        return;

    default:
        details = 1;
        break;
    }

    if (details) {
        kve_buf_printf(b, ",\"prompt_tokens_details\":"
                       "{\"cached_tokens\":%u}", cached);

    } else if (!job->parsed.stream) {
        kve_buf_str(b, ",\"prompt_tokens_details\":null");
    }

    kve_buf_str(b, "}");
}


void
kve_reply_responses_usage(kve_buf_t *b, kve_job_t *job)
{
    uint32_t           prompt, output, reasoning;
    kve_options_t     *opt;
    const kve_part_t  *part;

    opt = &job->server->engine->opt;
    prompt = kve_reply_prompt_tokens(job);
    output = kve_reply_output_tokens(job);

    part = kve_reply_find(&job->subs[0], KVE_PART_REASONING);
    reasoning = part ? (part->end - part->start) / opt->bytes_per_token : 0;

    kve_buf_printf(b, "\"usage\":{\"input_tokens\":%u,"
                   "\"input_tokens_details\":{\"cached_tokens\":%u},"
                   "\"output_tokens\":%u,"
                   "\"output_tokens_details\":{\"reasoning_tokens\":%u},"
                   "\"total_tokens\":%u}",
                   prompt, kve_reply_cached_tokens(job), output, reasoning,
                   prompt + output);
}


/* Anthropic's input_tokens are those that were not cached */

void
kve_reply_messages_usage(kve_buf_t *b, kve_job_t *job, int at_start)
{
    int             cached;
    uint32_t        prompt, hit;
    kve_options_t  *opt;

    opt = &job->server->engine->opt;
    prompt = kve_reply_prompt_tokens(job);
    hit = kve_reply_cached_tokens(job);

    switch (opt->dialect) {

    case KVE_LLAMACPP:
    case KVE_TRTLLM:
        cached = 1;
        break;

    case KVE_SGLANG:
        cached = opt->cache_report;
        break;

    default:
        cached = opt->prompt_tokens_details;
        break;
    }

    kve_buf_str(b, "\"usage\":{");

    if (cached) {
        kve_buf_printf(b, "\"cache_read_input_tokens\":%u,", hit);
        prompt -= hit;

        if (opt->dialect != KVE_LLAMACPP) {
            kve_buf_str(b, "\"cache_creation_input_tokens\":0,");
        }
    }

    kve_buf_printf(b, "\"input_tokens\":%u,\"output_tokens\":%u}", prompt,
                   at_start ? 0 : kve_reply_output_tokens(job));
}


void
kve_reply_timings(kve_buf_t *b, kve_job_t *job, const kve_sub_t *sub)
{
    double            prompt, predicted, speed;
    uint32_t          cached, n;
    const kve_req_t  *req;

    req = &sub->req;
    speed = job->server->engine->opt.speed;
    cached = req->cached_tokens;
    n = sub->finished ? req->output_tokens : sub->sent;

    prompt = (req->first_time - req->admit_time) * 1000 / speed;
    predicted = (kve_virtual(job->server->engine) - req->first_time)
                * 1000 / speed;

    if (!(prompt > 0.001)) {
        prompt = 0.001;
    }

    if (!(predicted > 0.001)) {
        predicted = 0.001;
    }

    kve_buf_printf(b, "\"timings\":{\"cache_n\":%u,\"prompt_n\":%u,"
                   "\"prompt_ms\":%.3f,\"prompt_per_token_ms\":%.6f,"
                   "\"prompt_per_second\":%.3f,\"predicted_n\":%u,"
                   "\"predicted_ms\":%.3f,\"predicted_per_token_ms\":%.6f,"
                   "\"predicted_per_second\":%.3f}",
                   cached, req->prompt_tokens - cached, prompt,
                   prompt / (req->prompt_tokens - cached),
                   (req->prompt_tokens - cached) * 1000 / prompt, n,
                   predicted, predicted / (n ? n : 1), n * 1000 / predicted);
}


const char *
kve_reply_stop_reason(const kve_sub_t *sub)
{
    if (strcmp(sub->reply.finish, "tool_calls") == 0) {
        return "tool_use";
    }

    return strcmp(sub->reply.finish, "length") == 0 ? "max_tokens"
                                                    : "end_turn";
}


/* an item of a Responses output; empty while it is streamed */

void
kve_reply_item(kve_buf_t *b, kve_job_t *job, kve_sub_t *sub, kve_part_e kind,
    int whole)
{
    const char  *status;

    status = whole ? "completed" : "in_progress";

    kve_buf_printf(b, "{\"id\":\"msg_%s\",\"content\":[", job->id + 5);

    if (whole) {
        kve_buf_str(b, "{\"annotations\":[],\"text\":\"");
        kve_reply_part(b, sub, kind);
        kve_buf_str(b, "\",\"type\":\"output_text\",\"logprobs\":null}");
    }

    kve_buf_printf(b, "],\"role\":\"assistant\",\"status\":\"%s\","
                   "\"type\":\"message\"}", status);
}


void
kve_reply_responses_object(kve_buf_t *b, kve_job_t *job, const char *status)
{
    int          i;
    kve_sub_t   *sub;
    const char  *previous;

    sub = &job->subs[0];
    previous = kve_json_str(job->parsed.body, "previous_response_id");

    kve_buf_printf(b, "{\"id\":\"%s\",\"created_at\":%lld,"
                   "\"incomplete_details\":null,\"instructions\":null,"
                   "\"metadata\":null,\"model\":", job->id,
                   (long long) job->created);
    kve_buf_quote(b, job->parsed.model);
    kve_buf_str(b, ",\"object\":\"response\",\"output\":[");

    if (strcmp(status, "completed") == 0) {
        for (i = 0; i < sub->reply.nparts; i++) {
            kve_buf_str(b, i ? "," : "");
            kve_reply_item(b, job, sub, sub->reply.parts[i].kind, 1);
        }
    }

    kve_buf_printf(b, "],\"parallel_tool_calls\":true,\"temperature\":1.0,"
                   "\"tool_choice\":\"auto\",\"tools\":[],\"top_p\":1.0,"
                   "\"background\":%s,\"max_output_tokens\":%u,"
                   "\"previous_response_id\":",
                   job->parsed.background ? "true" : "false",
                   sub->req.output_tokens);

    if (previous) {
        kve_buf_quote(b, previous);

    } else {
        kve_buf_str(b, "null");
    }

    kve_buf_printf(b, ",\"service_tier\":\"auto\",\"status\":\"%s\","
                   "\"truncation\":\"disabled\",", status);

    if (strcmp(status, "completed") == 0) {
        kve_reply_responses_usage(b, job);

    } else {
        kve_buf_str(b, "\"usage\":null");
    }

    kve_buf_str(b, ",\"user\":null}");
}
