
/*
 * Copyright (C) kvroute contributors
 */


#include "bodies.h"


#define MAX_MEMBERS  64


/* an object whose members are written, in some order, when it is complete */

typedef struct {
    util_buf_t       value[MAX_MEMBERS];
    const char      *key[MAX_MEMBERS];
    unsigned         n;
} object_t;


/* the spelling of a body */

typedef struct {
    util_rng_t      *r;
    unsigned         blank;         /* percent of places with white space */
    unsigned         escape;        /* percent of characters escaped */
    unsigned         shuffle;       /* percent of objects out of order */
    unsigned         doubled;       /* percent of objects with a key twice */
    unsigned         wild;          /* percent of places with invalid syntax */
    unsigned         lengthy;       /* percent of long texts */
} style_t;


static void put_value(style_t *y, util_buf_t *b, unsigned depth);
static void put_parts(style_t *y, util_buf_t *b, unsigned depth);


static unsigned
chance(style_t *y, unsigned percent)
{
    return util_below(y->r, 100) < percent;
}


static void
put_blank(style_t *y, util_buf_t *b)
{
    unsigned  n;

    if (chance(y, y->blank)) {
        for (n = 1 + util_below(y->r, 1 + y->blank / 8); n; n--) {
            util_byte(b, (uint8_t) " \n\t\r"[util_below(y->r, 4)]);
        }
    }

    if (y->wild && chance(y, 1) && chance(y, y->wild)) {
        util_byte(b, 1 + util_below(y->r, 31));
    }
}


/* puts a character of a string, in a random equal spelling */
static void
put_char(style_t *y, util_buf_t *b, unsigned c)
{
    const char  *s;
    char         text[16];

    static const char  from[] = "\"\\/\b\f\n\r\t";
    static const char  to[] = "\"\\/bfnrt";

    s = c && c < 0x80 ? strchr(from, (int) c) : NULL;

    if (chance(y, y->escape) || (c < 0x20 && s == NULL)) {

        if (c >= 0x10000) {
            sprintf(text, "\\u%04x\\u%04x", 0xd800 + ((c - 0x10000) >> 10),
                    0xdc00 + ((c - 0x10000) & 0x3ff));

        } else {
            sprintf(text, util_below(y->r, 2) ? "\\u%04x" : "\\u%04X", c);
        }

        util_puts(b, text);

    } else if (s && (c != '/' || util_below(y->r, 8) == 0)) {
        util_byte(b, '\\');
        util_byte(b, (uint8_t) to[s - from]);

    } else if (c < 0x80) {
        util_byte(b, c);

    } else if (c < 0x800) {
        util_byte(b, 0xc0 | c >> 6);
        util_byte(b, 0x80 | (c & 63));

    } else if (c < 0x10000) {
        util_byte(b, 0xe0 | c >> 12);
        util_byte(b, 0x80 | (c >> 6 & 63));
        util_byte(b, 0x80 | (c & 63));

    } else {
        util_byte(b, 0xf0 | c >> 18);
        util_byte(b, 0x80 | (c >> 12 & 63));
        util_byte(b, 0x80 | (c >> 6 & 63));
        util_byte(b, 0x80 | (c & 63));
    }
}


static void
put_wild_char(style_t *y, util_buf_t *b)
{
    switch (util_below(y->r, 8)) {

    case 0:
        util_byte(b, 1 + util_below(y->r, 31));
        break;

    case 1:
        util_puts(b, "\\u0000");
        break;

    case 2:
        util_puts(b, "\\q");
        break;

    case 3:
        util_puts(b, "\\u12g4");
        break;

    case 4:
        util_byte(b, 0x80 + util_below(y->r, 128));
        break;

    default:
        util_printf(b, "\\u%04x", 0xd800 + util_below(y->r, 0x800));
    }
}


static void
put_quoted(style_t *y, util_buf_t *b, const char *s)
{
    util_byte(b, '"');

    for ( /* void */ ; *s; s++) {
        put_char(y, b, (uint8_t) *s);
    }

    util_byte(b, '"');
}


static void
put_text(style_t *y, util_buf_t *b, size_t len)
{
    size_t    end;
    unsigned  c, code;

    static const char  common[] = "eeeettaaoinshrdlu     \n{}()[];,.\"\"=/\\'_<"
                                  ">";

    code = util_below(y->r, 3);
    end = b->len + len;

    util_byte(b, '"');

    while (b->len < end) {

        if (y->wild && chance(y, 2) && chance(y, y->wild)) {
            put_wild_char(y, b);
            continue;
        }

        if (code || util_below(y->r, 4)) {
            c = (uint8_t) common[util_below(y->r, sizeof(common) - 1)];

        } else {

            switch (util_below(y->r, 5)) {

            case 0:
                c = 1 + util_below(y->r, 0x7f);
                break;

            case 1:
                c = 0x80 + util_below(y->r, 0x780);
                break;

            case 2:
                c = 0x4e00 + util_below(y->r, 0x5000);
                break;

            case 3:
                c = 0x1f300 + util_below(y->r, 0x400);
                break;

            default:
                c = 'a' + util_below(y->r, 26);
            }
        }

        put_char(y, b, c);
    }

    util_byte(b, '"');
}


static void
put_some_text(style_t *y, util_buf_t *b)
{
    unsigned  n;

    n = util_below(y->r, 60);

    if (chance(y, y->lengthy)) {
        n = util_below(y->r, util_below(y->r, 4) ? 600 : 5000);
    }

    put_text(y, b, n);
}


static void
put_number(style_t *y, util_buf_t *b)
{
    static const char *const  wild[] = {
        "01", "-", "1.", "1e", "-.5", "1.2.3", "1-2", "12abc", "1\"x\"", "0x1f",
        "00000000000000000000000000000000000000000000000000000000000000000001"
    };

    static const char *const  tame[] = {
        "0", "1", "-1", "0.7", "1e3", "2.5E-3", "100", "4096", "-0",
        "12345678901234567890123", "9007199254740993", "0.0"
    };

    if (y->wild && chance(y, 5)) {
        util_puts(b, wild[util_below(y->r, sizeof(wild) / sizeof(wild[0]))]);

    } else if (util_below(y->r, 2)) {
        util_puts(b, tame[util_below(y->r, sizeof(tame) / sizeof(tame[0]))]);

    } else {
        util_printf(b, "%u", util_below(y->r, 50000));
    }
}


static util_buf_t *
add(object_t *o, const char *key)
{
    o->key[o->n] = key;
    memset(&o->value[o->n], 0, sizeof(util_buf_t));

    return &o->value[o->n++];
}


static void
add_string(style_t *y, object_t *o, const char *key, const char *value)
{
    put_quoted(y, add(o, key), value);
}


static void
emit(style_t *y, object_t *o, util_buf_t *b)
{
    unsigned    i, k, order[MAX_MEMBERS + 2];
    util_buf_t  other;

    for (i = 0; i < o->n; i++) {
        order[i] = i;
    }

    if (chance(y, y->shuffle)) {
        for (i = o->n; i > 1; i--) {
            k = util_below(y->r, i);
            order[o->n] = order[i - 1];
            order[i - 1] = order[k];
            order[k] = order[o->n];
        }
    }

    util_byte(b, '{');

    for (i = 0; i < o->n; i++) {

        if (i) {
            util_byte(b, ',');
        }

        /* the same key with another value before or after it */

        if (chance(y, y->doubled)) {
            memset(&other, 0, sizeof(other));
            k = order[util_below(y->r, o->n)];

            if (util_below(y->r, 3)) {
                put_value(y, &other, 3);

            } else {
                util_put(&other, o->value[k].p, o->value[k].len);
            }

            put_blank(y, b);
            put_quoted(y, b, o->key[k]);
            util_byte(b, ':');
            util_put(b, other.p, other.len);
            util_byte(b, ',');

            util_drop(&other);
        }

        put_blank(y, b);
        put_quoted(y, b, o->key[order[i]]);
        put_blank(y, b);
        util_byte(b, ':');
        put_blank(y, b);
        util_put(b, o->value[order[i]].p, o->value[order[i]].len);
        put_blank(y, b);
    }

    if (o->n == 0) {
        put_blank(y, b);
    }

    util_byte(b, '}');

    for (i = 0; i < o->n; i++) {
        util_drop(&o->value[i]);
    }
}


/* puts a value, sometimes with keys that the reader looks for */
static void
put_value(style_t *y, util_buf_t *b, unsigned depth)
{
    unsigned  n;
    object_t  o;

    static const char *const  keys[] = {
        "a", "type", "content", "text", "role", "name", "url", "data", "model",
        "messages", "function", "arguments", "",
        "a key that is longer than the buffer the reader has for escaped keys"
    };

    switch (util_below(y->r, depth ? 9 : 6)) {

    case 0:
        util_puts(b, "null");
        break;

    case 1:
        util_puts(b, util_below(y->r, 2) ? "true" : "false");
        break;

    case 2:
        put_number(y, b);
        break;

    case 3:
    case 4:
    case 5:
        put_some_text(y, b);
        break;

    case 6:
        util_byte(b, '[');

        for (n = util_below(y->r, 5); n; n--) {
            put_blank(y, b);
            put_value(y, b, depth - 1);
            put_blank(y, b);

            if (n > 1) {
                util_byte(b, ',');
            }
        }

        util_byte(b, ']');

        if (y->wild && chance(y, 3)) {

            /* brackets match, but no more than that */

            b->p[b->len - 1] = ' ';
            util_puts(b, ",]");
        }

        break;

    default:
        o.n = 0;

        for (n = util_below(y->r, 5); n; n--) {
            put_value(y, add(&o, keys[util_below(y->r, sizeof(keys)
                                                       / sizeof(keys[0]))]),
                      depth - 1);
        }

        emit(y, &o, b);
    }
}


static void
put_media(style_t *y, util_buf_t *b)
{
    unsigned  n;
    object_t  o;

    static const char *const  keys[] = {
        "url", "data", "file_data", "file_id", "detail", "media_type", "type"
    };

    switch (util_below(y->r, 8)) {

    case 0:
        put_value(y, b, 2);
        break;

    case 1:
        put_text(y, b, util_below(y->r, 2000));
        break;

    case 2:
        util_byte(b, '[');

        for (n = util_below(y->r, 4); n; n--) {
            put_some_text(y, b);
            util_puts(b, n > 1 ? "," : "");
        }

        util_byte(b, ']');
        break;

    default:
        o.n = 0;

        for (n = 1 + util_below(y->r, 3); n; n--) {
            put_some_text(y, add(&o, keys[util_below(y->r, 7)]));
        }

        emit(y, &o, b);
    }
}


static void
put_part(style_t *y, util_buf_t *b, unsigned depth)
{
    object_t    o;
    util_buf_t  *v;

    static const char *const  media[] = {
        "image_url", "source", "input_audio", "audio_url", "video_url",
        "image_embeds", "file", "file_data", "file_id"
    };

    o.n = 0;

    /* some are deep */

    switch (depth > 3 ? 5 : util_below(y->r, 12)) {

    case 0:
        put_some_text(y, b);
        return;

    case 1:
        put_value(y, b, 2);
        return;

    case 2:
        add_string(y, &o, "type", "image");
        put_media(y, add(&o, media[util_below(y->r, 9)]));
        break;

    case 3:
        add_string(y, &o, "type", util_below(y->r, 2) ? "thinking"
                                                      : "redacted_thinking");
        put_some_text(y, add(&o, "thinking"));
        put_some_text(y, add(&o, "text"));
        put_some_text(y, add(&o, "signature"));
        break;

    case 4:
        add_string(y, &o, "type", "tool_use");
        add_string(y, &o, "id", "toolu_01A");
        add_string(y, &o, "name", "get_weather");
        put_value(y, add(&o, "input"), 3);
        break;

    case 5:
        add_string(y, &o, "type", "tool_result");
        add_string(y, &o, "tool_use_id", "toolu_01A");
        v = add(&o, "content");

        if (depth < 4 && util_below(y->r, 2)) {
            put_some_text(y, v);

        } else if (depth) {
            put_parts(y, v, depth - 1);

        } else {
            put_value(y, v, 1);
        }

        break;

    default:
        add_string(y, &o, "type", util_below(y->r, 2) ? "text" : "input_text");
        put_some_text(y, add(&o, util_below(y->r, 20) ? "text" : "refusal"));
    }

    if (util_below(y->r, 6) == 0) {
        util_puts(add(&o, "cache_control"), "{\"type\":\"ephemeral\"}");
    }

    if (depth && depth < 4 && util_below(y->r, 30) == 0) {
        put_parts(y, add(&o, "content"), depth - 1);
    }

    emit(y, &o, b);
}


static void
put_parts(style_t *y, util_buf_t *b, unsigned depth)
{
    unsigned  n;

    util_byte(b, '[');

    for (n = depth > 3 ? 1 : util_below(y->r, 5); n; n--) {
        put_blank(y, b);
        put_part(y, b, depth);
        put_blank(y, b);
        util_puts(b, n > 1 ? "," : "");
    }

    util_byte(b, ']');
}


static void
put_content(style_t *y, util_buf_t *b)
{
    switch (util_below(y->r, 12)) {

    case 0:
        util_puts(b, "null");
        break;

    case 1:
        put_value(y, b, 3);
        break;

    case 2:
        put_part(y, b, 2);
        break;

    case 3:
    case 4:
    case 5:
    case 6:
        put_parts(y, b, util_below(y->r, 40) ? 2 : 10);
        break;

    default:
        put_some_text(y, b);
    }
}


static void
put_function(style_t *y, util_buf_t *b)
{
    object_t  o;

    o.n = 0;
    add_string(y, &o, "name", "get_current_weather");

    if (util_below(y->r, 4)) {
        put_some_text(y, add(&o, "arguments"));

    } else {
        put_value(y, add(&o, util_below(y->r, 2) ? "arguments" : "input"), 3);
    }

    emit(y, &o, b);
}


static void
put_message(style_t *y, util_buf_t *b)
{
    unsigned     n;
    object_t     o, call;
    util_buf_t  *v;

    static const char *const  roles[] = {
        "user", "assistant", "system", "developer", "tool", "user", "assistant",
        "a role whose name is longer than any that there is"
    };

    static const char *const  types[] = {
        "message", "function_call", "function_call_output", "reasoning",
        "item_reference", "message", "web_search_call", ""
    };

    if (util_below(y->r, 40) == 0) {
        put_value(y, b, 2);
        return;
    }

    o.n = 0;

    if (util_below(y->r, 5) == 0) {
        add_string(y, &o, "type", types[util_below(y->r, 8)]);
    }

    if (util_below(y->r, 10)) {
        add_string(y, &o, "role", roles[util_below(y->r, 8)]);
    }

    if (util_below(y->r, 10) == 0) {
        put_value(y, add(&o, "name"), 0);
    }

    if (util_below(y->r, 8)) {
        put_content(y, add(&o, util_below(y->r, 12) ? "content" : "output"));

        if (util_below(y->r, 40) == 0) {
            put_content(y, add(&o, "output"));
        }
    }

    if (util_below(y->r, 20) == 0) {
        put_media(y, add(&o, "images"));
    }

    if (util_below(y->r, 12) == 0) {
        put_some_text(y, add(&o, util_below(y->r, 4) ? "arguments" : "input"));
    }

    if (util_below(y->r, 6) == 0) {
        v = add(&o, "tool_calls");
        util_byte(v, '[');

        for (n = util_below(y->r, 4); n; n--) {
            call.n = 0;
            add_string(y, &call, "id", "call_1");
            add_string(y, &call, "type", "function");
            put_function(y, add(&call, util_below(y->r, 8) ? "function"
                                                           : "custom"));
            emit(y, &call, v);
            util_puts(v, n > 1 ? "," : "");
        }

        util_byte(v, ']');
    }

    if (util_below(y->r, 30) == 0) {
        put_function(y, add(&o, "function_call"));
    }

    if (util_below(y->r, 30) == 0) {
        put_value(y, add(&o, "tools"), 3);
    }

    if (util_below(y->r, 8) == 0) {
        add_string(y, &o, "tool_call_id", "call_1");
        put_some_text(y, add(&o, "reasoning_content"));
    }

    emit(y, &o, b);
}


static void
put_messages(style_t *y, util_buf_t *b)
{
    unsigned  n;

    util_byte(b, '[');

    for (n = util_below(y->r, util_below(y->r, 4) ? 6 : 41); n; n--) {
        put_blank(y, b);
        put_message(y, b);
        put_blank(y, b);
        util_puts(b, n > 1 ? "," : "");
    }

    util_byte(b, ']');
}


static void
put_tools(style_t *y, util_buf_t *b)
{
    unsigned  n;
    object_t  o;

    if (util_below(y->r, 10) == 0) {
        put_value(y, b, 3);
        return;
    }

    util_byte(b, '[');

    for (n = util_below(y->r, 4); n; n--) {
        o.n = 0;
        add_string(y, &o, "type", "function");
        put_value(y, add(&o, "function"), 4);
        put_blank(y, b);
        emit(y, &o, b);
        put_blank(y, b);
        util_puts(b, n > 1 ? "," : "");
    }

    put_blank(y, b);
    util_byte(b, ']');
}


static void
put_tokens(style_t *y, util_buf_t *b)
{
    unsigned  n;

    util_byte(b, '[');

    for (n = util_below(y->r, 300); n; n--) {
        put_blank(y, b);
        util_printf(b, "%u", util_below(y->r, 128000));
        util_puts(b, n > 1 ? "," : "");
    }

    util_byte(b, ']');
}


static void
put_prompt(style_t *y, util_buf_t *b)
{
    unsigned  n, tokens;

    switch (util_below(y->r, 6)) {

    case 0:
    case 1:
        util_byte(b, '[');
        put_blank(y, b);

        tokens = util_below(y->r, 2);

        for (n = util_below(y->r, 4); n; n--) {

            if (tokens) {
                put_tokens(y, b);

            } else {
                put_some_text(y, b);
            }

            put_blank(y, b);
            util_puts(b, n > 1 ? "," : "");
            put_blank(y, b);
        }

        util_byte(b, ']');
        break;

    case 2:
        put_tokens(y, b);
        break;

    case 3:
        put_value(y, b, 3);
        break;

    default:
        put_some_text(y, b);
    }
}


/* puts members that bodies of any API can have */
static void
add_others(style_t *y, object_t *o)
{
    unsigned  n;

    static const char *const  keys[] = {
        "temperature", "top_p", "stream", "user", "metadata", "stop", "seed",
        "max_tokens", "max_completion_tokens", "max_output_tokens",
        "max_new_tokens", "n_predict", "priority", "prompt_cache_key",
        "session_id", "previous_response_id", "service_tier", "options",
        "parameters", "sampling_params", "request_id", "stream_options",
        "logit_bias", "response_format", "store", "include", "n", "system ",
        "Model", "messagess", "echo", "logprobs", "prompt_logprobs",
        "cache_prompt", "logprob_start_len"
    };

    static const char *const  flag[] = { "true", "false", "null", "0", "1" };

    static const char *const  roots[] = {
        "think", "images", "context", "template", "extra_key", "reasoning",
        "lora_path", "documents", "functions", "cache_salt", "image_data",
        "tool_choice", "chat_template", "reasoning_effort",
        "add_special_tokens", "mm_processor_kwargs", "chat_template_kwargs",
        "truncate_prompt_tokens"
    };

    for (n = util_below(y->r, 5); n; n--) {
        put_value(y, add(o, keys[util_below(y->r, sizeof(keys)
                                                  / sizeof(keys[0]))]), 2);
    }

    for (n = util_below(y->r, 3); n; n--) {
        put_value(y, add(o, roots[util_below(y->r, sizeof(roots)
                                                   / sizeof(roots[0]))]), 2);
    }

    if (util_below(y->r, 4) == 0) {
        put_number(y, add(o, keys[7 + util_below(y->r, 6)]));
    }

    if (util_below(y->r, 4) == 0) {
        util_puts(add(o, "stream"), util_below(y->r, 4) ? "true" : "false");
    }

    if (util_below(y->r, 6) == 0) {
        util_puts(add(o, keys[17 + util_below(y->r, 3)]),
                  util_below(y->r, 2) ? "{\"num_predict\": 12}"
                  : "{\"x\":[1],\"max_new_tokens\":7,\"num_predict\":null}");
    }

    if (util_below(y->r, 6) == 0) {
        util_puts(add(o, keys[30 + util_below(y->r, 5)]),
                  flag[util_below(y->r, 5)]);
    }

    if (util_below(y->r, 12) == 0) {
        put_number(y, add(o, "truncate_prompt_tokens"));
    }

    if (util_below(y->r, 12) == 0) {
        util_puts(add(o, "parameters"), util_below(y->r, 2)
                  ? "{\"truncate\": 12}"
                  : "{\"truncate\":90,\"truncate\":null}");
    }

    if (util_below(y->r, 12) == 0) {
        put_number(y, add(o, "n"));
    }

    if (util_below(y->r, 12) == 0) {
        util_puts(add(o, "sampling_params"), util_below(y->r, 2)
                  ? "{\"n\": 8}" : "{\"n\":4,\"n\":1}");
    }

    if (util_below(y->r, 6) == 0) {
        add_string(y, o, "tool_choice", util_below(y->r, 2) ? "none" : "auto");
    }
}


void
bodies_make(util_rng_t *r, util_buf_t *out, const char **path)
{
    object_t  o;
    style_t   style, *y;

    static const char *const  paths[] = {
        "/v1/chat/completions", "/v1/messages", "/v1/responses",
        "/v1/completions", "/generate", "/v2/models/llama/generate", "/",
        "/api/chat", "", "/v1/embeddings", "/v1/messages/count_tokens",
        "/v2/models/m/versions/1/generate_stream"
    };

    y = &style;

    y->r = r;
    y->blank = util_below(r, 3) ? 0 : util_below(r, 60);
    y->escape = util_below(r, 3) ? 0 : util_below(r, 2) ? 3 : 50;
    y->shuffle = util_below(r, 2) ? 0 : util_below(r, 100);
    y->doubled = util_below(r, 4) ? 0 : util_below(r, 15);
    y->wild = util_below(r, 6) ? 0 : util_below(r, 50);
    y->lengthy = util_below(r, 3) ? 10 : util_below(r, 60);

    o.n = 0;
    *path = paths[util_below(r, util_below(r, 4) ? 9 : 12)];

    if (util_below(r, 8)) {
        add_string(y, &o, "model", util_below(r, 8)
                   ? "meta-llama/Llama-3.1-8B-Instruct" : "");
    }

    switch (util_below(r, 12)) {

    case 0:
        put_prompt(y, add(&o, "prompt"));

        if (util_below(r, 4) == 0) {
            put_content(y, add(&o, "system"));
        }

        break;

    case 1:
        put_prompt(y, add(&o, util_below(r, 2) ? "text" : "text_input"));
        break;

    case 2:
        put_prompt(y, add(&o, util_below(r, 2) ? "inputs" : "input_ids"));
        break;

    case 3:
    case 4:
        put_content(y, add(&o, "instructions"));
        put_tools(y, add(&o, "tools"));

        if (util_below(r, 3)) {
            put_messages(y, add(&o, "input"));

        } else {
            put_prompt(y, add(&o, "input"));
        }

        break;

    case 5:
        put_value(y, add(&o, "messages"), 3);
        put_value(y, add(&o, util_below(r, 2) ? "prompt" : "token_ids"), 3);
        put_value(y, add(&o, util_below(r, 2) ? "input" : "system"), 3);
        break;

    case 6:
    case 7:
        put_content(y, add(&o, "system"));
        /* fall through */

    default:
        if (util_below(r, 3) == 0) {
            put_tools(y, add(&o, "tools"));
        }

        put_messages(y, add(&o, "messages"));
    }

    add_others(y, &o);

    out->len = 0;

    if (y->wild && util_below(r, 30) == 0) {
        util_puts(out, "\xef\xbb\xbf");
    }

    put_blank(y, out);

    if (y->wild && util_below(r, 20) == 0) {
        util_byte(out, '[');
        emit(y, &o, out);
        util_byte(out, ']');

    } else {
        emit(y, &o, out);
    }

    put_blank(y, out);
}


void
bodies_damage(util_rng_t *r, util_buf_t *body)
{
    size_t    at, n;
    unsigned  times;

    static const char  bytes[] = "{}[]\",:\\u0 \n\tabntf1-.e\x00\x01\xff";

    for (times = 1 + util_below(r, 3); times && body->len > 8; times--) {

        at = util_below(r, (unsigned) body->len);
        n = 1 + util_below(r, util_below(r, 2) ? 2 : 20);
        n = kvr_min(n, body->len - at);

        switch (util_below(r, 7)) {

        case 0:
            body->p[at] ^= (uint8_t) (1 << util_below(r, 8));
            break;

        case 1:
        case 2:
            body->p[at] = (uint8_t) bytes[util_below(r, sizeof(bytes) - 1)];
            break;

        case 3:
            memmove(body->p + at, body->p + at + n, body->len - at - n);
            body->len -= n;
            break;

        case 4:
            util_byte(body, 0);
            memmove(body->p + at + 1, body->p + at, body->len - at - 1);
            body->p[at] = (uint8_t) bytes[util_below(r, sizeof(bytes) - 1)];
            break;

        case 5:

            /* doubled */

            util_put(body, body->p, 0);

            {
                util_buf_t  copy;

                memset(&copy, 0, sizeof(copy));
                util_put(&copy, body->p + at, body->len - at);
                body->len = at + n;
                util_put(body, copy.p, copy.len);
                util_drop(&copy);
            }

            break;

        default:
            body->len = util_below(r, 3) ? body->len - 1 : at;
        }
    }
}
