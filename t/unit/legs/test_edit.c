
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_edit: a body with blanked members equals the object without them, by
 * cJSON; all other bytes are unchanged.
 */


#include "util.h"
#include "core/legs/kvr_connector.h"
#include "core/legs/kvr_edit.h"

#include <cjson/cJSON.h>


static const char *const  members[] = { "stream", "max_tokens", NULL };
static const char *const  content[] = { "messages", NULL };

static const kvr_json_names_t  names = { members, NULL, NULL };
static const kvr_json_names_t  deep = { members, "sm", content };


static int
find(kvr_edit_t *e, const util_buf_t *b, const kvr_json_names_t *which)
{
    kvr_json_text_t  text;

    text.data = b->p;
    text.len = b->len;

    return kvr_edit_find(e, which, kvr_json_fetch_text, &text);
}


/* blanks all members to cut; KVR_JSON_COSTLY: too expensive */
static int
blank(util_buf_t *b, const kvr_json_names_t *which, uint32_t *n)
{
    int         rc;
    uint32_t    i;
    kvr_edit_t  e;

    rc = find(&e, b, which);
    *n = e.n;

    if (rc == KVR_JSON_COSTLY && e.n == KVR_EDIT_MAX) {
        return rc;
    }

    util_check(rc == KVR_OK, "%d: %.*s", rc, (int) b->len, b->p);

    for (i = 0; i < e.n; i++) {
        util_check(e.cut[i].offset + e.cut[i].len <= b->len, "cut %u", i);
        memset(b->p + e.cut[i].offset, ' ', e.cut[i].len);
    }

    util_check(e.end == 0 || b->p[e.end] == '}', "no brace at %zu",
               (size_t) e.end);

    return KVR_OK;
}


static const char  *blanks[] = { "", "", "", " ", "\n\t", "  " };

static const char  *keys[] = {
    "model", "messages", "stream", "max_tokens", "max\\u005ftokens",
    "\\u0073tream", "strea", "streams", "", "max_token", "MAX_TOKENS"
};


static void
ws(util_buf_t *b, util_rng_t *r)
{
    if (util_below(r, 40) == 0) {
        util_printf(b, "%*s", (int) util_below(r, 200), "");
    }

    util_puts(b, blanks[util_below(r, kvr_nelts(blanks))]);
}


static void
value(util_buf_t *b, util_rng_t *r, unsigned depth)
{
    unsigned  i, n, object;

    static const char  *simple[] = {
        "1", "-2.5e3", "true", "null", "\"\"", "\"a\\\"b,}\"", "\"\\\\\"", "[]",
        "{}", "\"stream\"", "[1, 2]", "{\"stream\":{\"max_tokens\":1}}"
    };

    if (depth == 0 || util_below(r, 3)) {
        util_puts(b, simple[util_below(r, kvr_nelts(simple))]);
        return;
    }

    n = util_below(r, 4);
    object = util_below(r, 2);

    util_puts(b, object ? "{" : "[");

    for (i = 0; i < n; i++) {
        ws(b, r);
        util_puts(b, i ? "," : "");
        ws(b, r);

        if (object) {
            util_printf(b, "\"%s\"", keys[util_below(r, kvr_nelts(keys))]);
            ws(b, r);
            util_puts(b, ":");
        }

        ws(b, r);
        value(b, r, depth - 1);
    }

    util_puts(b, object ? "}" : "]");
}


/* makes a body of n members, some of them to cut */
static void
body(util_buf_t *b, util_rng_t *r, unsigned n)
{
    unsigned  i;

    b->len = 0;
    ws(b, r);
    util_puts(b, "{");
    ws(b, r);

    for (i = 0; i < n; i++) {
        util_puts(b, i ? "," : "");
        ws(b, r);
        util_printf(b, "\"%s\"", keys[util_below(r, kvr_nelts(keys))]);
        ws(b, r);
        util_puts(b, ":");
        ws(b, r);
        value(b, r, 3);
        ws(b, r);
    }

    util_puts(b, "}");
    ws(b, r);
    util_byte(b, 0);
    b->len--;
}


/* cuts members of an object; inner: also inside its values, except content */
static void
cut(cJSON *value, unsigned inner, unsigned root, uint32_t *n)
{
    cJSON  *item, *next;

    for (item = value->child; item; item = next) {
        next = item->next;

        if (item->string && (strcmp(item->string, "stream") == 0
                             || strcmp(item->string, "max_tokens") == 0))
        {
            cJSON_Delete(cJSON_DetachItemViaPointer(value, item));
            (*n)++;

        } else if (inner && !(root && strcmp(item->string, "messages") == 0)) {
            cut(item, 1, 0, n);
        }
    }
}


static void
edit(util_buf_t *b, util_buf_t *was, unsigned inner)
{
    int                      rc;
    char                    *want, *got;
    cJSON                   *root;
    uint32_t                 n, k, found;
    kvr_edit_t               e;
    const kvr_json_names_t  *which;

    which = inner ? &deep : &names;

    was->len = 0;
    util_put(was, b->p, b->len + 1);

    root = cJSON_Parse((const char *) was->p);
    util_check(root, "%s", was->p);

    n = 0;
    cut(root, inner, 1, &n);
    want = cJSON_PrintUnformatted(root);
    k = (uint32_t) cJSON_GetArraySize(root);
    cJSON_Delete(root);

    rc = blank(b, which, &found);

    util_check((rc == KVR_OK) == (n <= KVR_EDIT_MAX), "%u: %s", n, was->p);

    if (rc == KVR_OK) {
        util_check(found == n, "%u of %u: %s", found, n, was->p);

        /* nothing is left to find, and reading the rest can continue */

        util_check(find(&e, b, which) == KVR_OK && e.n == 0 && e.kept == k,
                   "%s", b->p);

        root = cJSON_Parse((const char *) b->p);
        util_check(root, "%s\n%s", was->p, b->p);
        got = cJSON_PrintUnformatted(root);
        cJSON_Delete(root);

        util_check(strcmp(want, got) == 0, "%s\n%s", want, got);

        free(got);
    }

    free(want);
}


TEST(test_edit_random)
{
    unsigned    i, n;
    util_rng_t  r;
    util_buf_t  b = { 0 }, was = { 0 };

    n = util_cases(20000);

    for (i = 0; i < n; i++) {
        util_seed(&r, "edit", i);
        body(&b, &r, util_below(&r, i % 50 ? 7 : 60));

        edit(&b, &was, i % 2);
    }

    util_drop(&b);
    util_drop(&was);
}


/* windows of any size, which end within keys */
TEST(test_edit_windows)
{
    unsigned     i, n;
    kvr_edit_t   e, whole;
    util_rng_t   r;
    util_buf_t   b = { 0 };
    util_feed_t  f;

    n = util_cases(2000);

    for (i = 0; i < n; i++) {
        util_seed(&r, "windows", i);
        body(&b, &r, util_below(&r, 7));

        if (find(&whole, &b, &deep) != KVR_OK) {
            continue;
        }

        util_feed(&f, b.p, b.len, i % 2 ? UTIL_CUT : UTIL_RANDOM,
                  1 + util_below(&r, (uint32_t) b.len));

        util_check(kvr_edit_find(&e, &deep, util_fetch, &f) == KVR_OK
                   && e.n == whole.n && e.end == whole.end
                   && memcmp(e.cut, whole.cut, e.n * sizeof(kvr_edit_cut_t))
                      == 0,
                   "%s", b.p);

        util_unfeed(&f);
    }

    util_drop(&b);
}


/* possible starts of an object or an array, in any encoding */
TEST(test_edit_begins)
{
    unsigned         i;
    kvr_json_text_t  text;

    static const struct {
        const char  *text;
        size_t       len;
        int          begins;
    } is[] = {
        { " \r\n\t{", 5, 1 }, { "[", 1, 1 }, { "\0{", 2, 1 }, { " \0{", 3, 1 },
        { "\xef\xbb\xbf{", 4, 1 }, { "\xfe\xff", 2, 1 }, { "\xff\xfe{", 3, 1 },
        { "", 0, 0 }, { "  ", 2, 0 }, { "\xff\xd8\xff", 3, 0 },
        { "\xef", 1, 0 }, { "--x", 3, 0 }, { "\"{", 2, 0 }, { "\x1f\x8b", 2, 0 }
    };

    for (i = 0; i < kvr_nelts(is); i++) {
        text.data = (const uint8_t *) is[i].text;
        text.len = is[i].len;

        util_check(kvr_edit_begins(kvr_json_fetch_text, &text) == is[i].begins,
                   "text %u", i);
    }
}


TEST(test_edit_bad)
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
        util_check(find(&e, &b, &names) == bad[i].rc, "%s", bad[i].text);
    }

    util_drop(&b);
}


/* after appending, the body is an object again */
TEST(test_edit_ask)
{
    char                    text[KVR_CONNECTOR_LEN];
    size_t                  len;
    cJSON                  *root;
    unsigned                c, kept;
    uint32_t                n;
    kvr_edit_t              e;
    util_buf_t              b = { 0 };
    const kvr_connector_t  *connector;

    for (c = 0; c < KVR_CONNECTOR_MAX; c++) {
        connector = kvr_connector((kvr_connector_e) c);

        if (connector->meet || connector->pull) {
            continue;
        }

        for (kept = 0; kept < 2; kept++) {
            b.len = 0;
            util_puts(&b, kept ? "{\"model\":\"m\",\"stream\":true,"
                                 "\"max_completion_tokens\":99 } "
                               : "{\"stream\":true,\"min_tokens\":7}");

            (void) blank(&b, connector->limits, &n);

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


/* so are members of a meeting place, the same for both legs */
TEST(test_edit_meet)
{
    char                    text[KVR_CONNECTOR_LEN + 64], room[2][64];
    size_t                  len;
    cJSON                  *root, *params, *id;
    unsigned                c, kept, leg;
    util_buf_t              b = { 0 };
    kvr_meeting_t           meeting;
    const kvr_connector_t  *connector;

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

                len = connector->meet(KVR_ENDPOINT_PROMPT, &meeting,
                                      (kvr_leg_e) leg, kept,
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


/* and members of a source to fetch from */
TEST(test_edit_pull)
{
    char           text[KVR_CONNECTOR_LEN + 64];
    size_t         len;
    unsigned       kept;
    kvr_meeting_t  meeting;

    meeting.server = (const uint8_t *) "[::1]:8000";
    meeting.server_len = sizeof("[::1]:8000") - 1;
    meeting.host_len = sizeof("[::1]") - 1;
    meeting.port = 5710;
    meeting.room = UINT64_MAX;

    for (kept = 0; kept < 2; kept++) {
        len = kvr_connector(KVR_CONNECTOR_PULL)->pull(KVR_ENDPOINT_PROMPT,
                                                      &meeting, KVR_LEG_DECODE,
                                                      kept, text);
        text[len] = '\0';

        util_check(strcmp(text + kept, "\"kv_transfer_params\":{"
                          "\"remote_kv_source\":{\"kv_request_id\":"
                          "\"kvroute-9223372036854775807\","
                          "\"remote_host\":\"[::1]\",\"remote_port\":5710}}}")
                   == 0, "%s", text);
        util_check(!kept || text[0] == ',', "%s", text);
    }
}
