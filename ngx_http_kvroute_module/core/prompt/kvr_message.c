
/*
 * Copyright (C) kvroute contributors
 */


#include "core/prompt/kvr_message.h"


static int kvr_message_read(kvr_walk_t *w);
static void kvr_message_begin(kvr_walk_t *w);
static int kvr_message_type(kvr_walk_t *w);
static int kvr_message_role(kvr_walk_t *w);
static int kvr_message_name(kvr_walk_t *w);
static int kvr_message_body(kvr_walk_t *w);
static int kvr_message_arguments(kvr_walk_t *w);
static int kvr_message_calls(kvr_walk_t *w);
static int kvr_message_call(kvr_walk_t *w);
static int kvr_message_function(kvr_walk_t *w);
static int kvr_message_function_name(kvr_walk_t *w);
static int kvr_message_named(kvr_walk_t *w, uint8_t mark);

static int kvr_message_part(kvr_walk_t *w);
static int kvr_message_part_type(kvr_walk_t *w);
static int kvr_message_part_text(kvr_walk_t *w);
static int kvr_message_billing(kvr_walk_t *w);
static int kvr_message_media(kvr_walk_t *w);
static int kvr_message_media_data(kvr_walk_t *w);


static const kvr_walk_key_t  kvr_message_keys[] = {
    kvr_walk_key("type", kvr_message_type),
    kvr_walk_key("role", kvr_message_role),
    kvr_walk_key("name", kvr_message_name),
    kvr_walk_key("content", kvr_message_body),
    kvr_walk_key("output", kvr_message_body),
    kvr_walk_key("images", kvr_message_media),
    kvr_walk_key("arguments", kvr_message_arguments),
    kvr_walk_key("input", kvr_message_arguments),
    kvr_walk_key("tool_calls", kvr_message_calls),
    kvr_walk_key("function_call", kvr_message_function),
    kvr_walk_key("tools", kvr_message_arguments),
    kvr_walk_null
};


/* the last one in most messages */
#define KVR_MESSAGE_CONTENT  &kvr_message_keys[3]


static const kvr_walk_key_t  kvr_message_call_keys[] = {
    kvr_walk_key("function", kvr_message_function),
    kvr_walk_key("custom", kvr_message_function),
    kvr_walk_null
};


static const kvr_walk_key_t  kvr_message_function_keys[] = {
    kvr_walk_key("name", kvr_message_function_name),
    kvr_walk_key("arguments", kvr_message_arguments),
    kvr_walk_key("input", kvr_message_arguments),
    kvr_walk_null
};


static const kvr_walk_key_t  kvr_message_part_keys[] = {
    kvr_walk_key("type", kvr_message_part_type),
    kvr_walk_key("text", kvr_message_part_text),
    kvr_walk_key("refusal", kvr_message_part_text),
    kvr_walk_key("image_url", kvr_message_media),
    kvr_walk_key("source", kvr_message_media),
    kvr_walk_key("input_audio", kvr_message_media),
    kvr_walk_key("audio_url", kvr_message_media),
    kvr_walk_key("video_url", kvr_message_media),
    kvr_walk_key("image_embeds", kvr_message_media),
    kvr_walk_key("file", kvr_message_media),
    kvr_walk_key("file_data", kvr_message_media),
    kvr_walk_key("file_id", kvr_message_media),
    kvr_walk_key("name", kvr_message_function_name),
    kvr_walk_key("input", kvr_message_arguments),
    kvr_walk_key("content", kvr_message_content),
    kvr_walk_null
};


static const kvr_walk_key_t  kvr_message_media_keys[] = {
    kvr_walk_key("url", kvr_message_media_data),
    kvr_walk_key("data", kvr_message_media_data),
    kvr_walk_key("file_data", kvr_message_media_data),
    kvr_walk_key("file_id", kvr_message_media_data),
    kvr_walk_null
};


int
kvr_message_rest(kvr_walk_t *w, kvr_message_mark_t *mark, int rc)
{
    unsigned  depth, media;

    depth = w->depth;
    media = w->media;

    if (rc == KVR_OK) {
        w->head = 1;
        w->drop = 0;
        w->part = 1;
        w->separate = 0;

        rc = kvr_walk_rest(w, kvr_message_keys, KVR_MESSAGE_CONTENT);

    } else if (rc == KVR_DECLINED) {

        /* a client that used another order will use it again */

        rc = (w->quick == KVR_MESSAGE_SLOWLY) ? KVR_WALK_ORDER
                                              : kvr_message_read(w);
    }

    if (rc == KVR_WALK_ORDER) {

        rc = kvr_json_seek(&w->json, mark->offset);
        if (rc != KVR_OK) {
            return rc;
        }

        kvr_block_rewind(&w->block, &mark->block);
        w->depth = depth;
        w->media = media;

        w->order = 0;
        w->careful = 1;
        rc = kvr_message_read(w);
        w->careful = 0;

        w->quick = w->order ? KVR_MESSAGE_SLOWLY : KVR_MESSAGE_QUICK;
    }

    if (w->drop) {
        kvr_block_rewind(&w->block, &mark->block);
        w->drop = 0;
    }

    return rc;
}


static int
kvr_message_read(kvr_walk_t *w)
{
    int  rc;

    w->head = 0;
    w->drop = 0;
    w->separate = 0;
    w->role_len = 0;
    w->type_len = 0;

    rc = kvr_walk_object(w, kvr_message_keys);

    if (rc == KVR_OK && !w->drop) {
        kvr_message_begin(w);
    }

    return rc;
}


void
kvr_message_head(kvr_walk_t *w, const char *role, size_t len)
{
    kvr_block_t  *b;

    b = &w->block;

    if (kvr_likely(b->fill + len + 2 < KVR_BLOCK)) {
        b->stage[b->cur][b->fill] = KVR_CANON_MESSAGE;
        memcpy(&b->stage[b->cur][b->fill + 1], role, len);
        b->stage[b->cur][b->fill + 1 + len] = KVR_CANON_CONTENT;
        b->fill += (uint32_t) len + 2;
        return;
    }

    kvr_block_byte(b, KVR_CANON_MESSAGE);
    kvr_block_put(b, role, len);
    kvr_block_byte(b, KVR_CANON_CONTENT);
}


/* Puts the head of the message or the separator of the part. */
static void
kvr_message_begin(kvr_walk_t *w)
{
    w->part = 1;

    if (!w->head) {
        w->head = 1;

        if (w->role_len) {
            kvr_message_head(w, (char *) w->role, w->role_len);

        } else {
            kvr_message_head(w, (char *) w->type, w->type_len);
        }
    }

    if (w->separate) {
        w->separate = 0;
        kvr_block_byte(&w->block, KVR_CANON_PART);
    }
}


static int
kvr_message_type(kvr_walk_t *w)
{
    int  rc;

    rc = kvr_walk_word(w, w->type, sizeof(w->type), &w->type_len);

    /* engines do not render the reasoning of earlier turns */

    if (w->type_len == 9 && memcmp(w->type, "reasoning", 9) == 0) {
        w->drop = 1;
    }

    return rc;
}


static int
kvr_message_role(kvr_walk_t *w)
{
    return kvr_walk_word(w, w->role, sizeof(w->role), &w->role_len);
}


static int
kvr_message_name(kvr_walk_t *w)
{
    return kvr_message_named(w, KVR_CANON_NAME);
}


static int
kvr_message_function_name(kvr_walk_t *w)
{
    return kvr_message_named(w, KVR_CANON_CALL);
}


static int
kvr_message_named(kvr_walk_t *w, uint8_t mark)
{
    if (w->drop || kvr_json_peek(&w->json) != '"') {
        return kvr_walk_skip(w);
    }

    kvr_message_begin(w);
    kvr_block_byte(&w->block, mark);

    w->json.p++;

    return w->json.ops->string(&w->json, &w->block);
}


static int
kvr_message_body(kvr_walk_t *w)
{
    int  rc;

    rc = kvr_message_content(w);

    /* no separator after the last part */

    w->separate = 0;

    return rc;
}


static int
kvr_message_arguments(kvr_walk_t *w)
{
    int  c;

    c = kvr_json_peek(&w->json);

    if (w->drop || c == 'n') {
        return kvr_walk_skip(w);
    }

    kvr_message_begin(w);
    kvr_block_byte(&w->block, KVR_CANON_ARGUMENTS);

    if (c == '"') {
        w->json.p++;
        return w->json.ops->string(&w->json, &w->block);
    }

    return kvr_text_raw(&w->json, &w->block);
}


static int
kvr_message_calls(kvr_walk_t *w)
{
    if (w->drop) {
        return kvr_walk_skip(w);
    }

    return kvr_walk_array(w, kvr_message_call);
}


static int
kvr_message_call(kvr_walk_t *w)
{
    return kvr_walk_object(w, kvr_message_call_keys);
}


static int
kvr_message_function(kvr_walk_t *w)
{
    if (w->drop) {
        return kvr_walk_skip(w);
    }

    return kvr_walk_object(w, kvr_message_function_keys);
}


int
kvr_message_content(kvr_walk_t *w)
{
    int  c;

    if (w->drop) {
        return kvr_walk_skip(w);
    }

    c = kvr_json_peek(&w->json);

    switch (c) {

    case '"':
        kvr_message_begin(w);
        w->json.p++;
        return w->json.ops->string(&w->json, &w->block);

    case '[':
        return kvr_walk_array(w, kvr_message_part);

    case '{':
        return kvr_message_part(w);

    default:
        return c < 0 ? c : kvr_walk_skip(w);
    }
}


static int
kvr_message_part(kvr_walk_t *w)
{
    int       c, rc;
    unsigned  outer;

    outer = w->part;
    w->part = 0;

    c = kvr_json_peek(&w->json);

    if (c == '"') {
        rc = kvr_json_spend(&w->json, 1);

        if (rc == KVR_OK) {
            rc = kvr_message_content(w);
        }

    } else {
        rc = kvr_walk_object(w, kvr_message_part_keys);
        w->drop = 0;
    }

    /* empty text is a part, a dropped object is not */

    if (w->part) {
        w->separate = 1;
    }

    w->part |= outer;

    return rc;
}


static int
kvr_message_part_type(kvr_walk_t *w)
{
    int      rc;
    size_t   len;
    uint8_t  type[20];

    rc = kvr_walk_word(w, type, sizeof(type), &len);

    if ((len == 8 && memcmp(type, "thinking", 8) == 0)
        || (len == 9 && memcmp(type, "reasoning", 9) == 0)
        || (len == 14 && memcmp(type, "reasoning_text", 14) == 0)
        || (len == 17 && memcmp(type, "redacted_thinking", 17) == 0))
    {
        w->drop = 1;
    }

    return rc;
}


static int
kvr_message_part_text(kvr_walk_t *w)
{
    int  rc;

    if (w->drop || kvr_json_peek(&w->json) != '"') {
        return kvr_walk_skip(w);
    }

    if (w->system) {
        rc = kvr_message_billing(w);

        if (rc != KVR_DECLINED) {
            return rc;
        }
    }

    kvr_message_begin(w);
    w->json.p++;

    return w->json.ops->string(&w->json, &w->block);
}


/*
 * Skips the first system block of Claude Code, an attribution line with a hash
 * of the request.  vLLM omits it, too.
 */
static int
kvr_message_billing(kvr_walk_t *w)
{
    int          c, rc;
    uint64_t     offset;
    const char  *p;

    offset = kvr_json_offset(&w->json);

    for (p = "\"x-anthropic-billing-header"; *p; p++) {

        c = kvr_json_byte(&w->json);

        if (c < 0) {
            return c;
        }

        if (c != *p) {
            break;
        }
    }

    rc = kvr_json_seek(&w->json, offset);

    if (rc != KVR_OK) {
        return rc;
    }

    return *p ? KVR_DECLINED : kvr_walk_skip(w);
}


static int
kvr_message_media(kvr_walk_t *w)
{
    int  c;

    if (w->drop) {
        return kvr_walk_skip(w);
    }

    c = kvr_json_peek(&w->json);

    switch (c) {

    case '"':
        return kvr_message_media_data(w);

    case '{':
        return kvr_walk_object(w, kvr_message_media_keys);

    case '[':
        return kvr_walk_array(w, kvr_message_media);

    default:
        return c < 0 ? c : kvr_walk_other(w);
    }
}


static int
kvr_message_media_data(kvr_walk_t *w)
{
    int       rc, i;
    uint64_t  digest, pattern[KVR_BLOCK / sizeof(uint64_t)];

    rc = kvr_walk_digest(w, &digest);

    if (rc != KVR_OK || digest == 0) {
        return rc;
    }

    kvr_message_begin(w);
    kvr_block_byte(&w->block, KVR_CANON_MEDIA);

    if (w->media++ >= KVR_CANON_MEDIA_MAX) {
        kvr_block_put(&w->block, &digest, sizeof(digest));
        return KVR_OK;
    }

    for (i = 0; i < (int) (KVR_BLOCK / sizeof(uint64_t)); i++) {
        pattern[i] = digest;
    }

    for (i = 0; i < KVR_CANON_MEDIA_LEN / KVR_BLOCK; i++) {
        kvr_block_put(&w->block, pattern, KVR_BLOCK);
    }

    return KVR_OK;
}
