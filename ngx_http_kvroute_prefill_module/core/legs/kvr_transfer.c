
/*
 * Copyright (C) kvroute contributors
 */


#include "core/legs/kvr_transfer.h"
#include "core/text/kvr_json.h"
#include "core/text/kvr_text.h"


int
kvr_transfer_find(kvr_transfer_t *t, const char *name, const uint8_t *p,
    size_t len)
{
    int              c, rc, first, named;
    uint64_t         at;
    kvr_json_t       j;
    kvr_json_text_t  text;

    t->len = 0;

    text.data = p;
    text.len = len;

    kvr_json_init(&j, kvr_text_ops(), kvr_json_fetch_text, &text);

    if (kvr_json_peek(&j) != '{') {
        return KVR_ERROR;
    }

    j.p++;
    first = 1;

    for ( ;; ) {
        rc = kvr_json_key(&j, &first);

        if (rc != KVR_OK) {
            break;
        }

        named = name && j.key_len == strlen(name)
                && memcmp(j.key, name, j.key_len) == 0;

        c = kvr_json_peek(&j);
        at = kvr_json_offset(&j);

        rc = kvr_json_skip(&j);

        if (rc != KVR_OK) {
            break;
        }

        /* the last of two equal keys counts, as in the engines */

        if (named) {
            t->at = (size_t) at;
            t->len = c == '{' ? (size_t) (kvr_json_offset(&j) - at) : 0;
        }
    }

    return rc == KVR_DECLINED && kvr_json_peek(&j) == KVR_AGAIN ? KVR_OK
                                                                : KVR_ERROR;
}
