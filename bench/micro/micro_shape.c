
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Bodies in the most expensive shapes, each compared with a usual body of the
 * same length: a coding agent's, with calls and short results; or for escapes,
 * a text that a client has escaped.  They are read in one piece or in
 * chunks, like nginx's buffers.  The reader gives up on a body that is too
 * expensive; this is part of the measured cost.
 */


#include "micro_cases.h"
#include "micro_run.h"
#include "core/text/kvr_window.h"

#include <string.h>


#define MICRO_SHAPE    2000000

#define MICRO_TEXT     "usual text"
#define MICRO_CALLS    "usual calls"
#define MICRO_ESCAPED  "usual escapes"

/* repeats from here to the end of a nested object */
#define MICRO_DEPTH    14


/* a text in pieces of one size; offsets are elements of an array */

typedef struct {
    const uint8_t     *data;
    size_t             len;
    unsigned           last;
} micro_piece_t;

/* a body that repeats a part; "~" in the part is text of this many bytes */

typedef struct {
    const char        *name;
    const char        *usual;
    const char        *head;
    const char        *body;
    const char        *tail;
    size_t             text;
    size_t             piece;    /* size of a piece; 0: the whole body */
} micro_kind_t;


#define MICRO_LIST  "{\"model\":\"m\",\"messages\":[{}"
#define MICRO_END   "]}"


static const micro_kind_t  micro_kinds[] = {

    /* the usual body of coding agents: calls of tools, and short results */

    { MICRO_CALLS, MICRO_CALLS, MICRO_LIST,
      ",{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":"
      "\"call_abcdef\",\"type\":\"function\",\"function\":{\"name\":"
      "\"read_file\",\"arguments\":\"{\\\"path\\\":\\\"a.c\\\"}\"}}]},"
      "{\"role\":\"tool\",\"tool_call_id\":\"call_abcdef\",\"content\":\"~\"}",
      MICRO_END, 400, 0 },

    /* keys that come too late, or twice */

    { "late keys", MICRO_CALLS, MICRO_LIST,
      ",{\"content\":\"~\",\"role\":\"user\"}", MICRO_END, 6000, 0 },
    { "late keys, tiny", MICRO_CALLS, MICRO_LIST,
      ",{\"content\":\"a\",\"role\":\"user\"}", MICRO_END, 0, 0 },
    { "late keys of parts", MICRO_CALLS, MICRO_LIST,
      ",{\"content\":[{\"text\":\"~\",\"type\":\"text\"}],\"role\":\"user\"}",
      MICRO_END, 6000, 0 },
    { "late keys of parts, tiny", MICRO_CALLS,
      MICRO_LIST ",{\"role\":\"user\",\"content\":[{}",
      ",{\"text\":\"\",\"type\":\"\"}", "]}]}", 0, 0 },
    { "late keys of results", MICRO_CALLS, MICRO_LIST,
      ",{\"content\":[{\"content\":[{\"text\":\"~\",\"type\":\"text\"}],"
      "\"type\":\"tool_result\"}],\"role\":\"user\"}", MICRO_END, 6000, 0 },
    { "late keys of calls", MICRO_CALLS, MICRO_LIST,
      ",{\"tool_calls\":[{\"function\":{\"arguments\":\"~\",\"name\":\"f\"},"
      "\"type\":\"function\"}],\"role\":\"assistant\"}", MICRO_END, 6000, 0 },
    { "duplicate keys", MICRO_CALLS, MICRO_LIST,
      ",{\"role\":\"user\",\"content\":\"~\",\"role\":\"user\"}", MICRO_END,
      6000, 0 },
    { "duplicate keys, tiny", MICRO_CALLS, MICRO_LIST,
      ",{\"role\":\"user\",\"role\":\"user\"}", MICRO_END, 0, 0 },

    /* very many small values */

    { "tiny messages", MICRO_CALLS, MICRO_LIST,
      ",{\"role\":\"user\",\"content\":\"a\"}", MICRO_END, 0, 0 },
    { "empty messages", MICRO_CALLS, MICRO_LIST, ",{}", MICRO_END, 0, 0 },
    { "numbers as messages", MICRO_CALLS, MICRO_LIST, ",1", MICRO_END, 0, 0 },
    { "empty parts", MICRO_CALLS, MICRO_LIST ",{\"content\":[\"\"", ",\"\"",
      "]}]}", 0, 0 },
    { "images", MICRO_CALLS, MICRO_LIST ",{\"content\":[{}",
      ",{\"file\":\"a\"}", "]}]}", 0, 0 },
    { "keys", MICRO_CALLS, MICRO_LIST ",{\"role\":\"user\"", ",\"a\":1",
      "}]}", 0, 0 },
    { "keys of the body", MICRO_CALLS, "{\"model\":\"m\"", ",\"a\":1", "}", 0,
      0 },
    { "tools", MICRO_CALLS, "{\"model\":\"m\"", ",\"tools\":[{}]", "}", 0, 0 },
    { "brackets", MICRO_CALLS, "{\"x\":[[]", ",[]", "]}", 0, 0 },
    { "white space", MICRO_CALLS, "{\"tools\":[1", " ,1", "]}", 0, 0 },
    { "one number", MICRO_CALLS, "{\"priority\":1", "1", "}", 0, 0 },
    { "one name", MICRO_CALLS, "{\"model\":\"\\n", "a", "\"}", 0, 0 },

    /* escapes */

    { "escapes", MICRO_ESCAPED, MICRO_LIST ",{\"role\":\"user\",\"content\":\"",
      "\\/a", "\"}]}", 0, 0 },
    { "escaped control bytes", MICRO_ESCAPED,
      MICRO_LIST ",{\"role\":\"user\",\"content\":\"", "\\u0001", "\"}]}", 0,
      0 },
    { "halves of pairs", MICRO_ESCAPED,
      MICRO_LIST ",{\"role\":\"user\",\"content\":\"", "\\ud800", "\"}]}", 0,
      0 },

    /* chunks of the smallest size that nginx makes */

    { "chunks", MICRO_CALLS, MICRO_LIST,
      ",{\"role\":\"user\",\"content\":\"~\"}", MICRO_END, 6000, 129 },
    { "chunks, late keys", MICRO_CALLS, MICRO_LIST,
      ",{\"content\":\"~\",\"role\":\"user\"}", MICRO_END, 6000, 129 },
    { "chunks, late keys, long", MICRO_CALLS, MICRO_LIST,
      ",{\"content\":\"~\",\"role\":\"user\"}", MICRO_END, 300000, 129 },
    { "chunks, late keys, tiny", MICRO_CALLS, MICRO_LIST,
      ",{\"content\":\"a\",\"role\":\"user\"}", MICRO_END, 0, 129 }
};


static uint8_t            micro_windows[KVR_WINDOWS * KVR_WINDOW_LEN];
static kvr_window_mark_t  micro_marks[MICRO_SHAPE / KVR_WINDOW_NEAR * 2];


static void
micro_piece(const void *place, kvr_piece_t *p)
{
    const micro_piece_t  *piece = place;

    p->data = piece->data;
    p->len = piece->len;
    p->next = piece->last ? NULL : piece + 1;
}


static uint64_t
micro_shape_read(micro_case_t *c, unsigned n)
{
    uint64_t           sum;
    kvr_prompt_t       pr;
    kvr_window_t       w;
    kvr_prompt_conf_t  conf;

    micro_text_conf(&conf);

    sum = 0;

    while (n--) {
        kvr_window_init(&w, c->data, micro_piece, NULL, micro_windows,
                        micro_marks,
                        sizeof(micro_marks) / sizeof(kvr_window_mark_t));

        sum += (unsigned) kvr_prompt_read(&pr, &conf, kvr_window_fetch, &w);
        sum += pr.n;
    }

    return sum;
}


static void
micro_shape_add(const char *name, const char *usual, const char *data,
    size_t len, size_t size)
{
    size_t          i, n;
    micro_case_t   *c;
    micro_piece_t  *piece;

    size = size ? size : len;
    n = (len + size - 1) / size;

    piece = micro_alloc(n * sizeof(micro_piece_t));

    for (i = 0; i < n; i++) {
        piece[i].data = (const uint8_t *) data + i * size;
        piece[i].len = kvr_min(size, len - i * size);
        piece[i].last = (i == n - 1);
    }

    c = micro_add(micro_shape_read, piece, "byte", (double) len, "%s", name);
    c->usual = usual;
}


static char *
micro_shape_text(char *p, size_t len)
{
    size_t  n;

    static const char  line[] = "\\tif (strcmp(name, \\\"a\\\") == 0) {\\n";

    for ( /* void */ ; len; len -= n) {
        n = kvr_min(len, sizeof(line) - 1);

        /* do not cut an escape */

        if (n < sizeof(line) - 1) {
            memset(p, 'x', n);

        } else {
            memcpy(p, line, n);
        }

        p += n;
    }

    return p;
}


static void
micro_shape_make(const micro_kind_t *k)
{
    char        *data, *p;
    const char  *s;

    data = micro_alloc(MICRO_SHAPE + k->text + 4096);

    p = stpcpy(data, k->head);

    while (p - data < MICRO_SHAPE) {
        for (s = k->body; *s; s++) {

            if (*s == '~') {
                p = micro_shape_text(p, k->text);

            } else {
                *p++ = *s;
            }
        }
    }

    p = stpcpy(p, k->tail);

    micro_shape_add(k->name, k->usual, data, (size_t) (p - data), k->piece);
}


/* nested objects, each with a key that comes too late */
static void
micro_shape_depth(const char *name, size_t text)
{
    int    i;
    char  *data, *p;

    data = micro_alloc(MICRO_SHAPE + text + 4096);

    p = stpcpy(data, MICRO_LIST);

    while (p - data < MICRO_SHAPE) {

        *p++ = ',';

        for (i = 0; i < MICRO_DEPTH; i++) {
            p = stpcpy(p, "{\"content\":");
        }

        *p++ = '"';
        p = micro_shape_text(p, text);
        *p++ = '"';

        for (i = 0; i < MICRO_DEPTH; i++) {
            p = stpcpy(p, ",\"type\":\"a\"}");
        }
    }

    p = stpcpy(p, MICRO_END);

    micro_shape_add(name, MICRO_CALLS, data, (size_t) (p - data), 0);
}


void
micro_shape(void)
{
    unsigned      i;
    bench_body_t  body;

    static const struct {
        const char    *name;
        bench_kind_e   kind;
    } usual[] = {
        { MICRO_TEXT, BENCH_CODE },
        { MICRO_ESCAPED, BENCH_ESCAPED }
    };

    for (i = 0; i < sizeof(usual) / sizeof(usual[0]); i++) {
        bench_body_make(&body, usual[i].kind, MICRO_SHAPE, 7);
        micro_shape_add(usual[i].name, usual[i].name, body.data, body.len, 0);
    }

    for (i = 0; i < sizeof(micro_kinds) / sizeof(micro_kinds[0]); i++) {
        micro_shape_make(&micro_kinds[i]);
    }

    micro_shape_depth("depth", 6000);
    micro_shape_depth("depth, tiny", 0);
}
