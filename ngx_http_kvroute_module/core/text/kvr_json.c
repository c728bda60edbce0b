
/*
 * Copyright (C) kvroute contributors
 */


#include "core/text/kvr_json.h"
#include "core/text/kvr_text.h"


static int kvr_json_go(kvr_json_t *j, uint64_t offset);


void
kvr_json_init(kvr_json_t *j, const kvr_text_ops_t *ops, kvr_json_fetch_pt fetch,
    void *data)
{
    memset(j, 0, offsetof(kvr_json_t, key_buf));

    j->ops = ops;
    j->fetch = fetch;
    j->data = data;
    j->steps = KVR_JSON_STEPS;
    j->left = KVR_JSON_STEPS;
}


const uint8_t *
kvr_json_fetch_text(void *data, uint64_t offset, size_t *len)
{
    kvr_json_text_t  *text = data;

    if (offset >= text->len) {
        *len = 0;
        return NULL;
    }

    *len = text->len - offset;

    return text->data + offset;
}


int
kvr_json_refill(kvr_json_t *j)
{
    return kvr_json_go(j, kvr_json_offset(j));
}


int
kvr_json_seek(kvr_json_t *j, uint64_t offset)
{
    uint64_t  now;

    now = kvr_json_offset(j);

    if (offset < now) {
        j->most = kvr_max(j->most, now);
        j->back += now - offset;

        if (j->back > KVR_JSON_BACK + KVR_JSON_AGAIN * j->most
            || kvr_json_spend(j, 1) != KVR_OK)
        {
            return KVR_JSON_COSTLY;
        }
    }

    return kvr_json_go(j, offset);
}


static int
kvr_json_go(kvr_json_t *j, uint64_t offset)
{
    size_t          len;
    const uint8_t  *p;

    if (offset >= j->base && offset - j->base < (uint64_t) (j->e - j->start)) {
        j->p = j->start + (offset - j->base);
        return KVR_OK;
    }

    len = 0;
    p = j->fetch(j->data, offset, &len);

    if (p == NULL || len == 0) {

        /* the fetch made the last window invalid */

        j->p = j->e;
        j->start = j->e;
        j->base = offset;

        return KVR_AGAIN;
    }

    j->start = p;
    j->p = p;
    j->e = p + len;
    j->base = offset;

    return KVR_OK;
}


/* Allows more steps for the bytes that were read since. */
int
kvr_json_grant(kvr_json_t *j)
{
    uint64_t  steps;

    steps = KVR_JSON_STEPS
            + kvr_max(j->most, kvr_json_offset(j)) / KVR_JSON_STEP;

    j->left += (int64_t) (steps - j->steps);
    j->steps = steps;

    return j->left >= 0 ? KVR_OK : KVR_JSON_COSTLY;
}


int
kvr_json_peek_far(kvr_json_t *j)
{
    for ( ;; ) {

        for ( /* void */ ; j->p < j->e; j->p++) {

            if (*j->p != ' ' && *j->p != '\t' && *j->p != '\n'
                && *j->p != '\r')
            {
                return *j->p ? *j->p : KVR_ERROR;
            }
        }

        if (kvr_json_refill(j) != KVR_OK) {
            return KVR_AGAIN;
        }
    }
}
