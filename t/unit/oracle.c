
/*
 * Copyright (C) kvroute contributors
 */


#include "oracle_node.h"


#define MAX_DIGESTS  65536


/* in the order of mixing */

static const char *const  roots[] = {
    "tools", "cache_salt", "extra_key", "template", "chat_template_kwargs",
    "reasoning_effort", "reasoning", "think", "tool_choice", "documents",
    "add_special_tokens", "mm_processor_kwargs", "lora_path", "context",
    "images", "functions", "chat_template", "image_data"
};

#define ROOTS  (sizeof(roots) / sizeof(roots[0]))


static void
prompt_text(oracle_t *o, node_t *v, int i)
{
    node_t         *first;
    util_buf_t     *out;
    const uint8_t  *p;

    out = &o->section[i];

    if (v->kind == '"') {
        o->shape[i] = KVR_PROMPT_TEXT;
        node_string(o, v, out, 1);
        return;
    }

    if (v->kind != '[') {
        return;
    }

    /* a value that is hashed unchanged is only read at its start */

    for (p = v->p + 1; node_space(*p); p++) { /* void */ }

    if (*p != '"' && *p != '[' && *p != ']') {
        o->shape[i] = KVR_PROMPT_TOKENS;
        node_raw(o, v, out);
        return;
    }

    if (!node_open(o, v) || v->child == NULL) {
        return;
    }

    first = v->child;

    o->extra[i] = (uint64_t) (v->p + v->len - 1 - (first->p + first->len));

    if (first->kind == '"') {
        o->shape[i] = KVR_PROMPT_TEXT;
        node_string(o, first, out, 1);

    } else {
        o->shape[i] = KVR_PROMPT_TOKENS;
        node_raw(o, first, out);
    }
}


static void
prompt_system(oracle_t *o, node_t *v, int i)
{
    o->system = 1;
    oracle_content(o, v, 0, &o->section[i]);
    o->system = 0;
}


static void
prompt_input(oracle_t *o, node_t *v, int i)
{
    util_buf_t  *out;

    out = &o->section[i];

    if (v->kind == '"') {
        util_puts(out, "\1user\2");
        node_string(o, v, out, 1);
        o->shape[i] = KVR_PROMPT_INPUT;

    } else if (v->kind == '[') {
        oracle_messages(o, v, 0, out);
        o->shape[i] = KVR_PROMPT_INPUT;
    }
}


static void
prompt_tools(oracle_t *o, node_t *v, int i)
{
    if (v->kind == '[') {
        node_raw(o, v, &o->section[i]);

        if (o->section[i].len == 2) {
            o->section[i].len = 0;
        }
    }
}


static void
prompt_messages(oracle_t *o, node_t *v, int i)
{
    if (v->kind == '[') {
        oracle_messages(o, v, 0, &o->section[i]);
        o->shape[i] = KVR_PROMPT_CHAT;
    }
}


static const struct {
    const char   *name;
    int           section;
    void        (*handler)(oracle_t *o, node_t *v, int i);
} sections[] = {
    { "system", SYSTEM, prompt_system },
    { "instructions", INSTRUCTIONS, prompt_system },
    { "tools", TOOLS, prompt_tools },
    { "token_ids", TOKEN_IDS, prompt_text },
    { "input_ids", INPUT_IDS, prompt_text },
    { "text", TEXT, prompt_text },
    { "text_input", TEXT_INPUT, prompt_text },
    { "inputs", INPUTS, prompt_text },
    { "input", INPUT, prompt_input },
    { "prompt", PROMPT, prompt_text },
    { "messages", MESSAGES, prompt_messages }
};


/* all values of a key are read, and the last one counts */
static void
prompt_sections(oracle_t *o, node_t *body, int load)
{
    int      i;
    node_t  *v;

    for (v = body->child; v; v = v->next) {

        for (i = 0; i < SECTIONS; i++) {

            if (!node_is(v, sections[i].name)) {
                continue;
            }

            if (load && i >= TOKEN_IDS) {
                continue;
            }

            o->section[i].len = 0;
            o->shape[i] = KVR_PROMPT_NONE;
            o->extra[i] = 0;
            o->media = 0;

            sections[i].handler(o, v, i);
        }
    }
}


/* 0: not an integer */
static int
integer(node_t *v, int64_t *value)
{
    double           d;
    size_t           i;
    unsigned         digit;
    __int128         n;
    const uint8_t   *p;

    if (v == NULL || v->kind != '0') {
        return 0;
    }

    n = 0;

    for (i = 0; i < v->len; i++) {

        /* an exponent */

        if (v->p[i] == 'e' || v->p[i] == 'E') {
            return 0;
        }
    }

    for (p = v->p; p < v->p + v->len && *p != '.'; p++) {

        if (*p >= '0' && *p <= '9') {
            digit = *p - '0';
            n = n * 10 + digit;
            n = n > INT64_MAX ? INT64_MAX : n;
        }
    }

    *value = (int64_t) (v->p[0] == '-' ? -n : n);

    if (v->strict) {
        d = v->number;

        util_check(d >= 9e15 || d <= -9e15 || *value == (int64_t) d,
                   "cJSON reads another number");
    }

    return 1;
}


static int64_t
limit(oracle_t *o, node_t *body)
{
    size_t    i;
    int64_t   n;
    node_t   *v, *item;

    static const char *const  keys[] = {
        "max_completion_tokens", "max_output_tokens", "max_tokens",
        "max_new_tokens", "n_predict"
    };

    static const char *const  objects[] = {
        "options", "parameters", "sampling_params"
    };

    for (i = 0; i < 5; i++) {
        if (integer(node_get(body, keys[i]), &n) && n > 0) {
            return n;
        }
    }

    for (i = 0; i < 3; i++) {

        v = node_get(body, objects[i]);

        if (v == NULL || v->kind != '{' || !node_open(o, v)) {
            continue;
        }

        /* two names in one object: the last one counts */

        n = 0;

        for (item = v->child; item; item = item->next) {

            if (node_is(item, "max_new_tokens")
                || node_is(item, "num_predict"))
            {
                if (!integer(item, &n)) {
                    n = 0;
                }
            }
        }

        if (n > 0) {
            return n;
        }
    }

    return 0;
}


/* several replies: the number that comes last */
static int
sampled(oracle_t *o, node_t *body)
{
    int64_t   n;
    node_t   *v, *item;

    n = 0;

    for (v = body->child; v; v = v->next) {

        if (node_is(v, "n") && !integer(v, &n)) {
            n = 0;
        }

        if (node_is(v, "sampling_params") && v->kind == '{' && node_open(o, v))
        {
            for (item = v->child; item; item = item->next) {
                if (node_is(item, "n") && !integer(item, &n)) {
                    n = 0;
                }
            }
        }
    }

    return n > 1;
}


/* returns whether the index has an entry for this block, from 1 */
static int
entry(uint64_t n)
{
    return n <= 64 || (n <= 192 && n % 2 == 0) || (n <= 448 && n % 4 == 0)
           || n % 8 == 0;
}


/* the id of a response, at the end of the path or before a suffix */
static int
of_response(const char *path)
{
    size_t       len;
    const char  *id, *end;

    id = NULL;

    for (end = path; (end = strstr(end, "/responses/resp_")) != NULL; end++) {
        id = end + sizeof("/responses/") - 1;
    }

    if (id == NULL) {
        return 0;
    }

    end = strchr(id, '/');
    len = end ? (size_t) (end - id) : strlen(id);

    return len > 5 && len <= KVR_ENDPOINT_ID_LEN
           && (end == NULL || strcmp(end, "/cancel") == 0
               || strcmp(end, "/input_items") == 0);
}


static int
by_load(const kvr_prompt_conf_t *conf)
{
    size_t       i;
    char         path[256];

    static const char *const  words[] = {
        "/embed", "/embed_all", "/embed_sparse", "/embedding", "/embeddings",
        "/encode", "/rerank", "/reranking", "/score", "/pooling", "/classify",
        "/moderations", "/tokenize", "/chat_tokenize", "/detokenize",
        "/count_tokens", "/input_tokens", "/render", "/apply-template"
    };

    memcpy(path, conf->path, conf->path_len);
    path[conf->path_len] = '\0';

    if (of_response(path)) {
        return 1;
    }

    for (i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strrchr(path, '/') && strcmp(strrchr(path, '/'), words[i]) == 0) {
            return 1;
        }
    }

    return 0;
}


static void
fields(oracle_t *o, node_t *body, const kvr_prompt_conf_t *conf,
    kvr_prompt_t *pr)
{
    size_t       i;
    word_t       w;
    node_t      *v;
    const char  *s;
    char         path[256];

    static const char *const  names[] = {
        "prompt_cache_key", "session_id", "previous_response_id",
        "service_tier"
    };

    node_word(o, node_get(body, "model"), &w, KVR_PROMPT_MODEL_LEN);

    if (w.len == 0) {
        memcpy(path, conf->path, conf->path_len);
        path[conf->path_len] = '\0';

        s = strstr(path, "/models/");

        if (s) {
            s += 8;
            w.len = strcspn(s, "/");
            memcpy(w.data, s, w.len);
        }
    }

    pr->model_len = w.len;
    memcpy(pr->model, w.data, w.len);

    for (i = 0; i < KVR_PROMPT_FIELDS; i++) {

        node_word(o, node_get(body, names[i]), &w, KVR_PROMPT_FIELD_LEN);

        pr->field[i].len = w.cut ? 0 : w.len;
        memcpy(pr->field[i].data, w.data, pr->field[i].len);
    }

    v = node_get(body, "priority");
    pr->priority_set = integer(v, &pr->priority);
    pr->max_tokens = limit(o, body);
    pr->sampled = sampled(o, body);
}


static int
begins(node_t *body, const char *name, const char *with, int not)
{
    node_t  *v;

    v = node_get(body, name);

    return v && (strchr(with, v->p[0]) != NULL) != not;
}


/* if the prompt's log probabilities are asked for, the engine computes all */
static int
skips(node_t *body, kvr_prompt_shape_e shape)
{
    return begins(body, "prompt_logprobs", "n" "f", 1)
           || begins(body, "cache_prompt", "f", 0)
           || begins(body, "logprob_start_len", "0", 0)
           || (begins(body, "echo", "t", 0)
               && (begins(body, "logprobs", "n" "f", 1)
                   || shape == KVR_PROMPT_CHAT));
}


/* tokens left for the prompt, by the limit that comes last */
static int64_t
left(oracle_t *o, node_t *body)
{
    int64_t   n;
    node_t   *v, *item;

    n = 0;

    for (v = body->child; v; v = v->next) {

        if (node_is(v, "truncate_prompt_tokens")) {
            if (!integer(v, &n)) {
                n = 0;
            }
        }

        if (node_is(v, "parameters") && v->kind == '{' && node_open(o, v)) {

            for (item = v->child; item; item = item->next) {
                if (node_is(item, "truncate") && !integer(item, &n)) {
                    n = 0;
                }
            }
        }
    }

    return n > 0 ? n : 0;
}


/* parts of the prompt that are not in these bytes */
static int
apart(oracle_t *o, node_t *body, kvr_prompt_t *pr)
{
    size_t   i;
    node_t  *v;

    static const char *const  names[] = {
        "documents", "context", "images", "image_data"
    };

    for (i = 0; i < 4; i++) {
        v = node_get(body, names[i]);

        if (v && oracle_digest(o, v)) {
            return 1;
        }
    }

    return pr->field[KVR_PROMPT_PREVIOUS_ID].len != 0;
}


static void
chain(oracle_t *o, node_t *body, const kvr_prompt_conf_t *conf,
    oracle_result_t *res)
{
    int            i, load;
    size_t         k, n, all;
    node_t        *v;
    word_t         w;
    int64_t        tokens;
    uint64_t       h, *out, root[ROOTS] = { 0 };
    kvr_prompt_t  *pr;

    pr = &res->pr;
    load = by_load(conf);
    out = malloc(MAX_DIGESTS * sizeof(uint64_t));

    for (k = 0; k < ROOTS; k++) {

        v = node_get(body, roots[k]);

        if (v == NULL) {
            continue;
        }

        if (strcmp(roots[k], "tool_choice") == 0) {
            node_word(o, v, &w, 8);
            root[k] = word_is(&w, "none");

        } else if (strcmp(roots[k], "tools") != 0) {
            root[k] = oracle_digest(o, v);
        }
    }

    if (o->section[TOOLS].len) {
        n = util_blocks(&o->section[TOOLS], out, MAX_DIGESTS, 1);
        root[0] = 1;

        for (k = 0; k < n; k++) {
            root[0] = util_mix(root[0], out[k]);
        }
    }

    h = util_digest(conf->salt_len ? conf->salt : (const uint8_t *) "",
                    conf->salt_len);
    h = util_mix(h, util_digest(pr->model, pr->model_len));

    pr->model_root = h;

    for (k = 0; k < ROOTS; k++) {
        if (root[k]) {
            h = util_mix(util_mix(h, k), root[k]);
        }
    }

    pr->root = h;

    if (load) {
        pr->shape = KVR_PROMPT_NO_KV;

        pr->bytes = o->len;
    }

    for (i = MESSAGES; !load && i >= TOKEN_IDS; i--) {
        if (o->shape[i] != KVR_PROMPT_NONE) {
            break;
        }
    }

    if (load || i < TOKEN_IDS) {
        free(out);
        return;
    }

    pr->shape = o->shape[i];
    pr->extra = o->extra[i];

    all = util_blocks(&o->section[SYSTEM], out, MAX_DIGESTS, 1);
    all += util_blocks(&o->section[INSTRUCTIONS], out + all, MAX_DIGESTS, 1);
    all += util_blocks(&o->section[TOOLS], out + all, MAX_DIGESTS - all, 1);
    all += util_blocks(&o->section[i], out + all, MAX_DIGESTS - all, 0);

    util_check(all < MAX_DIGESTS, "too long for this test");

    pr->bytes = o->section[SYSTEM].len + o->section[INSTRUCTIONS].len
                + o->section[TOOLS].len + o->section[i].len;
    pr->blocks = (uint32_t) all;

    for (k = 0; k < all; k++) {
        h = util_mix(h, out[k]);

        if (entry(k + 1) && pr->n < ORACLE_MAX_CHAIN) {
            res->chain[pr->n++] = h;
        }
    }

    free(out);

    pr->skips = skips(body, pr->shape);
    pr->unsized = apart(o, body, pr);
    tokens = left(o, body);

    if (tokens && pr->bytes / 3 > (uint64_t) tokens) {
        pr->bytes = kvr_min(pr->bytes, 4 * (uint64_t) tokens);
        pr->n = 0;
        pr->blocks = 0;
        pr->unsized = 1;
    }
}


void
oracle_expect(oracle_t *o, node_t *body, const kvr_prompt_conf_t *conf,
    oracle_result_t *res)
{
    memset(res, 0, sizeof(*res));

    fields(o, body, conf, &res->pr);
    prompt_sections(o, body, by_load(conf));
    chain(o, body, conf, res);
}
