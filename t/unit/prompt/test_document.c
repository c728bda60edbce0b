
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Tests kvr_document: documents that were shuffled, moved or edited elsewhere
 * are found, for any pieces of the text.
 */


#include "util.h"
#include "core/prompt/kvr_document.h"


#define DOCS  12


static kvr_documents_t  a, b;

/* documents with blank lines, or with words only */

static unsigned      blank = 60;


static uint64_t
digest(const uint8_t *secret, const uint8_t *p, size_t len)
{
    util_check(secret == util_secret, "another secret");

    return util_digest(p, len);
}


static void
cut(kvr_documents_t *c, const util_buf_t *text, uint64_t root)
{
    kvr_document_init(c, util_secret, digest);
    kvr_document_put(c, text->p, text->len);
    kvr_document_finish(c);
    kvr_document_place(c, root, 0);
}


/* Puts words, with some escaped blank lines. */
static void
document(util_buf_t *text, unsigned n, size_t len)
{
    size_t      end;
    util_rng_t  r;

    util_seed(&r, "document", n);

    for (end = text->len + len; text->len < end; /* void */) {
        util_printf(text, "%08x", (unsigned) util_next(&r));
        util_puts(text, blank && util_below(&r, blank) == 0 ? "\\n\\n" : " ");
    }
}


/* Returns the bytes of c that d has, too. */
static uint64_t
common(const kvr_documents_t *c, const kvr_documents_t *d)
{
    uint32_t  i, k;
    uint64_t  bytes;

    bytes = 0;

    for (i = 0; i < c->n; i++) {
        for (k = 0; k < d->n; k++) {
            if (c->document[i].digest == d->document[k].digest) {
                bytes += c->document[i].len;
                break;
            }
        }
    }

    return bytes;
}


static void
prompt(util_buf_t *text, const unsigned *order, unsigned n, unsigned question)
{
    unsigned  i;

    text->len = 0;
    document(text, 1000 + question, 200 + 37 * question);

    for (i = 0; i < n; i++) {
        document(text, order[i], 5000);
    }

    document(text, 2000 + question, 300);
}


TEST(test_document_shuffled)
{
    unsigned    i, k, t, order[DOCS];
    uint64_t    found;
    util_buf_t  text = { 0 };
    util_rng_t  r;

    for (i = 0; i < DOCS; i++) {
        order[i] = i;
    }

    prompt(&text, order, DOCS, 0);
    cut(&a, &text, 1);

    for (k = 0; k < 20; k++) {

        util_seed(&r, "document shuffle", k);

        for (i = DOCS - 1; i; i--) {
            unsigned  j = util_below(&r, i + 1);

            t = order[i];
            order[i] = order[j];
            order[j] = t;
        }

        prompt(&text, order, DOCS, k);
        cut(&b, &text, 1);

        found = common(&b, &a);

        util_check(found > text.len * 6 / 10, "%llu of %zu",
                   (unsigned long long) found, text.len);
    }

    /* other documents have nothing in common */

    for (i = 0; i < DOCS; i++) {
        order[i] = 500 + i;
    }

    prompt(&text, order, DOCS, 99);
    cut(&b, &text, 1);

    util_check(common(&b, &a) == 0, "%llu",
               (unsigned long long) common(&b, &a));

    util_drop(&text);
}


static void
shifted(unsigned lines)
{
    size_t      k;
    uint64_t    found;
    util_buf_t  text = { 0 }, moved = { 0 };

    static const size_t  shifts[] = { 1, 2, 63, 64, 65, 255, 256, 511, 512,
                                      513, 4096, 9999 };

    blank = lines;

    document(&text, 1, 60000);
    cut(&a, &text, 1);

    for (k = 0; k < sizeof(shifts) / sizeof(shifts[0]); k++) {

        moved.len = 0;
        document(&moved, 77, shifts[k]);
        moved.len = shifts[k];
        util_put(&moved, text.p, text.len);

        cut(&b, &moved, 1);
        found = common(&a, &b);

        util_check(found + 2 * KVR_DOCUMENT_MAX > text.len
                   && found > text.len * 8 / 10,
                   "shifted by %zu: %llu of %zu", shifts[k],
                   (unsigned long long) found, text.len);
    }

    util_drop(&text);
    util_drop(&moved);
}


TEST(test_document_shifted)
{
    shifted(0);
    shifted(60);
}


TEST(test_document_edited)
{
    size_t      at;
    unsigned    k;
    uint64_t    found;
    util_buf_t  text = { 0 };
    util_rng_t  r;

    document(&text, 2, 60000);
    cut(&a, &text, 1);

    for (k = 0; k < util_cases(100); k++) {

        util_seed(&r, "document edit", k);

        at = util_below(&r, (unsigned) text.len);

        text.p[at] ^= 1;
        cut(&b, &text, 1);
        text.p[at] ^= 1;

        found = common(&a, &b);

        util_check(found < text.len, "an edit that nobody sees, at %zu", at);
        util_check(found + 2 * KVR_DOCUMENT_MAX > text.len,
                   "at %zu: %llu of %zu",
                   at, (unsigned long long) found, text.len);
    }

    util_drop(&text);
}


/* sizes and offsets; the same documents for any pieces of the text */
TEST(test_document_pieces)
{
    size_t      off, n;
    uint32_t    i;
    unsigned    k;
    util_buf_t  text = { 0 };
    util_rng_t  r;

    document(&text, 3, 40000);
    util_byte(&text, 1);
    document(&text, 4, 300);
    util_byte(&text, 3);
    document(&text, 5, 40);
    util_byte(&text, 1);
    document(&text, 6, 20000);

    cut(&a, &text, 7);

    for (i = 0; i < a.n; i++) {
        util_check(a.document[i].len >= 64
                   && a.document[i].len <= KVR_DOCUMENT_MAX,
                   "document %u: %u bytes", i, a.document[i].len);
        util_check(a.document[i].digest
                   == kvr_mix(8, util_digest(text.p + a.document[i].start,
                                             a.document[i].len)),
                   "document %u is not what is there", i);
        util_check(i == 0 || a.document[i].start
                   >= a.document[i - 1].start + a.document[i - 1].len,
                   "overlap");
    }

    for (k = 0; k < util_cases(50); k++) {

        util_seed(&r, "document pieces", k);
        kvr_document_init(&b, util_secret, digest);

        for (off = 0; off < text.len; off += n) {
            n = 1 + util_below(&r, k % 2 ? 20 : 3000);
            n = kvr_min(n, text.len - off);
            kvr_document_tap(&b, text.p + off, n);
        }

        kvr_document_finish(&b);
        kvr_document_place(&b, 7, 0);

        util_check(b.n == a.n && memcmp(a.document, b.document,
                                        a.n * sizeof(kvr_document_t)) == 0,
                   "%u documents, not %u", b.n, a.n);
    }

    /* other models and tenants share nothing; the offset is added */

    cut(&b, &text, 8);
    util_check(b.n == a.n && common(&a, &b) == 0, "another root");

    kvr_document_place(&b, 8, 1000);
    util_check(b.document[0].start == 1000, "moved by 1000");

    util_drop(&text);
}


TEST(test_document_limits)
{
    size_t      i;
    util_buf_t  text = { 0 };

    /* no text, and too short a text */

    cut(&a, &text, 1);
    util_check(a.n == 0, "%u of nothing", a.n);

    util_puts(&text, "short");
    cut(&a, &text, 1);
    util_check(a.n == 0, "%u of 5 bytes", a.n);

    /* text without a place to cut: the longest document */

    text.len = 0;

    for (i = 0; i < 5 * KVR_DOCUMENT_MAX; i++) {
        util_byte(&text, 'a');
    }

    cut(&a, &text, 1);
    util_check(a.n >= 5, "%u documents of one letter", a.n);

    /* more documents than fit */

    text.len = 0;

    for (i = 0; i < 2 * KVR_DOCUMENT_COUNT; i++) {
        util_byte(&text, 1);
        util_printf(&text, "%0100zu", i);
    }

    cut(&a, &text, 1);
    util_check(a.n == KVR_DOCUMENT_COUNT, "%u documents", a.n);

    kvr_document_put(&a, text.p, text.len);
    kvr_document_finish(&a);
    util_check(a.n == KVR_DOCUMENT_COUNT, "%u documents", a.n);

    util_drop(&text);
}
