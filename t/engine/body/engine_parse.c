#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "body/engine_convert.h"
#include "body/engine_parse.h"
#include "body/engine_render.h"


static void
kve_parse_chat(kve_parsed_t *p)
{
    cJSON  *tools;

    p->messages = kve_json_get(p->body, "messages");

    if (!cJSON_IsArray(p->messages)) {
        kve_parsed_fail(p, 400, "BadRequestError", "messages: Field required");
        return;
    }

    tools = kve_json_get(p->body, "tools");
    p->tools = cJSON_IsArray(tools) ? tools : NULL;
}


static void
kve_parse_prompt_add(kve_server_t *s, kve_parsed_t *p, const cJSON *prompt)
{
    kve_buf_t  *b;

    if (p->nprompts == KVE_SUBS_MAX) {
        kve_parsed_fail(p, 400, "BadRequestError", "too many prompts");
        return;
    }

    p->prompts = realloc(p->prompts, (p->nprompts + 1) * sizeof(kve_buf_t));
    if (p->prompts == NULL) {
        abort();
    }

    b = &p->prompts[p->nprompts++];
    memset(b, 0, sizeof(kve_buf_t));
    kve_buf_str(b, "");

    if (cJSON_IsString(prompt)) {
        kve_buf_str(b, prompt->valuestring);

    } else {
        kve_render_ids(b, prompt, s->engine->opt.bytes_per_token);
    }

    if (b->len == 0) {
        kve_parsed_fail(p, 400, "BadRequestError", "the prompt is empty");
    }
}


/* a string, strings, token ids, or lists of token ids */

static void
kve_parse_prompts(kve_server_t *s, kve_parsed_t *p, const char *key)
{
    const cJSON  *prompt, *item;

    prompt = kve_json_get(p->body, key);

    if (cJSON_IsString(prompt)
        || (cJSON_IsArray(prompt) && cJSON_IsNumber(prompt->child)))
    {
        p->single = 1;
        kve_parse_prompt_add(s, p, prompt);
        return;
    }

    if (!cJSON_IsArray(prompt) || prompt->child == NULL) {
        kve_parsed_fail(p, 400, "BadRequestError", "%s: Field required", key);
        return;
    }

    cJSON_ArrayForEach(item, prompt) {
        kve_parse_prompt_add(s, p, item);
    }
}


static void
kve_parse_tool_choice(kve_server_t *s, kve_parsed_t *p)
{
    const char   *kind;
    const cJSON  *choice;

    choice = kve_json_get(p->body, "tool_choice");
    kind = cJSON_IsString(choice) ? choice->valuestring
                                  : kve_json_str(choice, "type");

    if (kind && strcmp(kind, "none") == 0) {

        if (s->engine->opt.dialect == KVE_SGLANG && p->api == KVE_CHAT) {
            p->tools = NULL;
        }

        return;
    }

    p->tools_allowed = 1;
}


static void
kve_parse_limits(kve_parsed_t *p)
{
    const cJSON  *o;

    o = p->body;
    p->max_tokens = -1;

    switch (p->api) {

    case KVE_RESPONSES:
        p->max_tokens = kve_json_int(o, "max_output_tokens", -1);
        break;

    default:
        p->max_tokens = kve_json_int(o, "max_tokens", -1);
        p->max_tokens = kve_json_int(o, "max_completion_tokens",
                                     p->max_tokens);
        p->min_tokens = kve_json_int(o, "min_tokens", 0);
        break;
    }

    p->ignore_eos = kve_json_true(o, "ignore_eos", 0);

    if (p->max_tokens == 0) {
        kve_parsed_fail(p, 400, "BadRequestError",
                       "max_tokens must be at least 1, got 0.");
    }
}


static void
kve_parse_root(kve_server_t *s, kve_parsed_t *p)
{
    int             i;
    kve_buf_t       b = { 0 };
    const char     *v, *name;
    kve_options_t  *opt;

    static const char  *salts[] = { "cache_salt", "extra_key", "lora_path" };

    opt = &s->engine->opt;
    name = kve_json_str(p->body, "model");
    p->model = name ? name : opt->model;

    /* all names of the base model share its cache */

    for (i = 0; i < opt->nloras && strcmp(p->model, opt->lora[i]); i++) {
        /* void */
    }

    kve_buf_str(&b, i < opt->nloras ? p->model : opt->model);

    for (i = 0; i < 3; i++) {
        v = kve_json_str(p->body, salts[i]);
        kve_buf_add(&b, "", 1);
        kve_buf_str(&b, v ? v : "");
    }

    p->root = XXH3_64bits(b.data, b.len);
    kve_buf_free(&b);
}


/* vLLM computes the whole prompt again to return log probabilities of it */

static void
kve_parse_skip(kve_server_t *s, kve_parsed_t *p)
{
    const cJSON  *asked;

    if (s->engine->opt.dialect == KVE_LLAMACPP) {
        p->skip_cache = !kve_json_true(p->body, "cache_prompt", 1);
        return;
    }

    asked = kve_json_get(p->body, "prompt_logprobs");

    if (asked == NULL || cJSON_IsNull(asked)) {
        asked = kve_json_true(p->body, "echo", 0)
                ? kve_json_get(p->body, p->api == KVE_CHAT ? "top_logprobs"
                                                           : "logprobs")
                : NULL;
    }

    p->skip_cache = cJSON_IsNumber(asked)
                    || (p->api == KVE_CHAT
                        && kve_json_true(p->body, "echo", 0));
}


/* keeps only the last tokens of a prompt */

static void
kve_parse_cut(kve_server_t *s, kve_parsed_t *p)
{
    int      i;
    size_t   max;
    int64_t  n;

    n = kve_json_int(p->body, "truncate_prompt_tokens", -1);

    if (n <= 0) {
        return;
    }

    max = (size_t) n * s->engine->opt.bytes_per_token;

    for (i = 0; i < p->nprompts; i++) {

        if (p->prompts[i].len > max) {
            memmove(p->prompts[i].data,
                    p->prompts[i].data + p->prompts[i].len - max, max);
            p->prompts[i].len = max;
        }
    }
}


static void
kve_parse_body(kve_server_t *s, kve_api_e api, const char *data, size_t len,
    kve_parsed_t *p)
{
    const cJSON    *kwargs, *options;
    kve_render_t    how = { 0 };
    kve_options_t  *opt;

    opt = &s->engine->opt;

    memset(p, 0, sizeof(kve_parsed_t));
    p->api = api;
    p->body = cJSON_ParseWithLength(data, len);

    if (!cJSON_IsObject(p->body)) {
        kve_parsed_fail(p, 400, "BadRequestError", "JSON decode error");
        return;
    }

    kve_parse_root(s, p);
    kve_parse_limits(p);

    p->stream = kve_json_true(p->body, "stream", 0);
    options = kve_json_get(p->body, "stream_options");
    p->include_usage = kve_json_true(options, "include_usage", 0)
                       || opt->force_include_usage;
    p->continuous_usage = kve_json_true(options, "continuous_usage_stats", 0);
    p->timings_per_token = kve_json_true(p->body, "timings_per_token", 0);
    p->background = api == KVE_RESPONSES && !p->stream
                    && kve_json_true(p->body, "background", 0);
    kve_parse_skip(s, p);
    p->n = kve_json_int(p->body, "n", 1);

    if (p->n < 1 || p->n > 16) {
        kve_parsed_fail(p, 400, "BadRequestError", "n must be 1 to 16");
        p->n = 1;
    }

    kwargs = kve_json_get(p->body, "chat_template_kwargs");
    how.image_bytes = 256 * opt->bytes_per_token;
    how.thinking = kve_json_true(kwargs, "enable_thinking", -1);

    switch (api) {

    case KVE_CHAT:
        kve_parse_chat(p);
        how.no_generation_prompt =
                      !kve_json_true(p->body, "add_generation_prompt", 1);
        how.continue_final =
                       kve_json_true(p->body, "continue_final_message", 0);
        p->continues = how.continue_final;
        break;

    case KVE_RESPONSES:
        kve_convert_responses(s, p);
        break;

    case KVE_MESSAGES:
        kve_convert_messages(p);
        break;

    case KVE_EMBEDDINGS:
        kve_parse_prompts(s, p, "input");
        return;

    default:
        p->continues = opt->continues && api == KVE_COMPLETIONS;
        kve_parse_prompts(s, p, "prompt");
        return;
    }

    if (p->status) {
        return;
    }

    kve_parse_tool_choice(s, p);

    p->prompts = calloc(1, sizeof(kve_buf_t));
    if (p->prompts == NULL) {
        abort();
    }

    p->nprompts = 1;
    p->single = 1;
    kve_render_messages(&p->prompts[0], p->messages, p->tools, &how);
}


void
kve_parse(kve_server_t *s, kve_api_e api, const char *data, size_t len,
    kve_parsed_t *p)
{
    kve_parse_body(s, api, data, len, p);

    if (p->status == 0) {
        kve_parse_cut(s, p);
    }
}
