
/*
 * Copyright (C) kvroute contributors
 */


#include "core/legs/kvr_transfer.h"


static void kvr_transfer_string(kvr_transfer_t *t, uint8_t c);
static void kvr_transfer_open(kvr_transfer_t *t, uint8_t c);
static void kvr_transfer_close(kvr_transfer_t *t);


void
kvr_transfer_init(kvr_transfer_t *t, const char *name, uint8_t *data,
    size_t size)
{
    memset(t, 0, sizeof(kvr_transfer_t));

    t->name = name;
    t->data = data;
    t->size = size;
}


void
kvr_transfer_read(kvr_transfer_t *t, const uint8_t *p, size_t n)
{
    uint8_t         c;
    const uint8_t  *last;

    for (last = p + n; p < last && !t->bad; p++) {
        c = *p;

        if (t->inside) {

            if (t->len < t->size) {
                t->data[t->len] = c;
            }

            t->len++;
        }

        if (t->string) {
            kvr_transfer_string(t, c);
            continue;
        }

        switch (c) {

        case ' ':
        case '\t':
        case '\n':
        case '\r':
            break;

        case '"':
            t->string = 1;
            t->key = t->expect;
            t->expect = 0;
            t->match = 0;

            t->bad = (t->depth == 0);
            break;

        case '{':
        case '[':
            kvr_transfer_open(t, c);
            break;

        case '}':
        case ']':
            kvr_transfer_close(t);
            break;

        case ',':
            if (t->depth == 1) {
                t->expect = 1;
                t->named = 0;
            }

            break;

        default:
            t->bad = (t->depth == 0);
        }
    }
}


static void
kvr_transfer_string(kvr_transfer_t *t, uint8_t c)
{
    if (t->escape) {
        t->escape = 0;
        return;
    }

    if (c == '\\') {
        t->escape = 1;
        t->match = -1;
        return;
    }

    if (c == '"') {
        t->string = 0;

        if (t->key) {
            t->named = (t->name && t->match >= 0 && t->name[t->match] == '\0');
        }

        if (t->key && t->named) {

            /* the last of two equal keys wins, as in the engines */

            t->found = 0;
            t->over = 0;
        }

        return;
    }

    if (t->key && t->name && t->match >= 0) {
        t->match = (t->name[t->match] == (char) c) ? t->match + 1 : -1;
    }
}


static void
kvr_transfer_open(kvr_transfer_t *t, uint8_t c)
{
    if (t->depth == 0) {
        t->bad = (c != '{' || t->whole);
        t->expect = 1;

    } else if (t->depth == 1 && t->named && c == '{') {
        t->inside = 1;
        t->len = 1;

        if (t->size) {
            t->data[0] = c;
        }
    }

    t->depth++;
}


static void
kvr_transfer_close(kvr_transfer_t *t)
{
    if (t->depth == 0) {
        t->bad = 1;
        return;
    }

    t->depth--;

    if (t->inside && t->depth == 1) {
        t->inside = 0;
        t->named = 0;
        t->found = 1;
        t->over = (t->len > t->size);
    }

    if (t->depth == 0) {
        t->whole = 1;
    }
}
