
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Tests kvr_window: texts in pieces of any sizes, in memory and in files; and
 * the work for the worst bodies, counted in pieces and bytes.
 */


#include "util.h"
#include "core/text/kvr_window.h"


/* a text in pieces; an offset is an element of an array */

typedef struct pieces_s  pieces_t;

typedef struct {
    pieces_t         *all;
    const uint8_t    *data;
    size_t            len;
    unsigned          file:1;
    unsigned          last:1;
} part_t;

struct pieces_s {
    part_t           *part;
    size_t            n;
    uint64_t          read;      /* bytes, from files */
    size_t            most;      /* limit of a read in bytes, or 0 */
    unsigned          broken:1;  /* reads of files fail */
};


/* pieces in a file */

typedef enum {
    PIECES_MEMORY = 0,
    PIECES_FILE,
    PIECES_MIXED
} pieces_e;


typedef struct {
    kvr_window_t        w;
    uint8_t            *buf;
    kvr_window_mark_t  *mark;
} reader_t;


static void
piece(const void *place, kvr_piece_t *p)
{
    const part_t  *part = place;

    p->data = part->file ? NULL : part->data;
    p->len = part->len;
    p->next = part->last ? NULL : part + 1;
}


static long
piece_read(const void *place, uint64_t offset, uint8_t *dst, size_t n)
{
    const part_t  *part = place;

    util_check(part->file, "memory is read as a file");
    util_check(n > 0 && offset + n <= part->len, "read beyond a piece");

    if (part->all->broken) {
        return -1;
    }

    if (part->all->most) {
        n = kvr_min(n, part->all->most);
    }

    memcpy(dst, part->data + offset, n);
    part->all->read += n;

    return (long) n;
}


/* Cuts a text into pieces of the sizes given, repeatedly. */
static void
cut(pieces_t *p, const util_buf_t *text, const size_t *sizes, size_t n,
    pieces_e kind)
{
    size_t  i, off, len;

    memset(p, 0, sizeof(pieces_t));

    p->part = malloc((text->len + 2) * sizeof(part_t));

    for (i = 0, off = 0; off < text->len || i == 0; i++, off += len) {

        len = kvr_min(sizes[i % n], text->len - off);

        p->part[i].all = p;
        p->part[i].data = text->p + off;
        p->part[i].len = len;
        p->part[i].file = (kind == PIECES_FILE
                           || (kind == PIECES_MIXED && i % 3 == 1));
        p->part[i].last = 0;
    }

    p->part[i - 1].last = 1;
    p->n = i;
}


static void
reader(reader_t *r, const pieces_t *p, size_t len, size_t marks)
{
    marks = marks ? marks : kvr_window_marks(len);

    /* on the heap, where a sanitizer detects reads beyond the end */

    r->buf = malloc(KVR_WINDOWS * KVR_WINDOW_LEN);
    r->mark = malloc(marks * sizeof(kvr_window_mark_t));

    kvr_window_init(&r->w, p->part, piece, piece_read, r->buf, r->mark, marks);
}


static void
reader_free(reader_t *r)
{
    free(r->buf);
    free(r->mark);
}


/* Checks a window: the bytes are right, and not too many. */
static void
fetch(reader_t *r, const util_buf_t *text, uint64_t offset)
{
    size_t          len;
    const uint8_t  *p;

    p = kvr_window_fetch(&r->w, offset, &len);

    if (offset >= text->len) {
        util_check(p == NULL && len == 0, "bytes after the end");
        return;
    }

    util_check(p != NULL && len > 0, "nothing at %lu of %zu",
               (unsigned long) offset, text->len);
    util_check(len <= text->len - offset, "more than there is");
    util_check(memcmp(p, text->p + offset, len) == 0,
               "other bytes at %lu, %zu of them", (unsigned long) offset, len);
}


static void
random_text(util_buf_t *text, util_rng_t *rng, size_t len)
{
    memset(text, 0, sizeof(util_buf_t));

    while (text->len < len) {
        util_byte(text, util_below(rng, 256));
    }
}


TEST(test_window_bytes)
{
    size_t       sizes[8], n, k;
    unsigned     i, kind;
    uint64_t     off;
    pieces_t     p;
    reader_t     r;
    util_rng_t   rng;
    util_buf_t   text;

    static const size_t  lens[] = { 0, 1, 200, 4096, 5000, 70000 };

    for (i = 0; i < util_cases(300); i++) {

        util_seed(&rng, "bytes", i);

        n = util_below(&rng, 300000);
        random_text(&text, &rng, i % 10 ? n : n % 5);

        for (k = 0; k < 8; k++) {
            n = lens[util_below(&rng, 6)];
            sizes[k] = n < 2 ? n : util_below(&rng, (unsigned) n);
        }

        sizes[0]++;
        kind = util_below(&rng, 3);

        cut(&p, &text, sizes, 8, (pieces_e) kind);
        p.most = i % 4 ? 0 : 1 + util_below(&rng, 5000);

        /* also with too few marks */

        reader(&r, &p, text.len, i % 3 ? 0 : 1 + util_below(&rng, 3));

        util_note("case %u, %zu bytes in %zu pieces", i, text.len, p.n);

        for (k = 0, off = 0; k < 300; k++) {

            fetch(&r, &text, off);

            switch (util_below(&rng, 4)) {
            case 0:
                off = util_below(&rng, (unsigned) text.len + 10);
                break;
            case 1:
                off -= kvr_min(off, util_below(&rng, 70000));
                break;
            default:
                off += util_below(&rng, 5000);
            }
        }

        util_check(!r.w.failed, "failed");

        reader_free(&r);
        free(p.part);
        util_drop(&text);
    }
}


/* a file that ends too early or cannot be read sets failed */
TEST(test_window_failed)
{
    size_t      len, sizes[] = { 100, 200 };
    pieces_t    p;
    reader_t    r;
    util_rng_t  rng;
    util_buf_t  text;

    util_seed(&rng, "failed", 0);
    random_text(&text, &rng, 1000);

    cut(&p, &text, sizes, 2, PIECES_MIXED);
    p.broken = 1;

    reader(&r, &p, text.len, 0);

    /* the first hundred bytes are in memory */

    ck_assert_ptr_nonnull(kvr_window_fetch(&r.w, 0, &len));
    ck_assert_uint_eq(len, 100);
    ck_assert(r.w.failed);

    ck_assert_ptr_null(kvr_window_fetch(&r.w, 150, &len));
    ck_assert_uint_eq(len, 0);
    ck_assert(r.w.failed);

    reader_free(&r);
    free(p.part);
    util_drop(&text);
}


/* large and single pieces are not copied */
TEST(test_window_direct)
{
    size_t      len;
    pieces_t    p;
    reader_t    r;
    util_rng_t  rng;
    util_buf_t  text;

    static const size_t  head[] = { 700, 100000 };
    static const size_t  large[] = { KVR_WINDOW_NEAR };
    static const size_t  small[] = { KVR_WINDOW_NEAR - 1 };

    util_seed(&rng, "direct", 0);
    random_text(&text, &rng, 300000);

    cut(&p, &text, head, 2, PIECES_MEMORY);
    reader(&r, &p, text.len, 0);

    ck_assert_ptr_eq(kvr_window_fetch(&r.w, 0, &len), text.p);
    ck_assert_uint_eq(len, 700);
    ck_assert_ptr_eq(kvr_window_fetch(&r.w, 700, &len), text.p + 700);
    ck_assert_uint_eq(len, 100000);
    ck_assert_ptr_eq(kvr_window_fetch(&r.w, 300, &len), text.p + 300);
    ck_assert_uint_eq(len, 400);
    ck_assert_uint_eq(r.w.gathered, 0);

    reader_free(&r);
    free(p.part);

    cut(&p, &text, large, 1, PIECES_MEMORY);
    reader(&r, &p, text.len, 0);
    ck_assert_ptr_eq(kvr_window_fetch(&r.w, 5000, &len), text.p + 5000);
    ck_assert_uint_eq(r.w.gathered, 0);
    reader_free(&r);
    free(p.part);

    cut(&p, &text, small, 1, PIECES_MEMORY);
    reader(&r, &p, text.len, 0);
    ck_assert_ptr_ne(kvr_window_fetch(&r.w, 5000, &len), text.p + 5000);
    ck_assert_uint_eq(len, KVR_WINDOW_LEN - 5000);
    ck_assert_uint_eq(r.w.gathered, KVR_WINDOW_LEN);
    reader_free(&r);
    free(p.part);

    util_drop(&text);
}


/* A step to any offset reads few pieces and bytes, however long the text is. */
TEST(test_window_step)
{
    unsigned    i, k;
    uint64_t    steps, gathered;
    pieces_t    p;
    reader_t    r;
    util_rng_t  rng;
    util_buf_t  text;

    static const struct {
        size_t    size[2];
        pieces_e  kind;
    } cases[] = {
        { { 1, 1 }, PIECES_MEMORY },
        { { 3, 129 }, PIECES_MEMORY },
        { { 1, 5000 }, PIECES_MEMORY },
        { { 4000, 2 }, PIECES_MIXED },
        { { 2000000, 1 }, PIECES_FILE }
    };

    util_seed(&rng, "step", 0);
    random_text(&text, &rng, 2000000);

    for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {

        cut(&p, &text, cases[i].size, 2, cases[i].kind);
        reader(&r, &p, text.len, 0);

        util_note("pieces of %zu and %zu", cases[i].size[0], cases[i].size[1]);

        for (k = 0; k < 2000; k++) {

            /* after the first step, which goes to the end */

            steps = r.w.steps;
            gathered = r.w.gathered;

            fetch(&r, &text, k ? util_below(&rng, 2000000) : 1999999);

            if (k == 0) {
                continue;
            }

            util_check(r.w.gathered - gathered <= KVR_WINDOW_LEN,
                       "%lu bytes gathered",
                       (unsigned long) (r.w.gathered - gathered));
            util_check(r.w.steps - steps
                       <= KVR_WINDOW_LEN + 2 * KVR_WINDOW_NEAR + 6,
                       "%lu pieces visited",
                       (unsigned long) (r.w.steps - steps));

            if (r.w.gathered == gathered) {
                util_check(r.w.steps - steps <= KVR_WINDOW_NEAR + 4,
                           "%lu pieces visited, and none used",
                           (unsigned long) (r.w.steps - steps));
            }
        }

        reader_free(&r);
        free(p.part);
    }

    util_drop(&text);
}


/*
 * Reads the worst bodies in pieces of all kinds.  No piece is read, and no
 * byte is copied, more than three times, and the prompt is the same as in one
 * piece.
 */

#define WORK_LEN  400000


typedef struct {
    const char  *head;
    const char  *open;       /* of each message */
    size_t       text;       /* bytes of text in the body */
    const char  *close;
} work_t;


static void
work_body(util_buf_t *b, const work_t *c)
{
    size_t  end;

    b->len = 0;
    util_printf(b, "{\"model\":\"m\",%s[{}", c->head);

    while (b->len < WORK_LEN) {

        util_puts(b, c->open);

        for (end = b->len + c->text; b->len < end; /* void */ ) {
            util_puts(b, "some words of text\\n and \\\"quotes\\\" ");
        }

        util_puts(b, c->close);
    }

    util_puts(b, "]}");
}


static int
work_read(kvr_prompt_t *pr, kvr_json_fetch_pt get, void *data)
{
    kvr_prompt_conf_t  conf = { 0 };

    static uint64_t    digests[20000], chain[4000];

    conf.secret = util_secret;
    conf.path = (uint8_t *) "/v1/chat/completions";
    conf.path_len = 20;
    conf.digests = digests;
    conf.max_digests = 20000;
    conf.chain = chain;
    conf.max_chain = 4000;

    return kvr_prompt_read(pr, &conf, get, data);
}


static void
work(const util_buf_t *body, const size_t *sizes, pieces_e kind,
    const char *what)
{
    int              rc;
    pieces_t         p;
    reader_t         r;
    kvr_prompt_t     whole, pr;
    kvr_json_text_t  text;

    text.data = body->p;
    text.len = body->len;

    rc = work_read(&whole, kvr_json_fetch_text, &text);
    util_check(rc == KVR_OK, "%s: %d in one piece", what, rc);

    cut(&p, body, sizes, 2, kind);
    reader(&r, &p, body->len, 0);

    util_note("%s in pieces of %zu and %zu, kind %d", what, sizes[0],
              sizes[1], (int) kind);

    rc = work_read(&pr, kvr_window_fetch, &r.w);

    util_check(rc == KVR_OK, "%d", rc);
    util_check(pr.root == whole.root && pr.n == whole.n && pr.last == whole.last
               && pr.bytes == whole.bytes, "another prompt");

    if (getenv("KVR_TEST_STATS")) {
        printf("%-24s %6zu/%-6zu %d: %.2f steps a piece, %.2f bytes a byte\n",
               what, sizes[0], sizes[1], (int) kind,
               (double) r.w.steps / (double) p.n,
               (double) r.w.gathered / (double) body->len);
    }

    /* a short text may take a step per hundred bytes */

    util_check(r.w.steps <= 3 * p.n + body->len / 100,
               "%lu steps for %zu pieces", (unsigned long) r.w.steps, p.n);
    util_check(r.w.gathered <= 3 * body->len, "%lu bytes for %zu",
               (unsigned long) r.w.gathered, body->len);
    util_check(p.read <= 3 * body->len, "%lu bytes read",
               (unsigned long) p.read);

    reader_free(&r);
    free(p.part);
}


TEST(test_window_work)
{
    unsigned    i, k, kind;
    util_buf_t  body = { 0 };

    static const struct {
        const char  *what;
        work_t       c;
    } bodies[] = {
        { "ordinary", { "\"messages\":", ",{\"role\":\"user\",\"content\":\"",
                        6000, "\"}" } },
        { "late keys", { "\"messages\":", ",{\"content\":\"", 6000,
                         "\",\"role\":\"user\"}" } },
        { "late keys, tiny", { "\"messages\":", ",{\"content\":\"", 40,
                               "\",\"role\":\"user\"}" } },
        { "late keys, long", { "\"messages\":", ",{\"content\":\"", 190000,
                               "\",\"role\":\"user\"}" } },
        { "duplicate keys", { "\"messages\":", ",{\"role\":\"user\","
                              "\"content\":\"", 3000, "\",\"role\":\"user\"}" }
        },
        { "parts", { "\"messages\":", ",{\"content\":[{\"text\":\"", 3000,
                     "\",\"type\":\"text\"}],\"role\":\"user\"}" } },
        { "depth", { "\"messages\":", ",{\"content\":[{\"content\":[{"
                     "\"content\":[{\"content\":[{\"text\":\"", 3000, "\","
                     "\"type\":\"text\"}],\"type\":\"a\"}],\"type\":\"b\"}],"
                     "\"type\":\"c\"}],\"role\":\"user\"}" } },
        { "system", { "\"system\":", ",{\"text\":\"", 3000,
                      "\",\"type\":\"text\"}" } }
    };

    static const size_t  sizes[][2] = {
        { 1, 1 }, { 1, 200 }, { 3, 7 }, { 129, 129 }, { 200, 200 },
        { 100, 4096 }, { 4095, 2 }, { 60000, 3 }, { 1 << 20, 1 }
    };

    for (i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {

        work_body(&body, &bodies[i].c);

        for (k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
            for (kind = 0; kind < 3; kind++) {
                work(&body, sizes[k], (pieces_e) kind, bodies[i].what);
            }
        }
    }

    util_drop(&body);
}
