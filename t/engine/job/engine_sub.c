#include <math.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "job/engine_sub.h"
#include "reply/engine_reply.h"
#include "reply/engine_transfer.h"


/*
 * A sequence of a request.  Its reply is chosen before it runs, so its blocks
 * have names from the start.
 */


static const char *
kve_job_tool(kve_job_t *job, uint64_t seed)
{
    int              n;
    const cJSON     *tool;
    kve_parsed_t    *p;

    p = &job->parsed;

    n = cJSON_GetArraySize(p->tools);

    if (n == 0 || !p->tools_allowed || !job->want_tool) {
        return NULL;
    }

    tool = cJSON_GetArrayItem(p->tools, seed % n);

    return kve_json_str(kve_json_get(tool, "function"), "name");
}


/* chooses the length of the reply, and its finish reason */

static uint32_t
kve_job_length(kve_job_t *job, int64_t prompt, int64_t given,
    const char **finish)
{
    int64_t          n, max;
    kve_parsed_t    *p;

    p = &job->parsed;
    *finish = "stop";

    if (p->api == KVE_EMBEDDINGS) {
        return 1;
    }

    n = (int64_t) (job->server->settings.output_tokens + 0.5);
    max = job->server->engine->opt.max_model_len - prompt;

    if (p->max_tokens > 0 && p->max_tokens < max) {
        max = p->max_tokens;
    }

    if (p->ignore_eos && p->max_tokens > 0) {
        n = max + given;
    }

    if (n < p->min_tokens) {
        n = p->min_tokens;
    }

    if (job->want_output > 0) {
        /* the header has priority over the body */
        n = job->want_output;
        max = job->server->engine->opt.max_model_len - prompt;
    }

    n -= given;

    if (n >= max) {
        n = max;
        *finish = "length";
    }

    return n > 0 ? n : 1;
}


/* hashes the blocks of the prompt and the reply */

static void
kve_sub_hash(kve_sub_t *sub, const kve_buf_t *prompt, uint64_t root)
{
    char                *edge;
    size_t               i, n, at, block;
    uint64_t             h;
    const char          *p;
    const kve_buf_t     *reply;
    kve_server_t        *s;
    const kve_config_t  *cf;

    s = sub->job->server;
    cf = kve_replica_config(s->model);
    reply = &sub->reply.text;

    block = (size_t) cf->block_size * s->engine->opt.bytes_per_token;
    n = (prompt->len + reply->len) / block;

    sub->hashes = malloc((n + 1) * sizeof(uint64_t));
    edge = malloc(block);

    if (sub->hashes == NULL || edge == NULL) {
        abort();
    }

    h = root;

    for (i = 0; i < n; i++) {
        at = i * block;

        if (at + block <= prompt->len) {
            p = prompt->data + at;

        } else if (at >= prompt->len) {
            p = reply->data + (at - prompt->len);

        } else {
            memcpy(edge, prompt->data + at, prompt->len - at);
            memcpy(edge + (prompt->len - at), reply->data,
                   block - (prompt->len - at));
            p = edge;
        }

        h = XXH3_64bits_withSeed(p, block, h);
        sub->hashes[i] = h;
    }

    free(edge);

    sub->req.hashes = sub->hashes;
    sub->req.nhashes = n;
}


/*
 * Returns the tokens at the end of the prompt that are the start of its own
 * reply: a chat to continue, or a completion.
 */

static uint32_t
kve_sub_given(kve_job_t *job, const kve_buf_t *prompt)
{
    int           bpt;
    size_t        n, most;
    uint64_t      seed;
    kve_reply_t   reply;

    bpt = job->server->engine->opt.bytes_per_token;

    if (!job->parsed.continues) {
        return 0;
    }

    most = (prompt->len - 1) / bpt;
    most = most < 256 ? most : 256;

    for (n = most; n; n--) {
        seed = XXH3_64bits_withSeed(prompt->data, prompt->len - n * bpt,
                                    job->parsed.root);
        kve_reply_build(&reply, seed, n, bpt, 0, NULL);

        most = memcmp(reply.text.data, prompt->data + prompt->len - n * bpt,
                      n * bpt);
        kve_reply_free(&reply);

        if (most == 0) {
            return n;
        }
    }

    return 0;
}


void
kve_sub_init(kve_job_t *job, int i, const kve_buf_t *prompt)
{
    int64_t          reasoning;
    uint64_t         seed;
    uint32_t         tokens, given;
    const char      *tool, *finish;
    kve_sub_t       *sub;
    kve_options_t   *opt;

    opt = &job->server->engine->opt;
    sub = &job->subs[i];

    sub->job = job;
    sub->index = i;
    sub->part = -1;

    given = kve_sub_given(job, prompt);

    seed = XXH3_64bits_withSeed(prompt->data,
                                prompt->len - given * opt->bytes_per_token,
                                job->parsed.root + i % job->parsed.n);

    sub->req.data = sub;
    sub->req.prompt_tokens = kve_tokens(opt, prompt->len);
    sub->req.skip = job->parsed.skip_cache;
    sub->req.given = job->given;
    sub->req.source = job->source;

    tokens = kve_job_length(job, sub->req.prompt_tokens, given, &finish);
    sub->req.output_tokens = tokens;

    tool = NULL;
    reasoning = 0;

    if (job->parsed.api == KVE_CHAT || job->parsed.api == KVE_RESPONSES
        || job->parsed.api == KVE_MESSAGES)
    {
        tool = kve_job_tool(job, seed);
        reasoning = job->want_reasoning;
    }

    if (job->parsed.api != KVE_EMBEDDINGS) {
        kve_reply_build(&sub->reply, seed, tokens + given,
                        opt->bytes_per_token, reasoning, tool);
    }

    if (given) {
        kve_reply_skip(&sub->reply, given * opt->bytes_per_token);
    }

    kve_transfer_spoil(sub);

    sub->reply.finish = sub->reply.tool_name ? "tool_calls" : finish;

    kve_sub_hash(sub, prompt, job->parsed.root);
}
