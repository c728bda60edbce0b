
/*
 * Copyright (C) kvroute contributors
 */


#include "core/prompt/kvr_prompt_walk.h"


static int kvr_walk_in_order(kvr_walk_t *w, const kvr_walk_key_t *keys,
    const kvr_walk_key_t *last);
static int kvr_walk_carefully(kvr_walk_t *w, const kvr_walk_key_t *keys);
static const kvr_walk_key_t *kvr_walk_find(kvr_json_t *j,
    const kvr_walk_key_t *keys);


int
kvr_walk_object(kvr_walk_t *w, const kvr_walk_key_t *keys)
{
    int  rc;

    if (kvr_json_peek(&w->json) != '{' || w->depth == KVR_WALK_DEPTH) {
        return kvr_walk_other(w);
    }

    if (kvr_json_spend(&w->json, KVR_WALK_STEPS) != KVR_OK) {
        return KVR_JSON_COSTLY;
    }

    w->json.p++;
    w->depth++;

    rc = w->careful ? kvr_walk_carefully(w, keys)
                    : kvr_walk_in_order(w, keys, NULL);

    w->depth--;

    return rc;
}


int
kvr_walk_rest(kvr_walk_t *w, const kvr_walk_key_t *keys,
    const kvr_walk_key_t *last)
{
    int  rc;

    if (kvr_likely(w->json.p < w->json.e && *w->json.p == '}')) {
        w->json.p++;
        return KVR_OK;
    }

    w->depth++;

    rc = kvr_walk_in_order(w, keys, last);

    w->depth--;

    return rc;
}


static int
kvr_walk_in_order(kvr_walk_t *w, const kvr_walk_key_t *keys,
    const kvr_walk_key_t *last)
{
    int                    rc, first;
    const kvr_walk_key_t  *key;

    first = (last == NULL);

    for ( ;; ) {
        rc = kvr_json_key(&w->json, &first);

        if (rc != KVR_OK) {
            return rc == KVR_DECLINED ? KVR_OK : rc;
        }

        key = kvr_walk_find(&w->json, keys);

        if (key == NULL) {
            rc = kvr_walk_other(w);

        } else if (key <= last) {
            return KVR_WALK_ORDER;

        } else {
            last = key;
            rc = key->handler(w);
        }

        if (rc != KVR_OK) {
            return rc;
        }
    }
}


static int
kvr_walk_carefully(kvr_walk_t *w, const kvr_walk_key_t *keys)
{
    int                    rc, first;
    uint64_t               end, at[KVR_WALK_MAX_KEYS];
    const kvr_walk_key_t  *key, *last;

    memset(at, 0, sizeof(at));
    first = 1;
    last = NULL;

    for ( ;; ) {
        rc = kvr_json_key(&w->json, &first);

        if (rc == KVR_DECLINED) {
            break;
        }

        if (rc != KVR_OK) {
            return rc;
        }

        key = kvr_walk_find(&w->json, keys);

        if (key) {
            /* no value starts at offset 0 */
            at[key - keys] = kvr_json_offset(&w->json);

            w->order |= (key <= last);
            last = key;
        }

        rc = kvr_walk_other(w);

        if (rc != KVR_OK) {
            return rc;
        }
    }

    end = kvr_json_offset(&w->json);

    for (key = keys; key->name; key++) {

        if (at[key - keys] == 0) {
            continue;
        }

        rc = kvr_json_seek(&w->json, at[key - keys]);

        if (rc == KVR_OK) {
            rc = key->handler(w);
        }

        if (rc != KVR_OK) {
            return rc;
        }
    }

    rc = kvr_json_seek(&w->json, end - 1);

    if (rc == KVR_OK) {
        w->json.p++;
    }

    return rc;
}


static const kvr_walk_key_t *
kvr_walk_find(kvr_json_t *j, const kvr_walk_key_t *keys)
{
    for ( /* void */ ; keys->name; keys++) {

        if (keys->len == j->key_len
            && memcmp(keys->name, j->key, j->key_len) == 0)
        {
            return keys;
        }
    }

    return NULL;
}


int
kvr_walk_array(kvr_walk_t *w, kvr_walk_pt handler)
{
    return kvr_walk_items(w, handler);
}


int
kvr_walk_word(kvr_walk_t *w, uint8_t *buf, size_t size, size_t *len)
{
    int  rc;

    *len = 0;

    if (kvr_json_peek(&w->json) != '"') {
        return kvr_walk_skip(w);
    }

    rc = kvr_json_string(&w->json, buf, size, len);

    *len = kvr_min(*len, size);

    return rc;
}


int
kvr_walk_digest(kvr_walk_t *w, uint64_t *digest)
{
    int           c, rc;
    kvr_block_t  *b;

    b = &w->side;

    if (kvr_json_spend(&w->json, 4) != KVR_OK) {
        return KVR_JSON_COSTLY;
    }

    kvr_block_init(b, w->block.secret, w->block.digest, NULL, 0);

    c = kvr_json_peek(&w->json);

    if (c == '"') {
        w->json.p++;
        rc = w->json.ops->string(&w->json, b);

    } else {
        rc = c < 0 ? c : kvr_text_raw(&w->json, b);
    }

    if (c == 'n') {
        *digest = 0;
        return rc;
    }

    kvr_block_finish(b);

    /* the type of the value counts: "1" is not 1 */

    *digest = kvr_mix(b->fold, (uint64_t) c) | 1;

    return rc;
}
