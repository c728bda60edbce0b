
/*
 * Copyright (C) kvroute contributors
 */


#include "core/legs/kvr_edit.h"
#include "core/text/kvr_text.h"


static int kvr_edit_named(const kvr_json_t *j, const char *const *names);


int
kvr_edit_find(kvr_edit_t *e, const char *const *names,
    kvr_json_fetch_pt fetch, void *data)
{
    int              c, rc, first;
    uint64_t         start;
    kvr_json_t       j;
    kvr_edit_cut_t  *cut;

    e->n = 0;
    e->kept = 0;
    e->more = 0;

    kvr_json_init(&j, kvr_text_ops(), fetch, data);

    c = kvr_json_peek(&j);

    if (c != '{') {
        return c < 0 ? c : KVR_ERROR;
    }

    j.p++;
    first = 1;
    start = kvr_json_offset(&j);

    for ( ;; ) {

        /* behind the last member that stays is its comma, or the brace */

        if (kvr_json_peek(&j) < 0) {
            return kvr_json_peek(&j);
        }

        if (e->kept) {
            start = kvr_json_offset(&j);
        }

        e->end = kvr_json_offset(&j);

        rc = kvr_json_key(&j, &first);

        if (rc == KVR_DECLINED) {
            break;
        }

        if (rc != KVR_OK) {
            return rc;
        }

        cut = NULL;

        if (kvr_edit_named(&j, names)) {

            if (e->n == KVR_EDIT_MAX) {
                e->more = 1;

            } else {
                cut = &e->cut[e->n++];
            }
        }

        rc = kvr_json_spend(&j, 1);

        if (rc == KVR_OK) {
            rc = kvr_json_skip(&j);
        }

        if (rc != KVR_OK) {
            return rc;
        }

        if (cut == NULL) {
            e->kept++;
            continue;
        }

        c = kvr_json_peek(&j);

        if (e->kept == 0 && c == ',') {
            j.p++;
            first = 1;
        }

        cut->offset = start;
        cut->len = kvr_json_offset(&j) - start;

        start = kvr_json_offset(&j);
    }

    /* nothing may follow */

    return kvr_json_peek(&j) == KVR_AGAIN ? KVR_OK : KVR_ERROR;
}


static int
kvr_edit_named(const kvr_json_t *j, const char *const *names)
{
    for ( /* void */ ; *names; names++) {

        if (strlen(*names) == j->key_len
            && memcmp(*names, j->key, j->key_len) == 0)
        {
            return 1;
        }
    }

    return 0;
}
