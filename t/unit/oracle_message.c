
/*
 * Copyright (C) kvroute contributors
 */


#include "oracle_node.h"


static int content(oracle_t *o, node_t *v, unsigned depth, util_buf_t *out,
    int *parts);


uint64_t
oracle_digest(oracle_t *o, node_t *v)
{
    size_t      i, n;
    uint64_t    fold, *out;
    util_buf_t  buf = { 0 };

    if (v->kind == 'n') {
        return 0;
    }

    if (v->kind == '"') {
        node_string(o, v, &buf, 1);

    } else {
        node_raw(o, v, &buf);
    }

    out = malloc((buf.len / KVR_BLOCK + 1) * sizeof(uint64_t));
    n = util_blocks(&buf, out, buf.len / KVR_BLOCK + 1, 1);
    fold = 0;

    for (i = 0; i < n; i++) {
        fold = util_mix(fold, out[i]);
    }

    free(out);
    util_drop(&buf);

    return util_mix(fold, v->p[0]) | 1;
}


/* the functions below append to out; they return whether they appended */

static int
media_data(oracle_t *o, node_t *v, util_buf_t *out)
{
    int       i, n;
    uint64_t  digest;

    if (v == NULL) {
        return 0;
    }

    digest = oracle_digest(o, v);

    if (digest == 0) {
        return 0;
    }

    util_byte(out, 4);

    n = o->media++ < KVR_CANON_MEDIA_MAX ? KVR_CANON_MEDIA_LEN / 8 : 1;

    for (i = 0; i < n; i++) {
        util_put(out, &digest, 8);
    }

    return 1;
}


static int
media(oracle_t *o, node_t *v, unsigned depth, util_buf_t *out)
{
    int      any;
    size_t   i;
    node_t  *item;

    static const char *const  keys[] = {
        "url", "data", "file_data", "file_id"
    };

    any = 0;

    if (v == NULL) {
        return 0;
    }

    if (v->kind == '"') {
        return media_data(o, v, out);
    }

    if (node_opens(o, v, '{', depth)) {
        for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
            any |= media_data(o, node_get(v, keys[i]), out);
        }
    }

    if (node_opens(o, v, '[', depth)) {
        for (item = v->child; item; item = item->next) {
            any |= media(o, item, depth + 1, out);
        }
    }

    return any;
}


static int
name(oracle_t *o, node_t *v, unsigned mark, util_buf_t *out)
{
    if (v == NULL || v->kind != '"') {
        return 0;
    }

    util_byte(out, mark);
    node_string(o, v, out, 1);

    return 1;
}


static int
arguments(oracle_t *o, node_t *v, util_buf_t *out)
{
    if (v == NULL || v->kind == 'n') {
        return 0;
    }

    util_byte(out, 7);

    if (v->kind == '"') {
        node_string(o, v, out, 1);

    } else {
        node_raw(o, v, out);
    }

    return 1;
}


static void
function(oracle_t *o, node_t *v, unsigned depth, util_buf_t *out)
{
    if (node_opens(o, v, '{', depth)) {
        (void) name(o, node_get(v, "name"), 6, out);
        (void) arguments(o, node_get(v, "arguments"), out);
        (void) arguments(o, node_get(v, "input"), out);
    }
}


static void
calls(oracle_t *o, node_t *v, unsigned depth, util_buf_t *out)
{
    node_t  *call;

    if (!node_opens(o, v, '[', depth)) {
        return;
    }

    for (call = v->child; call; call = call->next) {

        if (node_opens(o, call, '{', depth + 1)) {
            function(o, node_get(call, "function"), depth + 2, out);
            function(o, node_get(call, "custom"), depth + 2, out);
        }
    }
}


static int
part_text(oracle_t *o, node_t *v, util_buf_t *out)
{
    static const char  billing[] = "\"x-anthropic-billing-header";

    if (v == NULL || v->kind != '"') {
        return 0;
    }

    if (o->system && v->len > sizeof(billing) - 1
        && memcmp(v->p, billing, sizeof(billing) - 1) == 0)
    {
        return 0;
    }

    node_string(o, v, out, 1);

    return 1;
}


static int
part(oracle_t *o, node_t *v, unsigned depth, util_buf_t *out)
{
    int     any, parts;
    word_t  type;
    size_t  i;

    static const char *const  keys[] = {
        "image_url", "source", "input_audio", "audio_url", "video_url",
        "image_embeds", "file", "file_data", "file_id"
    };

    if (v->kind == '"') {
        node_string(o, v, out, 1);
        return 1;
    }

    if (!node_opens(o, v, '{', depth)) {
        return 0;
    }

    node_word(o, node_get(v, "type"), &type, 20);

    if (word_is(&type, "thinking") || word_is(&type, "redacted_thinking")
        || word_is(&type, "reasoning") || word_is(&type, "reasoning_text"))
    {
        return 0;
    }

    any = part_text(o, node_get(v, "text"), out);
    any |= part_text(o, node_get(v, "refusal"), out);

    for (i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        any |= media(o, node_get(v, keys[i]), depth + 1, out);
    }

    any |= name(o, node_get(v, "name"), 6, out);
    any |= arguments(o, node_get(v, "input"), out);

    parts = 0;
    any |= content(o, node_get(v, "content"), depth + 1, out, &parts);

    return any;
}


static int
content(oracle_t *o, node_t *v, unsigned depth, util_buf_t *out, int *parts)
{
    int         any;
    node_t     *item;
    util_buf_t  one;

    any = 0;

    if (v == NULL) {
        return 0;
    }

    switch (v->kind) {

    case '"':
        node_string(o, v, out, 1);
        return 1;

    case '{':
        return part(o, v, depth, out);

    case '[':
        if (!node_opens(o, v, '[', depth)) {
            return 0;
        }

        memset(&one, 0, sizeof(one));

        for (item = v->child; item; item = item->next) {

            one.len = 0;

            if (!part(o, item, depth + 1, &one)) {
                continue;
            }

            if ((*parts)++) {
                util_byte(out, 3);
            }

            util_put(out, one.p, one.len);
            any = 1;
        }

        util_drop(&one);
    }

    return any;
}


static void
message(oracle_t *o, node_t *v, unsigned depth, util_buf_t *out)
{
    word_t      type, role;
    util_buf_t  text = { 0 };

    if (!node_opens(o, v, '{', depth)) {
        return;
    }

    node_word(o, node_get(v, "type"), &type, 32);
    node_word(o, node_get(v, "role"), &role, 32);

    if (word_is(&type, "reasoning")) {
        return;
    }

    if (role.len == 0) {
        role = type;
    }

    util_byte(&text, 1);
    util_put(&text, role.data, role.len);
    util_byte(&text, 2);

    (void) name(o, node_get(v, "name"), 5, &text);

    oracle_content(o, node_get(v, "content"), depth + 1, &text);
    oracle_content(o, node_get(v, "output"), depth + 1, &text);

    (void) media(o, node_get(v, "images"), depth + 1, &text);
    (void) arguments(o, node_get(v, "arguments"), &text);
    (void) arguments(o, node_get(v, "input"), &text);
    calls(o, node_get(v, "tool_calls"), depth + 1, &text);
    function(o, node_get(v, "function_call"), depth + 1, &text);
    (void) arguments(o, node_get(v, "tools"), &text);

    util_put(out, text.p, text.len);
    util_drop(&text);
}


void
oracle_messages(oracle_t *o, node_t *v, unsigned depth, util_buf_t *out)
{
    node_t  *item;

    if (node_opens(o, v, '[', depth)) {
        for (item = v->child; item; item = item->next) {
            message(o, item, depth + 1, out);
        }
    }
}


void
oracle_content(oracle_t *o, node_t *v, unsigned depth, util_buf_t *out)
{
    int  parts;

    parts = 0;

    (void) content(o, v, depth, out, &parts);
}
