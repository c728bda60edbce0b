
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_edit: a body whose members were blanked is the object without these, by
 * cJSON; all other bytes are what they were.
 */


#include "util.h"
#include "core/legs/kvr_connector.h"
#include "core/legs/kvr_edit.h"

#include <cjson/cJSON.h>


static const char *const  names[] = { "stream", "max_tokens", NULL };


static int
find(kvr_edit_t *e, const util_buf_t *b, const char *const *which)
{
    kvr_json_text_t  text;

    text.data = b->p;
    text.len = b->len;

    return kvr_edit_find(e, which, kvr_json_fetch_text, &text);
}


/* blanks all that is to be cut */
static uint32_t
blank(util_buf_t *b, const char *const *which)
{
    uint32_t    i, n;
    kvr_edit_t  e;

    n = 0;

    do {
        util_check(find(&e, b, which) == KVR_OK, "%.*s", (int) b->len, b->p);

        for (i = 0; i < e.n; i++) {
            util_check(e.cut[i].offset + e.cut[i].len <= e.end,
                       "cut %u beyond the brace", i);
            memset(b->p + e.cut[i].offset, ' ', e.cut[i].len);
        }

        n += e.n;

    } while (e.more);

    util_check(b->p[e.end] == '}', "no brace at %zu", (size_t) e.end);

    return n;
}


static void
value(util_buf_t *b, util_rng_t *r, unsigned depth)
{
    unsigned  i, n;

    static const char  *simple[] = {
        "1", "-2.5e3", "true", "null", "\"\"", "\"a\\\"b,}\"", "\"\\\\\"", "[]",
        "{}", "\"stream\"", "[1, 2]", "{\"stream\":{\"max_tokens\":1}}"
    };

    if (depth == 0 || util_below(r, 3)) {
        util_puts(b, simple[util_below(r, kvr_nelts(simple))]);
        return;
    }

    n = util_below(r, 4);
    util_puts(b, "[");

    for (i = 0; i < n; i++) {
        util_puts(b, i ? ", " : "");
        value(b, r, depth - 1);
    }

    util_puts(b, "]");
}


/* a body of n members, of which some are to be cut */
static void
body(util_buf_t *b, util_rng_t *r, unsigned n)
{
    unsigned  i;

    static const char  *blanks[] = { "", "", "", " ", "\n\t", "  " };
    static const char  *keys[] = {
        "model", "messages", "stream", "max_tokens", "max\\u005ftokens",
        "\\u0073tream", "strea", "streams", "", "max_token", "MAX_TOKENS"
    };

#define ws  util_puts(b, blanks[util_below(r, kvr_nelts(blanks))])

    b->len = 0;
    ws;
    util_puts(b, "{");
    ws;

    for (i = 0; i < n; i++) {
        util_puts(b, i ? "," : "");
        ws;
        util_printf(b, "\"%s\"", keys[util_below(r, kvr_nelts(keys))]);
        ws;
        util_puts(b, ":");
        ws;
        value(b, r, 3);
        ws;
    }

    util_puts(b, "}");
    ws;
    util_byte(b, 0);
    b->len--;

#undef ws
}


/* the members that stay, in their order */
static cJSON *
without(const util_buf_t *b, uint32_t *cut)
{
    cJSON  *root, *item, *next;

    root = cJSON_Parse((const char *) b->p);
    util_check(root, "%s", b->p);

    *cut = 0;

    for (item = root->child; item; item = next) {
        next = item->next;

        if (strcmp(item->string, "stream") == 0
            || strcmp(item->string, "max_tokens") == 0)
        {
            cJSON_Delete(cJSON_DetachItemViaPointer(root, item));
            (*cut)++;
        }
    }

    return root;
}


START_TEST(test_edit_random)
{
    char        *want, *got;
    cJSON       *root;
    unsigned     i, n;
    uint32_t     cut, k;
    kvr_edit_t   e;
    util_rng_t   r;
    util_buf_t   b, was;

    memset(&b, 0, sizeof(b));
    memset(&was, 0, sizeof(was));

    n = util_cases(20000);

    for (i = 0; i < n; i++) {
        util_seed(&r, "edit", i);
        body(&b, &r, util_below(&r, i % 50 ? 7 : 60));

        was.len = 0;
        util_put(&was, b.p, b.len + 1);

        root = without(&was, &cut);
        want = cJSON_PrintUnformatted(root);
        k = (uint32_t) cJSON_GetArraySize(root);
        cJSON_Delete(root);

        util_check(blank(&b, names) == cut, "%s", was.p);

        /* nothing is left to be found, and the rest may be gone on with */

        util_check(find(&e, &b, names) == KVR_OK && e.n == 0 && e.kept == k,
                   "%s", b.p);

        root = cJSON_Parse((const char *) b.p);
        util_check(root, "%s\n%s", was.p, b.p);
        got = cJSON_PrintUnformatted(root);
        cJSON_Delete(root);

        util_check(strcmp(want, got) == 0, "%s\n%s", was.p, b.p);

        free(want);
        free(got);
    }

    util_drop(&b);
    util_drop(&was);
}
END_TEST


START_TEST(test_edit_bad)
{
    unsigned    i;
    kvr_edit_t  e;
    util_buf_t  b;

    static const struct {
        const char  *text;
        int          rc;
    } bad[] = {
        { "", KVR_AGAIN }, { "{", KVR_AGAIN }, { "{\"a\":1", KVR_AGAIN },
        { "{\"stream\":tru", KVR_AGAIN }, { "[]", KVR_ERROR },
        { "{} x", KVR_ERROR }, { "{\"a\" 1}", KVR_ERROR },
        { "{,}", KVR_ERROR }, { "{\"a\":1 \"b\":2}", KVR_ERROR },
        { "\"x\"", KVR_ERROR }
    };

    memset(&b, 0, sizeof(b));

    for (i = 0; i < kvr_nelts(bad); i++) {
        b.len = 0;
        util_puts(&b, bad[i].text);
        util_check(find(&e, &b, names) == bad[i].rc, "%s", bad[i].text);
    }

    util_drop(&b);
}
END_TEST


/* what is appended makes an object of it again */
START_TEST(test_edit_ask)
{
    char                    text[KVR_CONNECTOR_LEN];
    size_t                  len;
    cJSON                  *root;
    unsigned                c, kept;
    kvr_edit_t              e;
    util_buf_t              b;
    const kvr_connector_t  *connector;

    memset(&b, 0, sizeof(b));

    for (c = 0; c < KVR_CONNECTOR_MAX; c++) {
        connector = kvr_connector((kvr_connector_e) c);

        if (connector->meet) {
            continue;
        }

        for (kept = 0; kept < 2; kept++) {
            b.len = 0;
            util_puts(&b, kept ? "{\"model\":\"m\",\"stream\":true,"
                                 "\"max_completion_tokens\":99 } "
                               : "{\"stream\":true,\"min_tokens\":7}");

            (void) blank(&b, connector->limits);

            util_check(find(&e, &b, connector->limits) == KVR_OK,
                       "%u", c);

            b.len = e.end;
            len = kvr_connector_ask(connector, KVR_ENDPOINT_PROMPT,
                                    e.kept != 0, text);
            util_check(len <= KVR_CONNECTOR_LEN, "%zu bytes", len);

            util_put(&b, text, len);
            util_byte(&b, 0);

            root = cJSON_Parse((const char *) b.p);
            util_check(root, "%s", b.p);

            util_check(cJSON_GetArraySize(root)
                       == (int) (2 + kept + (connector->ask != NULL)),
                       "%s", b.p);
            util_check(cJSON_IsFalse(cJSON_GetObjectItem(root, "stream")),
                       "%s", b.p);
            util_check(cJSON_GetObjectItem(root, "max_tokens")->valueint == 1,
                       "%s", b.p);

            cJSON_Delete(root);
        }
    }

    util_drop(&b);
}
END_TEST


/* so does what two legs meet by, which names the same place in both */
START_TEST(test_edit_meet)
{
    char                    text[KVR_CONNECTOR_LEN + 64], room[2][64];
    size_t                  len;
    cJSON                  *root, *params, *id;
    unsigned                c, kept, leg;
    util_buf_t              b;
    kvr_meeting_t           meeting;
    const kvr_connector_t  *connector;

    memset(&b, 0, sizeof(b));

    meeting.server = (const uint8_t *) "10.0.0.11:8000";
    meeting.server_len = sizeof("10.0.0.11:8000") - 1;
    meeting.host_len = sizeof("10.0.0.11") - 1;
    meeting.port = 8998;
    meeting.room = UINT64_MAX;

    for (c = 0; c < KVR_CONNECTOR_MAX; c++) {
        connector = kvr_connector((kvr_connector_e) c);

        if (connector->meet == NULL) {
            continue;
        }

        for (kept = 0; kept < 2; kept++) {

            for (leg = 0; leg < 2; leg++) {
                b.len = 0;
                util_puts(&b, kept ? "{\"model\":\"m\"" : "{");

                len = connector->meet(KVR_ENDPOINT_PROMPT, &meeting, leg, kept,
                                      text);
                util_check(len <= sizeof(text), "%zu bytes", len);

                util_put(&b, text, len);
                util_byte(&b, 0);

                root = cJSON_Parse((const char *) b.p);
                util_check(root, "%s", b.p);

                params = cJSON_GetObjectItem(root, "kv_transfer_params");
                id = params ? cJSON_GetObjectItem(params, "transfer_id")
                            : cJSON_GetObjectItem(root, "bootstrap_room");
                util_check(id && (params == NULL) == (c == KVR_CONNECTOR_SGLANG),
                           "%s", b.p);

                if (params) {
                    strcpy(room[leg], id->valuestring);

                } else {
                    sprintf(room[leg], "%.0f", id->valuedouble);
                }

                cJSON_Delete(root);
            }

            util_check(strcmp(room[0], room[1]) == 0, "%s, %s", room[0],
                       room[1]);
        }
    }

    util_drop(&b);
}
END_TEST


int
main(void)
{
    Suite  *s;

    s = suite_create("edit");

    util_add(s, "random", test_edit_random);
    util_add(s, "bad", test_edit_bad);
    util_add(s, "ask", test_edit_ask);
    util_add(s, "meet", test_edit_meet);

    return util_run(s);
}
