
/*
 * Copyright (C) kvroute contributors
 */


#include "oracle_node.h"


static node_t *
node_new(oracle_t *o)
{
    node_t  *v;

    v = calloc(1, sizeof(node_t));

    if (v == NULL) {
        abort();
    }

    v->all = o->nodes;
    o->nodes = v;

    return v;
}


/* the length of a string with its quotes, 0 if it has no end */
static size_t
string_len(const uint8_t *p, const uint8_t *e)
{
    const uint8_t  *s;

    for (s = p + 1; s < e; s++) {

        if (*s == '"') {
            return (size_t) (s + 1 - p);
        }

        if (*s == '\\') {
            s++;
        }
    }

    return 0;
}


static int
kind_of(unsigned c)
{
    return c == '-' || (c >= '0' && c <= '9') ? '0' : (int) c;
}


/* returns a node for the value that starts at *p, after white space */
static node_t *
node_at(oracle_t *o, const uint8_t **p, const uint8_t *e)
{
    node_t  *v;

    while (*p < e && **p <= ' ') {
        (*p)++;
    }

    v = node_new(o);
    v->strict = 1;
    v->p = *p;
    v->kind = kind_of(**p);

    return v;
}


static void
node_punctuation(const uint8_t **p, const uint8_t *e, uint8_t c)
{
    while (*p < e && **p <= ' ') {
        (*p)++;
    }

    util_check(*p < e && **p == c, "cJSON saw \"%c\" here", c);
    (*p)++;
}


/* gives cJSON's tree the places of its nodes in the text */
node_t *
node_json(oracle_t *o, const cJSON *json, const uint8_t **p, const uint8_t *e)
{
    size_t        used;
    cJSON        *item;
    node_t       *v, *key, **last;

    v = node_at(o, p, e);

    switch (v->kind) {

    case '"':
        util_check(cJSON_IsString(json), "cJSON has no string here");
        v->string = json->valuestring;
        *p += string_len(*p, e);
        break;

    case '0':
        util_check(cJSON_IsNumber(json), "cJSON has no number here");
        v->number = json->valuedouble;
        *p += strspn((char *) *p, "0123456789+-.eE");
        break;

    case 't':
    case 'n':
        util_check(cJSON_IsTrue(json) || cJSON_IsNull(json), "literal");
        *p += 4;
        break;

    case 'f':
        util_check(cJSON_IsFalse(json), "literal");
        *p += 5;
        break;

    default:
        util_check(v->kind == '{' ? cJSON_IsObject(json) : cJSON_IsArray(json),
                   "cJSON has another value here");
        (*p)++;

        v->opened = 1;
        last = &v->child;
        key = NULL;

        for (item = json->child; item; item = item->next) {

            if (v->kind == '{') {
                key = node_at(o, p, e);
                key->string = item->string;
                key->len = string_len(*p, e);
                *p += key->len;

                (void) util_string(key->p + 1, key->len - 1, &key->name, &used,
                                   0);

                node_punctuation(p, e, ':');
            }

            *last = node_json(o, item, p, e);
            (*last)->key = key;
            last = &(*last)->next;

            if (item->next) {
                node_punctuation(p, e, ',');
            }
        }

        node_punctuation(p, e, v->kind == '{' ? '}' : ']');
    }

    v->len = (size_t) (*p - v->p);

    return v;
}


/* reads a value as the reader skips one; NULL if it is invalid */
node_t *
node_loose(oracle_t *o, const uint8_t **p, const uint8_t *e)
{
    size_t          used;
    node_t         *v;
    util_buf_t      raw;
    const uint8_t  *s;

    while (*p < e && node_space(**p)) {
        (*p)++;
    }

    if (*p == e) {
        return NULL;
    }

    v = node_new(o);
    v->p = *p;
    v->kind = kind_of(**p);

    switch (v->kind) {

    case '"':
        v->len = string_len(*p, e);
        break;

    case '{':
    case '[':
        memset(&raw, 0, sizeof(raw));

        if (util_raw(*p, (size_t) (e - *p), &raw, &used) == KVR_OK) {
            v->len = used;
        }

        util_drop(&raw);
        break;

    default:
        for (s = *p; s < e && *s > ' '; s++) {
            if (*s == ',' || *s == ']' || *s == '}') {
                break;
            }
        }

        if (s < e && ((v->kind == '0'
                       && strspn((char *) *p, "0123456789+-.eE")
                          == (size_t) (s - *p))
                      || (s - *p == 4 && memcmp(*p, "true", 4) == 0)
                      || (s - *p == 4 && memcmp(*p, "null", 4) == 0)
                      || (s - *p == 5 && memcmp(*p, "false", 5) == 0)))
        {
            v->len = (size_t) (s - *p);
        }
    }

    *p += v->len;

    return v->len ? v : NULL;
}


static int
node_open_item(oracle_t *o, node_t *v, const uint8_t **p, const uint8_t *e,
    node_t **item)
{
    size_t   used;
    node_t  *key;

    key = NULL;

    if (v->kind == '{') {
        key = node_loose(o, p, e);

        if (key == NULL || key->kind != '"') {
            return 0;
        }

        key->word = 1;

        if (util_string(key->p + 1, key->len - 1, &key->name, &used, 0)
            != KVR_OK)
        {
            return 0;
        }

        while (*p < e && node_space(**p)) {
            (*p)++;
        }

        if (*p == e || *(*p)++ != ':') {
            return 0;
        }
    }

    *item = node_loose(o, p, e);

    if (*item == NULL) {
        return 0;
    }

    (*item)->key = key;

    return 1;
}


/* sets the items of an array or object; 0 if it has none */
int
node_open(oracle_t *o, node_t *v)
{
    node_t         **last;
    const uint8_t   *p, *e;

    if (v->opened) {
        return 1;
    }

    v->opened = 1;

    p = v->p + 1;
    e = v->p + v->len;
    last = &v->child;

    for ( ;; ) {

        while (p < e && node_space(*p)) {
            p++;
        }

        /* the reader counts brackets of all kinds: is this the right kind? */

        if (p + 1 == e && *p == (v->kind == '{' ? '}' : ']')) {
            return 1;
        }

        if (v->child && (p == e || *p++ != ',')) {
            break;
        }

        if (!node_open_item(o, v, &p, e, last)) {
            break;
        }

        last = &(*last)->next;
    }

    o->error = 1;
    v->child = NULL;

    return 0;
}


/* decodes a string; also checks the slow reference against cJSON */
void
node_string(oracle_t *o, node_t *v, util_buf_t *out, int canonical)
{
    int             rc, plain;
    size_t          i, used;
    util_buf_t      ref = { 0 };
    const uint8_t  *s;

    static const char  from[] = "\"\\\b\f\n\r\t";
    static const char  to[] = "\"\\bfnrt";

    if (canonical) {
        v->text = 1;

    } else {
        v->word = 1;
    }

    rc = util_string(v->p + 1, v->len - 1, &ref, &used, canonical);

    if (rc != KVR_OK || used != v->len - 1) {
        o->error = 1;
        util_drop(&ref);
        return;
    }

    plain = v->strict;

    for (i = 1; i < v->len - 1; i++) {

        if (v->p[i] < 0x20) {
            plain = 0;

            if (o->explained && canonical) {
                o->explained[ORACLE_CONTROL]++;
            }
        }

        if (v->p[i] == '\\') {
            i++;

            if (i + 4 < v->len && memcmp(v->p + i, "u0000", 5) == 0) {
                plain = 0;

                if (o->explained) {
                    o->explained[ORACLE_NUL]++;
                }
            }
        }
    }

    if (!plain) {
        util_put(out, ref.p, ref.len);
        util_drop(&ref);
        return;
    }

    /* cJSON's text, with the escapes that JSON requires */

    i = out->len;

    for (s = (const uint8_t *) v->string; *s; s++) {

        if (!canonical) {
            util_byte(out, *s);

        } else if (strchr(from, *s)) {
            util_byte(out, '\\');
            util_byte(out, (uint8_t) to[strchr(from, *s) - from]);

        } else if (*s < 0x20) {
            util_printf(out, "\\u%04x", *s);

        } else {
            util_byte(out, *s);
        }
    }

    util_check(out->len - i == ref.len
               && (ref.len == 0 || memcmp(out->p + i, ref.p, ref.len) == 0),
               "the reference and cJSON differ: %s",
               util_show(v->p, v->len));

    util_drop(&ref);
}


/* returns whether this is the key of an item */
int
node_is(node_t *item, const char *name)
{
    util_buf_t  *key;

    key = &item->key->name;

    return key->len == strlen(name)
           && (key->len == 0 || memcmp(key->p, name, key->len) == 0);
}


/* returns the value of the last key with this name */
node_t *
node_get(node_t *v, const char *name)
{
    node_t  *item, *found;

    found = NULL;

    for (item = v->child; item; item = item->next) {

        if (node_is(item, name)) {
            found = item;
        }
    }

    return found;
}


/*
 * Decodes a string and keeps its first max bytes.  Like the reader, it ignores
 * a broken escape after them.
 */
void
node_word(oracle_t *o, node_t *v, word_t *w, size_t max)
{
    size_t      used;
    util_buf_t  buf = { 0 };

    w->len = 0;
    w->cut = 0;

    if (v == NULL || v->kind != '"') {
        return;
    }

    if (util_string(v->p + 1, v->len - 1, &buf, &used, 0) != KVR_ERROR
        || buf.len <= max)
    {
        buf.len = 0;
        node_string(o, v, &buf, 0);
    }

    w->len = kvr_min(buf.len, max);
    w->cut = buf.len > max;

    if (w->len) {
        memcpy(w->data, buf.p, w->len);
    }

    util_drop(&buf);
}


int
word_is(const word_t *w, const char *s)
{
    return w->len == strlen(s) && memcmp(w->data, s, w->len) == 0;
}


void
node_raw(oracle_t *o, node_t *v, util_buf_t *out)
{
    size_t  used;

    if (v->kind == '"') {
        util_byte(out, '"');
        node_string(o, v, out, 1);
        util_byte(out, '"');

    } else if (v->kind == '{' || v->kind == '[') {
        util_check(util_raw(v->p, v->len, out, &used) == KVR_OK
                   && used == v->len, "raw");

    } else {
        util_put(out, v->p, v->len);
    }
}


int
node_opens(oracle_t *o, node_t *v, int kind, unsigned depth)
{
    if (v == NULL || v->kind != kind) {
        return 0;
    }

    if (depth == KVR_WALK_DEPTH) {

        if (o->explained) {
            o->explained[ORACLE_DEPTH]++;
        }

        return 0;
    }

    return node_open(o, v);
}


void
node_free(oracle_t *o)
{
    int      i;
    node_t  *v;

    while (o->nodes) {
        v = o->nodes;
        o->nodes = v->all;

        util_drop(&v->name);
        free(v);
    }

    for (i = 0; i < SECTIONS; i++) {
        util_drop(&o->section[i]);
    }
}
