
/*
 * Copyright (C) kvroute contributors
 */


#include "oracle_node.h"

#include <ctype.h>


#define MAX_DIGESTS  65536


/* returns cJSON's verdict on a copy that ends with a NUL byte */
static cJSON *
parse(const uint8_t *p, size_t len)
{
    cJSON       *json;
    util_buf_t   copy = { 0 };

    util_put(&copy, p, len);
    util_byte(&copy, 0);

    json = cJSON_ParseWithLengthOpts((char *) copy.p, copy.len, NULL, 1);

    util_drop(&copy);

    return json;
}


static int
takes(const uint8_t *p, size_t len)
{
    cJSON  *json;

    json = parse(p, len);
    cJSON_Delete(json);

    return json != NULL;
}


/* returns the allowed differences in a string, as bits */
static unsigned
string_faults(node_t *v)
{
    size_t    i, k;
    unsigned  u, high, faults;

    faults = 0;
    high = 0;

    for (i = 1; i < v->len - 1; i++) {

        if (v->p[i] != '\\') {
            faults |= high << ORACLE_SURROGATE;
            high = 0;
            continue;
        }

        i++;

        if (v->p[i] != 'u') {
            faults |= high << ORACLE_SURROGATE;
            high = 0;

            if (v->p[i] == 0 || strchr("\"\\/bfnrt", v->p[i]) == NULL) {
                faults |= 1 << ORACLE_ESCAPE;
            }

            continue;
        }

        u = 0;

        for (k = 1; k <= 4; k++) {

            if (i + k >= v->len - 1
                || strspn((char *) v->p + i + k,
                          "0123456789abcdefABCDEF") == 0)
            {
                return faults | 1 << ORACLE_UNREAD;
            }

            u = u * 16 + (v->p[i + k] & 15) + (v->p[i + k] > '9' ? 9 : 0);
        }

        i += 4;

        if (u >= 0xdc00 && u < 0xe000) {
            faults |= !high << ORACLE_SURROGATE;
            high = 0;

        } else {
            faults |= high << ORACLE_SURROGATE;
            high = (u >= 0xd800 && u < 0xdc00);
        }
    }

    return faults | high << ORACLE_SURROGATE;
}


/* copies the body with explained parts replaced; returns their number */
static unsigned
mask(node_t *v, unsigned depth, util_buf_t *out, unsigned *explained)
{
    unsigned    n, i, faults, allowed;
    node_t     *item;
    util_buf_t  buf;

    n = 0;

    switch (v->kind) {

    case '"':
        if (takes(v->p, v->len)) {
            break;
        }

        faults = string_faults(v);
        allowed = 1 << ORACLE_SURROGATE;

        if (!v->word) {
            allowed |= 1 << ORACLE_ESCAPE;
        }

        if (!v->word && !v->text) {
            allowed |= 1 << ORACLE_UNREAD;
        }

        if (faults == 0 || (faults & ~allowed)) {
            break;
        }

        for (i = 0; i < ORACLE_EXPLANATIONS; i++) {
            explained[i] += faults >> i & 1;
        }

        util_puts(out, "\"\"");
        return 1;

    case '0':
        if (takes(v->p, v->len)) {
            break;
        }

        explained[ORACLE_NUMBER]++;
        util_puts(out, "0");
        return 1;

    case '{':
    case '[':
        if (v->opened) {
            util_byte(out, v->p[0]);

            for (item = v->child; item; item = item->next) {

                if (item != v->child) {
                    util_byte(out, ',');
                }

                if (item->key) {
                    n += mask(item->key, depth, out, explained);
                    util_byte(out, ':');
                }

                n += mask(item, depth + 1, out, explained);
            }

            util_byte(out, v->kind == '{' ? '}' : ']');
            return n;
        }

        /* as deep as it is in the body */

        memset(&buf, 0, sizeof(buf));

        for (i = 0; i < depth; i++) {
            util_byte(&buf, '[');
        }

        util_put(&buf, v->p, v->len);

        for (i = 0; i < depth; i++) {
            util_byte(&buf, ']');
        }

        if (!takes(buf.p, buf.len)) {
            explained[ORACLE_CONTAINER]++;
            n = 1;
        }

        util_drop(&buf);
        util_puts(out, "0");
        return n;
    }

    util_put(out, v->p, v->len);

    return 0;
}


static void
verify_loose(const oracle_result_t *res, const kvr_prompt_conf_t *conf,
    const uint8_t *body, size_t len, oracle_stats_t *stats)
{
    node_t           *v;
    unsigned          n;
    oracle_t          o = { 0 };
    util_buf_t        masked = { 0 };
    const uint8_t    *p;
    oracle_result_t  *want;

    want = malloc(sizeof(*want));

    o.len = len;
    p = body;
    v = node_loose(&o, &p, body + len);

    util_check(v && v->kind == '{' && node_open(&o, v), "no object: %s",
               util_show(body, len));

    while (p < body + len && node_space(*p)) {
        p++;
    }

    util_check(p == body + len, "garbage after it: %s", util_show(body, len));

    oracle_expect(&o, v, conf, want);

    util_check(!o.error, "accepted, but invalid where it is read: %s",
               util_show(body, len));

    oracle_same(res, want, "body that only the reader accepts");

    n = mask(v, 0, &masked, stats->explained);

    util_check(n, "cJSON rejects it without a known reason: %s",
               util_show(body, len));
    util_check(takes(masked.p, masked.len),
               "more is wrong than explained: %s",
               util_show(masked.p, masked.len));

    util_drop(&masked);
    free(want);
    node_free(&o);
}


/* replaces control characters, which cJSON takes for white space, by blanks */
static int
unspace(const uint8_t *body, size_t len, util_buf_t *out)
{
    int     string, found;
    size_t  i;

    string = 0;
    found = 0;

    out->len = 0;
    util_put(out, body, len);

    for (i = 0; i < len; i++) {

        if (string) {

            if (body[i] == '\\') {
                i++;

            } else if (body[i] == '"') {
                string = 0;
            }

        } else if (body[i] == '"') {
            string = 1;

        } else if (body[i] < ' ' && !node_space(body[i])) {
            out->p[i] = ' ';
            found = 1;
        }
    }

    return found;
}


/* replaces bad hexadecimal digits, which cJSON reads as a NUL byte */
static int
unhex(const uint8_t *body, size_t len, util_buf_t *out)
{
    int     found;
    size_t  i, k;

    found = 0;

    out->len = 0;
    util_put(out, body, len);

    for (i = 0; i + 1 < len; i++) {

        if (body[i] != '\\' || body[++i] != 'u') {
            continue;
        }

        for (k = 1; k <= 4; k++) {

            if (i + k >= len || !isxdigit(body[i + k])) {
                out->p[i - 1] = 'x';
                found = 1;
            }
        }
    }

    return found;
}


void
oracle_verify(const oracle_result_t *res, const kvr_prompt_conf_t *conf,
    const uint8_t *body, size_t len, oracle_stats_t *stats)
{
    cJSON            *json;
    oracle_t          o = { 0 };
    util_buf_t        copy = { 0 };
    const uint8_t    *p;
    oracle_result_t  *want;
    oracle_explanation_e  why;

    util_check(res->rc != KVR_ERROR
               || (res->pr.n == 0 && res->pr.root == 0
                   && res->pr.model_root == 0),
               "a chain without JSON");

    stats->bodies++;
    json = parse(body, len);

    if (json == NULL) {

        if (res->rc == KVR_OK) {
            verify_loose(res, conf, body, len, stats);

        } else {
            stats->rejected++;
        }

        return;
    }

    want = malloc(sizeof(*want));

    if (!cJSON_IsObject(json)) {
        util_check(res->rc == KVR_ERROR, "no object: %s", util_show(body, len));
        stats->explained[ORACLE_NOT_OBJECT]++;

    } else if (len > 3 && memcmp(body, "\xef\xbb\xbf", 3) == 0) {
        util_check(res->rc == KVR_ERROR, "BOM");
        stats->explained[ORACLE_BOM]++;

        oracle_read(want, conf, body + 3, len - 3, UTIL_WHOLE, 0);
        oracle_verify(want, conf, body + 3, len - 3, stats);

    } else if ((why = ORACLE_SPACE, unspace(body, len, &copy))
               || (why = ORACLE_HEX, unhex(body, len, &copy)))
    {
        /* in a skipped part it does not matter */

        if (res->rc != KVR_OK) {
            util_check(res->rc == KVR_ERROR, "%d: %s", res->rc,
                       util_show(body, len));
            stats->explained[why]++;
        }

        oracle_read(want, conf, copy.p, copy.len, UTIL_WHOLE, 0);
        oracle_verify(want, conf, copy.p, copy.len, stats);

    } else {
        util_check(res->rc == KVR_OK, "%d, but cJSON accepts it: %s", res->rc,
                   util_show(body, len));

        o.len = len;
        o.explained = stats->explained;
        p = body;

        oracle_expect(&o, node_json(&o, json, &p, body + len), conf, want);

        util_check(!o.error, "the oracle fails: %s", util_show(body, len));
        oracle_same(res, want, "body that both accept");

        stats->accepted++;
    }

    util_drop(&copy);
    free(want);
    node_free(&o);
    cJSON_Delete(json);
}


void
oracle_read(oracle_result_t *res, const kvr_prompt_conf_t *conf,
    const uint8_t *body, size_t len, util_cut_e cut, size_t n)
{
    util_feed_t        f;
    kvr_prompt_conf_t  cf;

    static uint64_t  digests[MAX_DIGESTS];

    /* every field must be set */

    memset(res, 0xee, sizeof(*res));

    cf = *conf;
    cf.secret = util_secret;
    cf.digests = digests;
    cf.max_digests = MAX_DIGESTS;
    cf.chain = res->chain;
    cf.max_chain = ORACLE_MAX_CHAIN;

    util_feed(&f, body, len, cut, n);
    res->rc = kvr_prompt_read(&res->pr, &cf, util_fetch, &f);
    util_unfeed(&f);
}


#define same(field)                                                           \
    util_check(a->field == b->field, "%s: " #field " %lld and %lld", what,    \
               (long long) a->field, (long long) b->field)

void
oracle_same(const oracle_result_t *a, const oracle_result_t *b,
    const char *what)
{
    size_t    i;
    unsigned  k;

    same(rc);
    same(pr.shape);
    same(pr.model_len);
    util_check(memcmp(a->pr.model, b->pr.model, a->pr.model_len) == 0,
               "%s: model %s and %s", what,
               util_show(a->pr.model, a->pr.model_len),
               util_show(b->pr.model, b->pr.model_len));

    for (k = 0; k < KVR_PROMPT_FIELDS; k++) {
        same(pr.field[k].len);
        util_check(memcmp(a->pr.field[k].data, b->pr.field[k].data,
                          a->pr.field[k].len) == 0,
                   "%s: field %u", what, k);
    }

    same(pr.skips);
    same(pr.unsized);
    same(pr.sampled);
    same(pr.priority_set);

    if (a->pr.priority_set) {
        same(pr.priority);
    }

    same(pr.max_tokens);
    same(pr.model_root);
    same(pr.root);
    same(pr.bytes);
    same(pr.extra);
    same(pr.blocks);
    same(pr.n);

    for (i = 0; i < a->pr.n; i++) {
        same(chain[i]);
    }
}
