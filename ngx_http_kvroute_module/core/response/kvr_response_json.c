
/*
 * Copyright (C) kvroute contributors
 */


#include "core/response/kvr_response_json.h"


/* kinds of events, as far as it matters */

typedef enum {
    KVR_EVENT_NONE = 0,
    KVR_EVENT_EARLY,             /* comes before the prefill */
    KVR_EVENT_ERROR,
    KVR_EVENT_TEXT,              /* "delta" is text */
    KVR_EVENT_REASONING,
    KVR_EVENT_ARGUMENTS,
    KVR_EVENT_ITEM
} kvr_event_e;


typedef enum {
    KVR_NODE_ROOT = 0,
    KVR_NODE_USAGE,
    KVR_NODE_DETAILS,
    KVR_NODE_INNER,              /* "response", "message" */
    KVR_NODE_TIMINGS,
    KVR_NODE_PROGRESS,
    KVR_NODE_META,
    KVR_NODE_TGI,
    KVR_NODE_NOTHING,
    KVR_NODE_CHOICE,
    KVR_NODE_DELTA,
    KVR_NODE_CALL,
    KVR_NODE_FUNCTION,
    KVR_NODE_BLOCK,              /* Anthropic's */
    KVR_NODE_ITEM,               /* of Responses */
    KVR_NODE_ERROR,
    KVR_NODES
} kvr_node_e;

_Static_assert(KVR_NODES <= KVR_PUSH_NODES, "nodes of a table");


typedef enum {
    KVR_LEAF_NONE = 0,
    KVR_LEAF_TYPE,
    KVR_LEAF_ID,
    KVR_LEAF_EARLY,
    KVR_LEAF_ERROR,
    KVR_LEAF_CODE,
    KVR_LEAF_PROMPT,
    KVR_LEAF_COMPLETION,
    KVR_LEAF_GENERATED,
    KVR_LEAF_LENGTH,
    KVR_LEAF_TOTAL,
    KVR_LEAF_CACHE,
    KVR_LEAF_CACHED,
    KVR_LEAF_CACHE_READ,
    KVR_LEAF_CACHE_WRITE,
    KVR_LEAF_COMPUTED,
    KVR_LEAF_INDEX,
    KVR_LEAF_CONTENT,
    KVR_LEAF_REASONING,
    KVR_LEAF_CALL,
    KVR_LEAF_ARGUMENTS,
    KVR_LEAF_INPUT,
    KVR_LEAF_DELTA,
    KVR_LEAF_OTHER
} kvr_leaf_e;


#define N  KVR_PUSH_NUMBER
#define S  KVR_PUSH_STRING
#define O  KVR_PUSH_OBJECT
#define A  KVR_PUSH_ARRAY
#define R  KVR_RESPONSE_REPLY


/*
 * What each node has, as kvr_push_node() takes it.  A list is searched from its
 * beginning: what comes in each event is the first.
 */

#define kvr_response_root(_)                                                  \
    _("choices", A, KVR_NODE_CHOICE, 0, R)                                    \
    _("type", S, 0, KVR_LEAF_TYPE, 0)                                         \
    _("id", S, 0, KVR_LEAF_ID, 1)                                             \
    _("usage", O, KVR_NODE_USAGE, 0, 1)                                       \
    _("error", O|S, KVR_NODE_ERROR, KVR_LEAF_ERROR, 0)                        \
    _("code", N, 0, KVR_LEAF_CODE, 0)                                         \
    _("prompt_progress", O, KVR_NODE_PROGRESS, KVR_LEAF_EARLY, 0)             \
    _("response", O, KVR_NODE_INNER, 0, 1)                                    \
    _("message", O, KVR_NODE_INNER, 0, 1)                                     \
    _("timings", O, KVR_NODE_TIMINGS, 0, 1)                                   \
    _("meta_info", O, KVR_NODE_META, 0, 1)                                    \
    _("details", O, KVR_NODE_TGI, 0, 1)                                       \
    _("tokens_evaluated", N, 0, KVR_LEAF_PROMPT, 1)                           \
    _("tokens_predicted", N, 0, KVR_LEAF_COMPLETION, 1)                       \
    _("content", S, 0, KVR_LEAF_OTHER, R)                                     \
    _("content_block", O, KVR_NODE_BLOCK, 0, R)                               \
    _("delta", O|S, KVR_NODE_BLOCK, KVR_LEAF_DELTA, R)                        \
    _("item", O, KVR_NODE_ITEM, 0, R)

#define kvr_response_inner(_)                                                 \
    _("id", S, 0, KVR_LEAF_ID, 1)                                             \
    _("usage", O, KVR_NODE_USAGE, 0, 1)                                       \
    _("timings", O, KVR_NODE_TIMINGS, 0, 1)

#define kvr_response_usage(_)                                                 \
    _("prompt_tokens", N, 0, KVR_LEAF_PROMPT, 1)                              \
    _("input_tokens", N, 0, KVR_LEAF_PROMPT, 1)                               \
    _("completion_tokens", N, 0, KVR_LEAF_COMPLETION, 1)                      \
    _("output_tokens", N, 0, KVR_LEAF_COMPLETION, 1)                          \
    _("prompt_tokens_details", O, KVR_NODE_DETAILS, 0, 1)                     \
    _("input_tokens_details", O, KVR_NODE_DETAILS, 0, 1)                      \
    _("cache_read_input_tokens", N, 0, KVR_LEAF_CACHE_READ, 1)                \
    _("cache_creation_input_tokens", N, 0, KVR_LEAF_CACHE_WRITE, 1)

#define kvr_response_details(_)                                               \
    _("cached_tokens", N, 0, KVR_LEAF_CACHED, 1)

#define kvr_response_timings(_)                                               \
    _("cache_n", N, 0, KVR_LEAF_CACHED, 1)                                    \
    _("prompt_n", N, 0, KVR_LEAF_COMPUTED, 1)                                 \
    _("predicted_n", N, 0, KVR_LEAF_COMPLETION, 1)

#define kvr_response_progress(_)                                              \
    _("total", N, 0, KVR_LEAF_TOTAL, 1)                                       \
    _("cache", N, 0, KVR_LEAF_CACHE, 1)

#define kvr_response_meta(_)                                                  \
    _("prompt_tokens", N, 0, KVR_LEAF_PROMPT, 1)                              \
    _("cached_tokens", N, 0, KVR_LEAF_CACHED, 1)                              \
    _("completion_tokens", N, 0, KVR_LEAF_COMPLETION, 1)

#define kvr_response_tgi(_)                                                   \
    _("generated_tokens", N, 0, KVR_LEAF_GENERATED, 1)                        \
    _("input_length", N, 0, KVR_LEAF_LENGTH, 1)

#define kvr_response_choice(_)                                                \
    _("index", N, 0, KVR_LEAF_INDEX, R)                                       \
    _("delta", O, KVR_NODE_DELTA, 0, R)                                       \
    _("message", O, KVR_NODE_DELTA, 0, R)                                     \
    _("text", S, 0, KVR_LEAF_OTHER, R)

#define kvr_response_delta(_)                                                 \
    _("content", S, 0, KVR_LEAF_CONTENT, R)                                   \
    _("reasoning_content", S, 0, KVR_LEAF_REASONING, R)                       \
    _("reasoning", S, 0, KVR_LEAF_REASONING, R)                               \
    _("audio", O, KVR_NODE_NOTHING, KVR_LEAF_OTHER, R)                        \
    _("refusal", S, 0, KVR_LEAF_OTHER, R)                                     \
    _("tool_calls", A, KVR_NODE_CALL, 0, R)

#define kvr_response_call(_)                                                  \
    _("function", O, KVR_NODE_FUNCTION, 0, R)

#define kvr_response_function(_)                                              \
    _("name", S, 0, KVR_LEAF_CALL, R)                                         \
    _("arguments", S, 0, KVR_LEAF_ARGUMENTS, R)

#define kvr_response_block(_)                                                 \
    _("name", S, 0, KVR_LEAF_CALL, R)                                         \
    _("text", S, 0, KVR_LEAF_CONTENT, R)                                      \
    _("thinking", S, 0, KVR_LEAF_REASONING, R)                                \
    _("data", S, 0, KVR_LEAF_REASONING, R)                                    \
    _("partial_json", S, 0, KVR_LEAF_INPUT, R)

#define kvr_response_item(_)                                                  \
    _("name", S, 0, KVR_LEAF_CALL, R)

#define kvr_response_error(_)                                                 \
    _("code", N, 0, KVR_LEAF_CODE, 0)                                         \
    _("http_status_code", N, 0, KVR_LEAF_CODE, 0)

#define kvr_response_nothing(_)


static const kvr_push_node_t  kvr_response_table[] = {
    [KVR_NODE_ROOT]     = kvr_push_node(kvr_response_root),
    [KVR_NODE_INNER]    = kvr_push_node(kvr_response_inner),
    [KVR_NODE_USAGE]    = kvr_push_node(kvr_response_usage),
    [KVR_NODE_DETAILS]  = kvr_push_node(kvr_response_details),
    [KVR_NODE_TIMINGS]  = kvr_push_node(kvr_response_timings),
    [KVR_NODE_PROGRESS] = kvr_push_node(kvr_response_progress),
    [KVR_NODE_META]     = kvr_push_node(kvr_response_meta),
    [KVR_NODE_TGI]      = kvr_push_node(kvr_response_tgi),
    [KVR_NODE_CHOICE]   = kvr_push_node(kvr_response_choice),
    [KVR_NODE_DELTA]    = kvr_push_node(kvr_response_delta),
    [KVR_NODE_CALL]     = kvr_push_node(kvr_response_call),
    [KVR_NODE_FUNCTION] = kvr_push_node(kvr_response_function),
    [KVR_NODE_BLOCK]    = kvr_push_node(kvr_response_block),
    [KVR_NODE_ITEM]     = kvr_push_node(kvr_response_item),
    [KVR_NODE_ERROR]    = kvr_push_node(kvr_response_error),
    [KVR_NODE_NOTHING]  = kvr_push_node(kvr_response_nothing)
};

_Static_assert(kvr_nelts(kvr_response_table) == KVR_NODES,
    "a list for each node");

#undef N
#undef S
#undef O
#undef A
#undef R


static const struct {
    const char  *name;
    size_t       len;
    kvr_event_e  kind;
} kvr_response_events[] = {
    { "response.output_text.delta", 26, KVR_EVENT_TEXT },
    { "response.output_item.added", 26, KVR_EVENT_ITEM },
    { "ping", 4, KVR_EVENT_EARLY },
    { "error", 5, KVR_EVENT_ERROR },
    { "response.created", 16, KVR_EVENT_EARLY },
    { "response.in_progress", 20, KVR_EVENT_EARLY },
    { "response.queued", 15, KVR_EVENT_EARLY },
    { "response.failed", 15, KVR_EVENT_ERROR },
    { "response.reasoning_text.delta", 29, KVR_EVENT_REASONING },
    { "response.function_call_arguments.delta", 38, KVR_EVENT_ARGUMENTS },
    { NULL, 0, KVR_EVENT_NONE }
};


static void kvr_response_leaf(void *data, unsigned leaf, kvr_push_e what,
    const uint8_t *p, size_t len, uint64_t number);
static void kvr_response_text(kvr_response_sink_t *sink, unsigned leaf,
    kvr_push_e what, const uint8_t *p, size_t len);
static void kvr_response_part(kvr_response_sink_t *sink,
    kvr_response_part_e part, kvr_push_e what, const uint8_t *p, size_t len);
static void kvr_response_id(kvr_response_t *u, kvr_push_e what,
    const uint8_t *p, size_t len);
static void kvr_response_set(kvr_response_t *u, unsigned seen, uint32_t *to,
    uint64_t number);


int
kvr_response_feed(kvr_response_t *u, const uint8_t *data, size_t len,
    kvr_response_sink_t *sink)
{
    return kvr_push_feed(&u->json, kvr_response_table, data, len,
                         kvr_response_leaf, sink);
}


void
kvr_response_word(kvr_response_t *u, const uint8_t *p, size_t len)
{
    for ( /* void */ ; len; len--, p++) {

        if (u->word_len < KVR_RESPONSE_WORD_LEN) {
            u->word[u->word_len++] = *p;

        } else {
            u->word_len = KVR_RESPONSE_WORD_LEN + 1;
        }
    }
}


/* by the name of the event, or the type in its data */
unsigned
kvr_response_kind(kvr_response_t *u)
{
    unsigned  i;

    for (i = 0; kvr_response_events[i].name; i++) {

        if (kvr_response_events[i].len == u->word_len
            && memcmp(kvr_response_events[i].name, u->word, u->word_len) == 0)
        {
            u->kind = (uint8_t) kvr_response_events[i].kind;
            u->early |= (u->kind == KVR_EVENT_EARLY);

            if (u->kind == KVR_EVENT_ERROR) {
                kvr_response_failed(u);
            }

            return 1;
        }
    }

    return 0;
}


void
kvr_response_failed(kvr_response_t *u)
{
    u->early = 1;

    if (u->error == KVR_RESPONSE_NO_ERROR) {
        u->error = KVR_RESPONSE_UNCLEAR;
    }
}


static void
kvr_response_leaf(void *data, unsigned leaf, kvr_push_e what, const uint8_t *p,
    size_t len, uint64_t number)
{
    kvr_response_sink_t *sink = data;

    unsigned         late;
    kvr_response_t  *u;

    u = sink->u;
    late = u->stream && u->first;

    switch (leaf) {

    case KVR_LEAF_CONTENT:

        if (what == KVR_PUSH_TEXT) {
            sink->from = sink->from ? sink->from : p;
            sink->to = p + len;

        } else {
            sink->texts++;
        }

        break;

    case KVR_LEAF_ID:
    case KVR_LEAF_TYPE:
        break;

    case KVR_LEAF_INDEX:
        sink->other |= (number != 0);
        break;

    case KVR_LEAF_NONE:
        return;

    default:
        sink->other = 1;
    }

    switch (leaf) {

    case KVR_LEAF_TYPE:

        if (what == KVR_PUSH_TEXT) {
            kvr_response_word(u, p, len);

        } else {
            sink->other |= kvr_response_kind(u);
            u->word_len = 0;
        }

        return;

    case KVR_LEAF_EARLY:
        u->early = 1;
        return;

    case KVR_LEAF_ERROR:

        if (what != KVR_PUSH_TEXT_END) {
            kvr_response_failed(u);
        }

        return;

    case KVR_LEAF_CODE:

        if (u->error && number / 100 == 4) {
            u->error = KVR_RESPONSE_CLIENT;

        } else if (u->error && number / 100 == 5) {
            u->error = KVR_RESPONSE_SERVER;
        }

        return;

    case KVR_LEAF_ID:

        if (!late) {
            kvr_response_id(u, what, p, len);
        }

        return;

    case KVR_LEAF_TOTAL:

        if (!late) {
            kvr_response_set(u, KVR_RESPONSE_PROMPT, &u->prompt, number);
        }

        return;

    case KVR_LEAF_CACHE:

        if (!late) {
            kvr_response_set(u, KVR_RESPONSE_CACHED, &u->cached, number);
        }

        return;

    case KVR_LEAF_LENGTH:

        /* TGI writes it behind what it generated */

        if (!late || u->counted) {
            kvr_response_set(u, KVR_RESPONSE_PROMPT, &u->prompt, number);
        }

        return;

    case KVR_LEAF_GENERATED:
        u->counted = 1;
        kvr_response_set(u, KVR_RESPONSE_COMPLETION, &u->completion, number);
        return;

    case KVR_LEAF_PROMPT:
        kvr_response_set(u, KVR_RESPONSE_PROMPT, &u->prompt, number);
        return;

    case KVR_LEAF_COMPLETION:
        kvr_response_set(u, KVR_RESPONSE_COMPLETION, &u->completion, number);
        return;

    case KVR_LEAF_CACHED:
        kvr_response_set(u, KVR_RESPONSE_CACHED, &u->cached, number);
        return;

    case KVR_LEAF_CACHE_READ:
        kvr_response_set(u, KVR_RESPONSE_CACHE_READ, &u->cache_read, number);
        return;

    case KVR_LEAF_CACHE_WRITE:
        kvr_response_set(u, KVR_RESPONSE_CACHE_WRITE, &u->cache_write, number);
        return;

    case KVR_LEAF_COMPUTED:
        kvr_response_set(u, KVR_RESPONSE_COMPUTED, &u->computed, number);
        return;

    case KVR_LEAF_INDEX:

        if (number && sink->part) {
            sink->part(sink->ctx, KVR_RESPONSE_OTHER, NULL, 0);
        }

        return;
    }

    if (sink->part) {
        kvr_response_text(sink, leaf, what, p, len);
    }
}


static void
kvr_response_text(kvr_response_sink_t *sink, unsigned leaf, kvr_push_e what,
    const uint8_t *p, size_t len)
{
    kvr_response_part_e  part;

    part = KVR_RESPONSE_OTHER;

    switch (leaf) {

    case KVR_LEAF_CONTENT:
        part = KVR_RESPONSE_CONTENT;
        break;

    case KVR_LEAF_REASONING:
        part = KVR_RESPONSE_REASONING;
        break;

    case KVR_LEAF_CALL:
        part = KVR_RESPONSE_CALL;
        break;

    case KVR_LEAF_ARGUMENTS:
        part = KVR_RESPONSE_ARGUMENTS;
        break;

    case KVR_LEAF_INPUT:
        part = KVR_RESPONSE_INPUT;
        break;

    case KVR_LEAF_DELTA:

        /* Anthropic's is an object */

        if (what == KVR_PUSH_OPEN) {
            return;
        }

        switch (sink->u->kind) {

        case KVR_EVENT_TEXT:
            part = KVR_RESPONSE_CONTENT;
            break;

        case KVR_EVENT_REASONING:
            part = KVR_RESPONSE_REASONING;
            break;

        case KVR_EVENT_ARGUMENTS:
            part = KVR_RESPONSE_ARGUMENTS;
            break;

        default:
            return;
        }

        break;
    }

    kvr_response_part(sink, part, what, p, len);
}


static void
kvr_response_part(kvr_response_sink_t *sink, kvr_response_part_e part,
    kvr_push_e what, const uint8_t *p, size_t len)
{
    if (what == KVR_PUSH_TEXT) {
        sink->part(sink->ctx, part, p, len);

    } else {
        sink->part(sink->ctx, part, NULL, 0);
    }
}


/* only those of Responses are referred to */
static void
kvr_response_id(kvr_response_t *u, kvr_push_e what, const uint8_t *p,
    size_t len)
{
    if (u->id_done) {
        return;
    }

    if (what != KVR_PUSH_TEXT) {
        u->id_done = (u->id_len > 5 && u->id_len <= KVR_RESPONSE_ID_LEN
                      && memcmp(u->id, "resp_", 5) == 0);
        u->id_len *= u->id_done;
        return;
    }

    if (u->id_len + len > KVR_RESPONSE_ID_LEN) {
        u->id_len = KVR_RESPONSE_ID_LEN + 1;
        return;
    }

    memcpy(u->id + u->id_len, p, len);
    u->id_len = (uint8_t) (u->id_len + len);
}


static void
kvr_response_set(kvr_response_t *u, unsigned seen, uint32_t *to,
    uint64_t number)
{
    if (number <= INT32_MAX) {
        u->seen |= (uint8_t) seen;
        *to = (uint32_t) number;
    }
}


void
kvr_response_header(kvr_response_t *u, const uint8_t *name, size_t len,
    const uint8_t *value, size_t value_len)
{
    size_t    i;
    uint64_t  number;

    number = 0;

    for (i = 0; i < value_len && i < 10; i++) {

        if (value[i] < '0' || value[i] > '9') {
            return;
        }

        number = number * 10 + (value[i] - '0');
    }

    if (i == 0 || i < value_len) {
        return;
    }

    if (len == 15 && memcmp(name, "x-prompt-tokens", 15) == 0) {
        kvr_response_set(u, KVR_RESPONSE_PROMPT, &u->prompt, number);

    } else if (len == 18 && memcmp(name, "x-generated-tokens", 18) == 0) {
        kvr_response_set(u, KVR_RESPONSE_COMPLETION, &u->completion, number);
    }
}


void
kvr_response_tokens(const kvr_response_t *u, kvr_tokens_t *t)
{
    t->prompt = -1;
    t->cached = -1;
    t->completion = -1;

    if (u->seen & KVR_RESPONSE_COMPLETION) {
        t->completion = u->completion;
    }

    if (u->seen & KVR_RESPONSE_CACHED) {
        t->cached = u->cached;
    }

    if (u->seen & KVR_RESPONSE_CACHE_READ) {
        t->cached = u->cache_read;
    }

    if (u->seen & KVR_RESPONSE_PROMPT) {
        t->prompt = u->prompt;

        /* Anthropic's input is what was neither read nor written */

        if (u->seen & (KVR_RESPONSE_CACHE_READ|KVR_RESPONSE_CACHE_WRITE)) {
            t->prompt += u->cache_read;
            t->prompt += u->cache_write;
        }

    } else if (u->seen & KVR_RESPONSE_COMPUTED) {
        t->prompt = (int64_t) u->computed + u->cached;
    }

    if (t->prompt >= 0 && t->cached > t->prompt) {
        t->cached = t->prompt;
    }
}
