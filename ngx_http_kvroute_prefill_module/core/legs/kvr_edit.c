
/*
 * Copyright (C) kvroute contributors
 */


#include "core/legs/kvr_edit.h"
#include "core/text/kvr_text.h"


static int kvr_edit_root(kvr_edit_t *e, kvr_json_t *j,
    const kvr_json_names_t *names);
static int kvr_edit_value(kvr_edit_t *e, kvr_json_t *j,
    const kvr_json_names_t *names);
static int kvr_edit_inner(kvr_edit_t *e, kvr_json_t *j, uint64_t key);
static int kvr_edit_behind(kvr_json_t *j, uint64_t *offset);
static kvr_edit_cut_t *kvr_edit_add(kvr_edit_t *e);


int
kvr_edit_find(kvr_edit_t *e, const kvr_json_names_t *names,
    kvr_json_fetch_pt fetch, void *data)
{
    int         c, rc;
    kvr_json_t  j;

    e->n = 0;
    e->kept = 0;
    e->end = 0;

    kvr_json_init(&j, kvr_text_ops(), fetch, data);

    c = kvr_json_peek(&j);

    if (c == '{') {
        rc = kvr_edit_root(e, &j, names);

    } else if (c == '[' && names->first) {
        rc = kvr_edit_value(e, &j, names);

    } else {
        rc = c < 0 ? c : KVR_ERROR;
    }

    if (rc != KVR_OK) {
        return rc;
    }

    return kvr_json_peek(&j) == KVR_AGAIN ? KVR_OK : KVR_ERROR;
}


int
kvr_edit_begins(kvr_json_fetch_pt fetch, void *data)
{
    int         c;
    kvr_json_t  j;

    kvr_json_init(&j, kvr_text_ops(), fetch, data);

    c = kvr_json_peek(&j);

    if (c < 0) {

        /* a byte of 0 is an error: UTF-16 or UTF-32 */

        return c == KVR_ERROR;
    }

    j.p++;

    switch (c) {

    case '{':
    case '[':
        return 1;

    /* byte order marks */

    case 0xef:
        return kvr_json_byte(&j) == 0xbb;

    case 0xfe:
        return kvr_json_byte(&j) == 0xff;

    case 0xff:
        return kvr_json_byte(&j) == 0xfe;

    default:
        return 0;
    }
}


static int
kvr_edit_root(kvr_edit_t *e, kvr_json_t *j, const kvr_json_names_t *names)
{
    int              c, rc, first, cuts;
    uint64_t         start;
    kvr_edit_cut_t  *cut;

    j->p++;
    first = 1;
    start = kvr_json_offset(j);

    for ( ;; ) {

        /*
         * the next member is cut from the comma before it, if any stays there
         */

        if (kvr_json_peek(j) < 0) {
            return kvr_json_peek(j);
        }

        if (e->kept) {
            start = kvr_json_offset(j);
        }

        e->end = kvr_json_offset(j);

        rc = kvr_json_key(j, &first);

        if (rc != KVR_OK) {
            return rc == KVR_DECLINED ? KVR_OK : rc;
        }

        rc = kvr_json_spend(j, 1);

        if (rc != KVR_OK) {
            return rc;
        }

        cuts = kvr_json_names_has(names->name, j->key, j->key_len);

        if (cuts || names->first == NULL
            || kvr_json_names_has(names->content, j->key, j->key_len))
        {
            rc = kvr_json_skip(j);

        } else {
            rc = kvr_edit_value(e, j, names);
        }

        if (rc != KVR_OK) {
            return rc;
        }

        if (!cuts) {
            e->kept++;
            continue;
        }

        cut = kvr_edit_add(e);
        if (cut == NULL) {
            return KVR_JSON_COSTLY;
        }

        c = kvr_json_peek(j);

        if (e->kept == 0 && c == ',') {
            j->p++;
            first = 1;
        }

        cut->offset = start;
        cut->len = kvr_json_offset(j) - start;

        start = kvr_json_offset(j);
    }
}


static int
kvr_edit_value(kvr_edit_t *e, kvr_json_t *j, const kvr_json_names_t *names)
{
    int       rc;
    size_t    depth;
    uint64_t  key;

    if (!kvr_json_names_inside(kvr_json_peek(j))) {
        return kvr_json_skip(j);
    }

    depth = 0;

    do {
        rc = kvr_json_names_next(names, j, &depth, &key);

        if (rc == KVR_OK) {
            rc = kvr_edit_inner(e, j, key);

        } else if (rc == KVR_DECLINED) {
            return KVR_OK;
        }

    } while (rc == KVR_OK);

    return rc;
}


/* cuts a member below the root, whose value is next */
static int
kvr_edit_inner(kvr_edit_t *e, kvr_json_t *j, uint64_t key)
{
    int              c, rc;
    uint64_t         end, start;
    kvr_edit_cut_t  *last, *cut;

    rc = kvr_json_skip(j);

    if (rc != KVR_OK) {
        return rc;
    }

    c = kvr_json_peek(j);

    if (c < 0) {
        return c;
    }

    end = kvr_json_offset(j);
    start = key;

    rc = kvr_edit_behind(j, &start);

    if (rc < 0) {
        return rc;
    }

    last = e->n ? &e->cut[e->n - 1] : NULL;
    cut = kvr_edit_add(e);

    if (cut == NULL) {
        return KVR_JSON_COSTLY;
    }

    /* no member stays before it: cut the comma behind it */

    if (rc != ',' || (last && start < last->offset + last->len)) {
        start = key;
        end += (c == ',');
    }

    cut->offset = start;
    cut->len = end - start;

    return kvr_json_seek(j, end);
}


/* goes back to the last byte before an offset that is not white space */
static int
kvr_edit_behind(kvr_json_t *j, uint64_t *offset)
{
    int  rc;

    do {
        rc = kvr_json_seek(j, --*offset);

        if (rc != KVR_OK) {
            return rc;
        }

    } while (*j->p <= ' ');

    return *j->p;
}


static kvr_edit_cut_t *
kvr_edit_add(kvr_edit_t *e)
{
    return e->n < KVR_EDIT_MAX ? &e->cut[e->n++] : NULL;
}
