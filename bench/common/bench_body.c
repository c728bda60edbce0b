
/*
 * Copyright (C) kvroute contributors
 */


#include "bench_body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>


#define BENCH_TEXT   6000        /* bytes of text in a message */
#define BENCH_SHORT  60


const char *const  bench_kind_names[] = {
    "prose", "code", "multibyte", "escaped", "image", "messages"
};

_Static_assert(sizeof(bench_kind_names) / sizeof(bench_kind_names[0])
               == BENCH_KINDS, "kinds of bodies");


static const char *const  bench_words[] = {
    "the ", "router ", "of ", "prompts ", "keeps ", "what ", "a ", "replica ",
    "has ", "computed ", "and ", "sends ", "there ", "whoever ", "asks ",
    "for ", "it ", "again, ", "unless ", "others ", "wait. ", "Then ",
    "another ", "one ", "is ", "cheaper.\\n"
};

static const char *const  bench_lines[] = {
    "static int\\nread_", "(const char *name, size_t len)\\n{\\n",
    "\\tif (strcmp(name, \\\"", "value\\\") == 0) {\\n",
    "\\t\\tprintf(\\\"%s: %d\\\\n\\\", name, ",
    "\\t\\treturn -1;\\n\\t}\\n\\n", "\\tfor (i = 0; i < n; i++) {\\n",
    "\\t\\tpath = \\\"C:\\\\\\\\temp\\\\\\\\",
    "\\t}\\n\\n\\treturn 0;\\n}\\n\\n",
    "item[i].count += 1;\\n", "\\tassert(\\\"", "\\\" != NULL);\\n"
};

static const char *const  bench_multi[] = {
    "\xd0\xbf\xd1\x80\xd0\xbe", "\xe6\xa8\xa1\xe5\x9e\x8b",
    "\xe3\x81\xae", "\xc3\xa9t\xc3\xa9 ", "\xf0\x9f\x99\x82",
    "\xe7\xbc\x93\xe5\xad\x98", "\xd1\x81\xd0\xbb\xd0\xbe\xd0\xb2\xd0\xbe "
};

static const char *const  bench_escaped[] = {
    "\\u043f\\u0440\\u043e", "\\u6a21\\u578b", "\\u306e", "\\u00e9t\\u00e9 ",
    "\\ud83d\\ude42", "\\u7f13\\u5b58", "\\u0441\\u043b\\u043e\\u0432\\u043e "
};

static const char *const  bench_base64[] = {
    "iVBORw0KGgoAAAAN", "SUhEUgAAAAEAAAAB", "CAYAAAAfFcSJAAAA",
    "DUlEQVR42mNk/M9Q", "DwADhgGAWjR9awAA"
};


static void
bench_body_text(bench_body_t *b, bench_kind_e kind, size_t len, unsigned *seed)
{
    size_t              n, end;
    unsigned            k, count;
    const char *const  *words;

    switch (kind) {
    case BENCH_CODE:
        words = bench_lines;
        count = sizeof(bench_lines) / sizeof(char *);
        break;
    case BENCH_MULTI:
        words = bench_multi;
        count = sizeof(bench_multi) / sizeof(char *);
        break;
    case BENCH_ESCAPED:
        words = bench_escaped;
        count = sizeof(bench_escaped) / sizeof(char *);
        break;
    case BENCH_IMAGE:
        words = bench_base64;
        count = sizeof(bench_base64) / sizeof(char *);
        break;
    default:
        words = bench_words;
        count = sizeof(bench_words) / sizeof(char *);
    }

    for (end = b->len + len; b->len < end; b->len += n) {
        *seed = *seed * 1664525 + 1013904223;
        k = (*seed >> 8) % count;
        n = strlen(words[k]);
        memcpy(b->data + b->len, words[k], n);
    }
}


static void
bench_body_put(bench_body_t *b, const char *s)
{
    size_t  n;

    n = strlen(s);
    memcpy(b->data + b->len, s, n);
    b->len += n;
}


void
bench_body_make(bench_body_t *b, bench_kind_e kind, size_t size, unsigned seed)
{
    size_t    n, left;

    b->data = malloc(size + BENCH_TEXT + 1024);
    if (b->data == NULL) {
        fprintf(stderr, "no memory\n");
        exit(1);
    }

    b->len = 0;
    b->messages = 1;

    bench_body_put(b, "{\"model\":\"llama\",\"stream\":false,\"messages\":["
                      "{\"role\":\"system\",\"content\":\"");

    b->nonce = b->len;

    bench_body_put(b, "0000000000000000 You are a router. ");

    while (b->len + 200 < size) {

        bench_body_put(b, b->messages % 2
                          ? "\"},{\"role\":\"user\",\"content\":"
                          : "\"},{\"role\":\"assistant\",\"content\":");
        b->messages++;

        left = size - b->len;
        n = (kind == BENCH_SMALL) ? BENCH_SHORT : BENCH_TEXT;
        n = n < left - 100 ? n : left - 100;

        if (kind == BENCH_IMAGE) {
            bench_body_put(b, "[{\"type\":\"image_url\",\"image_url\":{\"url\":"
                              "\"data:image/png;base64,");
            bench_body_text(b, kind, left - 100, &seed);
            bench_body_put(b, "\"}},{\"type\":\"text\",\"text\":\"and?\"}]"
                              "},{\"role\":\"user\",\"content\":\"so?");
            break;
        }

        bench_body_put(b, "\"");
        bench_body_text(b, kind, n, &seed);
    }

    bench_body_put(b, "\"}],\"max_tokens\":256,\"temperature\":0.7}");
}


void
bench_body_nonce(bench_body_t *b, uint64_t n)
{
    int  i;

    static const char  hex[] = "0123456789abcdef";

    for (i = 0; i < BENCH_NONCE_LEN; i++, n >>= 4) {
        b->data[b->nonce + i] = hex[n & 15];
    }
}


bench_kind_e
bench_kind(const char *name)
{
    int  i;

    for (i = 0; i < BENCH_KINDS; i++) {
        if (strcmp(name, bench_kind_names[i]) == 0) {
            break;
        }
    }

    return (bench_kind_e) i;
}
