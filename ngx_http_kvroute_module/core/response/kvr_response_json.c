
/*
 * Copyright (C) kvroute contributors
 */


#include "core/response/kvr_response_json.h"


/* kinds of events */

typedef enum {
    KVR_EVENT_NONE = 0,
    KVR_EVENT_EARLY,             /* precedes the prefill */
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
    KVR_LEAF_OTHER,
    KVR_LEAVES
} kvr_leaf_e;


/*
 * The members of each node for kvr_push_node(), with their node, leaf and
 * lowest mode.  A list is searched in order, so the most frequent members come
 * first.
 */

#define kvr_response_number(_, name, leaf, mode)                              \
    _(name, KVR_PUSH_NUMBER, 0, KVR_LEAF_ ## leaf, KVR_RESPONSE_ ## mode)
#define kvr_response_string(_, name, leaf, mode)                              \
    _(name, KVR_PUSH_STRING, 0, KVR_LEAF_ ## leaf, KVR_RESPONSE_ ## mode)
#define kvr_response_object(_, name, node, leaf, mode)                        \
    _(name, KVR_PUSH_OBJECT, KVR_NODE_ ## node, KVR_LEAF_ ## leaf,            \
      KVR_RESPONSE_ ## mode)
#define kvr_response_either(_, name, node, leaf, mode)                        \
    _(name, KVR_PUSH_OBJECT|KVR_PUSH_STRING, KVR_NODE_ ## node,               \
      KVR_LEAF_ ## leaf, KVR_RESPONSE_ ## mode)
#define kvr_response_array(_, name, node, mode)                               \
    _(name, KVR_PUSH_ARRAY, KVR_NODE_ ## node, KVR_LEAF_NONE,                 \
      KVR_RESPONSE_ ## mode)


#define kvr_response_root(_)                                                  \
    kvr_response_array(_, "choices", CHOICE, REPLY)                           \
    kvr_response_string(_, "type", TYPE, FIRST)                               \
    kvr_response_string(_, "id", ID, TOKENS)                                  \
    kvr_response_object(_, "usage", USAGE, NONE, TOKENS)                      \
    kvr_response_either(_, "error", ERROR, ERROR, FIRST)                      \
    kvr_response_number(_, "code", CODE, FIRST)                               \
    kvr_response_object(_, "prompt_progress", PROGRESS, EARLY, FIRST)         \
    kvr_response_object(_, "response", INNER, NONE, TOKENS)                   \
    kvr_response_object(_, "message", INNER, NONE, TOKENS)                    \
    kvr_response_object(_, "timings", TIMINGS, NONE, TOKENS)                  \
    kvr_response_object(_, "meta_info", META, NONE, TOKENS)                   \
    kvr_response_object(_, "details", TGI, NONE, TOKENS)                      \
    kvr_response_number(_, "tokens_evaluated", PROMPT, TOKENS)                \
    kvr_response_number(_, "tokens_predicted", COMPLETION, TOKENS)            \
    kvr_response_string(_, "content", OTHER, REPLY)                           \
    kvr_response_object(_, "content_block", BLOCK, NONE, REPLY)               \
    kvr_response_either(_, "delta", BLOCK, DELTA, REPLY)                      \
    kvr_response_object(_, "item", ITEM, NONE, REPLY)

#define kvr_response_inner(_)                                                 \
    kvr_response_string(_, "id", ID, TOKENS)                                  \
    kvr_response_object(_, "usage", USAGE, NONE, TOKENS)                      \
    kvr_response_object(_, "timings", TIMINGS, NONE, TOKENS)

#define kvr_response_usage(_)                                                 \
    kvr_response_number(_, "prompt_tokens", PROMPT, TOKENS)                   \
    kvr_response_number(_, "input_tokens", PROMPT, TOKENS)                    \
    kvr_response_number(_, "completion_tokens", COMPLETION, TOKENS)           \
    kvr_response_number(_, "output_tokens", COMPLETION, TOKENS)               \
    kvr_response_object(_, "prompt_tokens_details", DETAILS, NONE, TOKENS)    \
    kvr_response_object(_, "input_tokens_details", DETAILS, NONE, TOKENS)     \
    kvr_response_number(_, "cache_read_input_tokens", CACHE_READ, TOKENS)     \
    kvr_response_number(_, "cache_creation_input_tokens", CACHE_WRITE, TOKENS)

#define kvr_response_details(_)                                               \
    kvr_response_number(_, "cached_tokens", CACHED, TOKENS)

#define kvr_response_timings(_)                                               \
    kvr_response_number(_, "cache_n", CACHED, TOKENS)                         \
    kvr_response_number(_, "prompt_n", COMPUTED, TOKENS)                      \
    kvr_response_number(_, "predicted_n", COMPLETION, TOKENS)

#define kvr_response_progress(_)                                              \
    kvr_response_number(_, "total", TOTAL, TOKENS)                            \
    kvr_response_number(_, "cache", CACHE, TOKENS)

#define kvr_response_meta(_)                                                  \
    kvr_response_number(_, "prompt_tokens", PROMPT, TOKENS)                   \
    kvr_response_number(_, "cached_tokens", CACHED, TOKENS)                   \
    kvr_response_number(_, "completion_tokens", COMPLETION, TOKENS)

#define kvr_response_tgi(_)                                                   \
    kvr_response_number(_, "generated_tokens", COMPLETION, TOKENS)             \
    kvr_response_number(_, "input_length", LENGTH, TOKENS)

#define kvr_response_choice(_)                                                \
    kvr_response_number(_, "index", INDEX, REPLY)                             \
    kvr_response_object(_, "delta", DELTA, NONE, REPLY)                       \
    kvr_response_object(_, "message", DELTA, NONE, REPLY)                     \
    kvr_response_string(_, "text", OTHER, REPLY)

#define kvr_response_delta(_)                                                 \
    kvr_response_string(_, "content", CONTENT, REPLY)                         \
    kvr_response_string(_, "reasoning_content", REASONING, REPLY)             \
    kvr_response_string(_, "reasoning", REASONING, REPLY)                     \
    kvr_response_object(_, "audio", NOTHING, OTHER, REPLY)                    \
    kvr_response_string(_, "refusal", OTHER, REPLY)                           \
    kvr_response_array(_, "tool_calls", CALL, REPLY)

#define kvr_response_call(_)                                                  \
    kvr_response_object(_, "function", FUNCTION, NONE, REPLY)

#define kvr_response_function(_)                                              \
    kvr_response_string(_, "name", CALL, REPLY)                               \
    kvr_response_string(_, "arguments", ARGUMENTS, REPLY)

#define kvr_response_block(_)                                                 \
    kvr_response_string(_, "name", CALL, REPLY)                               \
    kvr_response_string(_, "text", CONTENT, REPLY)                            \
    kvr_response_string(_, "thinking", REASONING, REPLY)                      \
    kvr_response_string(_, "data", REASONING, REPLY)                          \
    kvr_response_string(_, "partial_json", INPUT, REPLY)

#define kvr_response_item(_)                                                  \
    kvr_response_string(_, "name", CALL, REPLY)

#define kvr_response_error(_)                                                 \
    kvr_response_number(_, "code", CODE, FIRST)                               \
    kvr_response_number(_, "http_status_code", CODE, FIRST)

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


typedef enum {
    KVR_WHEN_ANY = 0,
    KVR_WHEN_FIRST,              /* until the first event of a stream */
    KVR_WHEN_COUNTED             /* or next to the completion tokens (TGI) */
} kvr_when_e;


/* the handler of a leaf and its parameters */
struct kvr_response_leaf_s {
    void    (*take)(kvr_response_sink_t *sink);
    uint16_t  number;            /* offset of the number in kvr_response_t */
    uint8_t   seen;              /* the bit of the number */
    uint8_t   when;              /* kvr_when_e */
    uint8_t   part;              /* kvr_response_part_e of a text */
    uint8_t   other;             /* it is not content */
};


static void kvr_response_leaf(void *data, unsigned leaf, kvr_push_e what,
    const uint8_t *p, size_t len, uint64_t number);
static void kvr_response_take_type(kvr_response_sink_t *sink);
static void kvr_response_take_id(kvr_response_sink_t *sink);
static void kvr_response_take_early(kvr_response_sink_t *sink);
static void kvr_response_take_error(kvr_response_sink_t *sink);
static void kvr_response_take_code(kvr_response_sink_t *sink);
static void kvr_response_take_number(kvr_response_sink_t *sink);
static void kvr_response_take_index(kvr_response_sink_t *sink);
static void kvr_response_take_text(kvr_response_sink_t *sink);
static void kvr_response_take_delta(kvr_response_sink_t *sink);
static void kvr_response_text(kvr_response_sink_t *sink, unsigned part);


#define kvr_response_counts(bit, member, when)                                \
    { kvr_response_take_number, offsetof(kvr_response_t, member),             \
      KVR_RESPONSE_ ## bit, KVR_WHEN_ ## when, 0, 1 }
#define kvr_response_writes(part, other)                                      \
    { kvr_response_take_text, 0, 0, 0, KVR_RESPONSE_ ## part, other }

static const kvr_response_leaf_t  kvr_response_leaves[] = {
    [KVR_LEAF_TYPE]        = { kvr_response_take_type, 0, 0, 0, 0, 0 },
    [KVR_LEAF_ID]          = { kvr_response_take_id, 0, 0, 0, 0, 0 },
    [KVR_LEAF_EARLY]       = { kvr_response_take_early, 0, 0, 0, 0, 1 },
    [KVR_LEAF_ERROR]       = { kvr_response_take_error, 0, 0, 0, 0, 1 },
    [KVR_LEAF_CODE]        = { kvr_response_take_code, 0, 0, 0, 0, 1 },
    [KVR_LEAF_PROMPT]      = kvr_response_counts(PROMPT, prompt, ANY),
    [KVR_LEAF_COMPLETION]  = kvr_response_counts(COMPLETION, completion, ANY),
    [KVR_LEAF_LENGTH]      = kvr_response_counts(PROMPT, prompt, COUNTED),
    [KVR_LEAF_TOTAL]       = kvr_response_counts(PROMPT, prompt, FIRST),
    [KVR_LEAF_CACHE]       = kvr_response_counts(CACHED, cached, FIRST),
    [KVR_LEAF_CACHED]      = kvr_response_counts(CACHED, cached, ANY),
    [KVR_LEAF_CACHE_READ]  = kvr_response_counts(CACHE_READ, cache_read, ANY),
    [KVR_LEAF_CACHE_WRITE] = kvr_response_counts(CACHE_WRITE, cache_write, ANY),
    [KVR_LEAF_COMPUTED]    = kvr_response_counts(COMPUTED, computed, ANY),
    [KVR_LEAF_INDEX]       = { kvr_response_take_index, 0, 0, 0, 0, 0 },
    [KVR_LEAF_CONTENT]     = kvr_response_writes(CONTENT, 0),
    [KVR_LEAF_REASONING]   = kvr_response_writes(REASONING, 1),
    [KVR_LEAF_CALL]        = kvr_response_writes(CALL, 1),
    [KVR_LEAF_ARGUMENTS]   = kvr_response_writes(ARGUMENTS, 1),
    [KVR_LEAF_INPUT]       = kvr_response_writes(INPUT, 1),
    [KVR_LEAF_DELTA]       = { kvr_response_take_delta, 0, 0, 0, 0, 1 },
    [KVR_LEAF_OTHER]       = kvr_response_writes(OTHER, 1)
};

_Static_assert(kvr_nelts(kvr_response_leaves) == KVR_LEAVES,
    "a handler for each leaf");


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

    if (leaf == KVR_LEAF_NONE) {
        return;
    }

    sink->leaf = &kvr_response_leaves[leaf];
    sink->what = what;
    sink->p = p;
    sink->len = len;
    sink->number = number;

    sink->other |= sink->leaf->other;

    sink->leaf->take(sink);
}


static void
kvr_response_take_type(kvr_response_sink_t *sink)
{
    if (sink->what == KVR_PUSH_TEXT) {
        kvr_response_word(sink->u, sink->p, sink->len);

    } else {
        sink->other |= kvr_response_kind(sink->u);
        sink->u->word_len = 0;
    }
}


/* Takes an id; later requests only refer to ids of Responses. */
static void
kvr_response_take_id(kvr_response_sink_t *sink)
{
    kvr_response_t  *u;

    u = sink->u;

    if (u->id_done || (u->stream && u->first)) {
        return;
    }

    if (sink->what != KVR_PUSH_TEXT) {

        if (u->id_len > 5 && u->id_len <= KVR_RESPONSE_ID_LEN
            && memcmp(u->id, "resp_", 5) == 0)
        {
            u->id_done = 1;

        } else {
            u->id_len = 0;
        }

    } else if (u->id_len + sink->len > KVR_RESPONSE_ID_LEN) {
        u->id_len = KVR_RESPONSE_ID_LEN + 1;

    } else {
        memcpy(u->id + u->id_len, sink->p, sink->len);
        u->id_len = (uint8_t) (u->id_len + sink->len);
    }
}


static void
kvr_response_take_early(kvr_response_sink_t *sink)
{
    sink->u->early = 1;
}


static void
kvr_response_take_error(kvr_response_sink_t *sink)
{
    if (sink->what != KVR_PUSH_TEXT_END) {
        kvr_response_failed(sink->u);
    }
}


static void
kvr_response_take_code(kvr_response_sink_t *sink)
{
    kvr_response_t  *u;

    u = sink->u;

    if (u->error && sink->number / 100 == 4) {
        u->error = KVR_RESPONSE_CLIENT;

    } else if (u->error && sink->number / 100 == 5) {
        u->error = KVR_RESPONSE_SERVER;
    }
}


static void
kvr_response_take_number(kvr_response_sink_t *sink)
{
    unsigned         begun;
    kvr_response_t  *u;

    u = sink->u;
    begun = u->stream && u->first;

    if (sink->leaf->when == KVR_WHEN_FIRST && begun) {
        return;
    }

    if (sink->leaf->when == KVR_WHEN_COUNTED && begun && !u->counted) {
        return;
    }

    u->counted |= (sink->leaf->seen == KVR_RESPONSE_COMPLETION);

    if (sink->number <= INT32_MAX) {
        u->seen |= sink->leaf->seen;
        *(uint32_t *) (void *) ((uint8_t *) u + sink->leaf->number) =
            (uint32_t) sink->number;
    }
}


static void
kvr_response_take_index(kvr_response_sink_t *sink)
{
    if (sink->number == 0) {
        return;
    }

    sink->other = 1;

    if (sink->part) {
        sink->part(sink->ctx, KVR_RESPONSE_OTHER, NULL, 0);
    }
}


static void
kvr_response_take_text(kvr_response_sink_t *sink)
{
    if (sink->leaf->part == KVR_RESPONSE_CONTENT) {

        if (sink->what == KVR_PUSH_TEXT) {
            sink->from = sink->from ? sink->from : sink->p;
            sink->to = sink->p + sink->len;

        } else {
            sink->texts++;
        }
    }

    kvr_response_text(sink, sink->leaf->part);
}


/* Takes text whose kind the event tells; Anthropic's delta is an object. */
static void
kvr_response_take_delta(kvr_response_sink_t *sink)
{
    if (sink->what == KVR_PUSH_OPEN) {
        return;
    }

    if (sink->u->kind == KVR_EVENT_TEXT) {
        kvr_response_text(sink, KVR_RESPONSE_CONTENT);

    } else if (sink->u->kind == KVR_EVENT_REASONING) {
        kvr_response_text(sink, KVR_RESPONSE_REASONING);

    } else if (sink->u->kind == KVR_EVENT_ARGUMENTS) {
        kvr_response_text(sink, KVR_RESPONSE_ARGUMENTS);
    }
}


static void
kvr_response_text(kvr_response_sink_t *sink, unsigned part)
{
    if (sink->part == NULL) {
        return;
    }

    if (sink->what == KVR_PUSH_TEXT) {
        sink->part(sink->ctx, part, sink->p, sink->len);

    } else {
        sink->part(sink->ctx, part, NULL, 0);
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

        /* Anthropic's input excludes the tokens read and written */

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
