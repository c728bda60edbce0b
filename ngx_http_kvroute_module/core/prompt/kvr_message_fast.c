
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Reads arrays of messages.  Most messages begin with a role and a string as
 * content, without white space or with the spaces that Python writes.  They
 * are read without a table of keys.
 */


#include "core/prompt/kvr_message.h"


/* bytes that are copied for a role, more than the longest one has */
#define KVR_MESSAGE_ROLE   16


/* the two most frequent beginnings, and their canonical form */

#define KVR_MESSAGE_USER            "{\"role\":\"user\",\"content\":\""
#define KVR_MESSAGE_USER_HEAD       kvr_canon_head("user")

#define KVR_MESSAGE_ASSISTANT       "{\"role\":\"assistant\",\"content\":\""
#define KVR_MESSAGE_ASSISTANT_HEAD  kvr_canon_head("assistant")

/* compilers compare up to 16 bytes without a call */
#define kvr_message_is(p, s)                                                  \
    (memcmp(p, s, 16) == 0 && memcmp((p) + 16, &s[16], sizeof(s) - 17) == 0)


static inline int kvr_message_item(kvr_walk_t *w);
static inline int kvr_message_usual(kvr_walk_t *w);
static inline int kvr_message_text(kvr_walk_t *w, size_t n,
    const char *head);
static int kvr_message_quick(kvr_walk_t *w);


int
kvr_message_list(kvr_walk_t *w)
{
    w->quick = KVR_MESSAGE_QUICK;

    return kvr_walk_items(w, kvr_message_item);
}


static inline __attribute__ ((always_inline)) int
kvr_message_item(kvr_walk_t *w)
{
    int                  rc;
    kvr_json_t          *j;
    kvr_message_mark_t   mark;

    j = &w->json;

    kvr_block_mark(&w->block, &mark.block);
    mark.offset = kvr_json_offset(j);

    rc = kvr_message_usual(w);

    /* usually it has no other keys */

    if (kvr_likely(rc == KVR_OK && j->p < j->e && *j->p == '}')) {
        j->p++;
        return KVR_OK;
    }

    if (rc == KVR_DECLINED && kvr_json_peek(j) != '{') {
        return kvr_walk_other(w);
    }

    return kvr_message_rest(w, &mark, rc);
}


/*
 * Reads the beginning of a message up to the end of its content.  Returns
 * KVR_DECLINED and consumes nothing if the message begins in another way.
 */
static inline __attribute__ ((always_inline)) int
kvr_message_usual(kvr_walk_t *w)
{
    const uint8_t  *p;

    p = w->json.p;

    if ((size_t) (w->json.e - p) < w->quick) {
        return KVR_DECLINED;
    }

    if (kvr_message_is(p, KVR_MESSAGE_USER)) {
        return kvr_message_text(w, sizeof(KVR_MESSAGE_USER) - 1,
                                KVR_MESSAGE_USER_HEAD);
    }

    if (kvr_message_is(p, KVR_MESSAGE_ASSISTANT)) {
        return kvr_message_text(w, sizeof(KVR_MESSAGE_ASSISTANT) - 1,
                                KVR_MESSAGE_ASSISTANT_HEAD);
    }

    return kvr_message_quick(w);
}


/* Puts the head of a message and its text, which begins n bytes ahead. */
static inline __attribute__ ((always_inline)) int
kvr_message_text(kvr_walk_t *w, size_t n, const char *head)
{
    size_t        len;
    kvr_block_t  *b;

    b = &w->block;
    len = strlen(head);

    if (kvr_likely(b->fill + len < KVR_BLOCK)) {
        memcpy(&b->stage[b->cur][b->fill], head, len);
        b->fill += (uint32_t) len;

    } else {
        kvr_block_put(b, head, len);
    }

    w->json.p += n;

    return w->json.ops->string(&w->json, b);
}


/* Reads the less frequent beginnings. */
static int
kvr_message_quick(kvr_walk_t *w)
{
    size_t          n;
    uint8_t        *dst;
    kvr_json_t     *j;
    kvr_block_t    *b;
    const uint8_t  *p, *role;

    j = &w->json;
    b = &w->block;
    p = j->p;

    if (memcmp(p, "{\"role\":", 8) != 0) {
        return KVR_DECLINED;
    }

    p += 8;
    p += (*p == ' ');

    if (*p++ != '"') {
        return KVR_DECLINED;
    }

    role = p;

    if (memcmp(p, "user\"", 5) == 0 || memcmp(p, "tool\"", 5) == 0) {
        n = 4;

    } else if (memcmp(p, "assistant\"", 10) == 0) {
        n = 9;

    } else if (memcmp(p, "system\"", 7) == 0) {
        n = 6;

    } else {
        return KVR_DECLINED;
    }

    p += n + 1;

    if (*p++ != ',') {
        return KVR_DECLINED;
    }

    p += (*p == ' ');

    if (memcmp(p, "\"content\":", 10) != 0) {
        return KVR_DECLINED;
    }

    p += 10;
    p += (*p == ' ');

    if (*p++ != '"') {
        return KVR_DECLINED;
    }

    if (kvr_likely(b->fill + n + 2 < KVR_BLOCK)) {

        /* both buffers have room for more than the role */

        dst = &b->stage[b->cur][b->fill];

        dst[0] = KVR_CANON_MESSAGE;
        memcpy(dst + 1, role, KVR_MESSAGE_ROLE);
        dst[1 + n] = KVR_CANON_CONTENT;

        b->fill += (uint32_t) n + 2;

    } else {
        kvr_message_head(w, (const char *) role, n);
    }

    j->p = p;

    return j->ops->string(j, b);
}
