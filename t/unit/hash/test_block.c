
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Compares kvr_block with a model that keeps all bytes: a list of texts, each
 * ended by kvr_block_finish().  Plain XXH3 calls compute their digests.
 */


#include "util.h"


#define MAX_DIGESTS  512


typedef struct {
    util_buf_t        text;             /* since the last finish */
    uint64_t          digest[MAX_DIGESTS];
    size_t            n;                /* digests of the finished texts */
    uint64_t          bytes;
} model_t;


static uint64_t
digest(const uint8_t *secret, const uint8_t *p, size_t len)
{
    util_check(secret == util_secret, "another secret");

    return util_digest(p, len);
}


static void
model_finish(model_t *m)
{
    m->n += util_blocks(&m->text, m->digest + m->n, MAX_DIGESTS - m->n, 1);
    m->bytes += m->text.len;
    m->text.len = 0;
}


/* Checks that the stream equals the model, with its staged bytes. */
static void
model_check(model_t *m, kvr_block_t *b, size_t max)
{
    size_t  n, total, rest;

    n = util_blocks(&m->text, m->digest + m->n, MAX_DIGESTS - m->n, 0);
    total = kvr_min(m->n + n, max);
    rest = m->text.len % KVR_BLOCK;

    util_check(b->n == total, "%zu, not %zu", b->n, total);
    util_check(b->fill == rest, "%u, not %zu", b->fill, rest);
    util_check(b->bytes == m->bytes + m->text.len - rest, "%llu",
               (unsigned long long) b->bytes);
    util_check(memcmp(b->out, m->digest, total * sizeof(uint64_t)) == 0,
               "digests");
    util_check(rest == 0
               || memcmp(b->stage[b->cur], m->text.p + m->text.len - rest,
                         rest) == 0,
               "staged bytes");
}


static void
random_bytes(util_rng_t *r, uint8_t *p, size_t len)
{
    while (len--) {
        *p++ = (uint8_t) util_next(r);
    }
}


TEST(test_block_put)
{
    size_t       len, off, n;
    uint64_t     out[MAX_DIGESTS];
    uint8_t     *p, data[3 * KVR_BLOCK + 3];
    unsigned     piece;
    model_t      m = { 0 };
    util_rng_t   r;
    kvr_block_t  b;

    util_seed(&r, "block put", 0);
    random_bytes(&r, data, sizeof(data));

    for (len = 0; len <= sizeof(data); len++) {

        for (piece = 1; piece <= len; piece = piece < 5 ? piece + 1
                                              : piece * 3)
        {
            util_note("%zu bytes by %u", len, piece);

            kvr_block_init(&b, util_secret, digest, out, MAX_DIGESTS);
            m.n = 0;
            m.bytes = 0;
            m.text.len = 0;

            for (off = 0; off < len; off += n) {
                n = kvr_min(len - off, piece);

                /* a copy, to detect reads beyond it */

                p = malloc(n);
                memcpy(p, data + off, n);

                if (n == 1) {
                    kvr_block_byte(&b, *p);

                } else {
                    kvr_block_put(&b, p, n);
                }

                free(p);

                util_put(&m.text, data + off, n);
                model_check(&m, &b, MAX_DIGESTS);
            }

            model_finish(&m);
            kvr_block_finish(&b);
            model_check(&m, &b, MAX_DIGESTS);

            /* finishing an empty stage does nothing */

            kvr_block_finish(&b);
            model_check(&m, &b, MAX_DIGESTS);
        }
    }

    util_drop(&m.text);
}


/*
 * Puts, finishes, marks and rewinds at random, also with room for few digests.
 */
TEST(test_block_random)
{
    int               marked;
    size_t            len, max, mark_n, mark_len, mark_bytes;
    unsigned          i, k, steps;
    uint8_t           data[700];
    uint64_t          out[MAX_DIGESTS + 1];
    model_t           m = { 0 };
    util_rng_t        r;
    util_buf_t        marked_text = { 0 };
    kvr_block_t       b;
    kvr_block_mark_t  mark;

    for (i = 0; i < util_cases(3000); i++) {

        util_seed(&r, "block random", i);

        max = util_below(&r, 3) ? MAX_DIGESTS : util_below(&r, 20);
        out[max] = 0x5a5a5a5a5a5a5a5aULL;

        kvr_block_init(&b, util_secret, digest, out, max);

        m.n = 0;
        m.bytes = 0;
        m.text.len = 0;
        marked = 0;
        mark_n = 0;
        mark_len = 0;
        mark_bytes = 0;

        steps = 1 + util_below(&r, 60);

        for (k = 0; k < steps; k++) {

            switch (util_below(&r, 12)) {

            case 0:
                model_finish(&m);
                kvr_block_finish(&b);
                break;

            case 1:
            case 2:
                kvr_block_mark(&b, &mark);

                marked = 1;
                mark_n = m.n;
                mark_bytes = m.bytes;
                mark_len = m.text.len;
                marked_text.len = 0;
                util_put(&marked_text, m.text.p, m.text.len);
                break;

            case 3:
            case 4:
                if (!marked) {
                    break;
                }

                kvr_block_rewind(&b, &mark);

                /* once, or twice to the same mark, like a message */

                marked = (int) util_below(&r, 2);

                m.n = mark_n;
                m.bytes = mark_bytes;
                m.text.len = 0;
                util_put(&m.text, marked_text.p, mark_len);
                break;

            default:
                len = util_below(&r, util_below(&r, 2) ? 40 : sizeof(data));
                random_bytes(&r, data, len);

                if (m.n + m.text.len / KVR_BLOCK + 8 > MAX_DIGESTS) {
                    break;
                }

                if (len && util_below(&r, 2)) {
                    kvr_block_byte(&b, data[0]);
                    kvr_block_put(&b, data + 1, len - 1);

                } else {
                    kvr_block_put(&b, data, len);
                }

                util_put(&m.text, data, len);
            }

            model_check(&m, &b, max);
        }

        util_check(out[max] == 0x5a5a5a5a5a5a5a5aULL, "wrote beyond out[]");
    }

    util_drop(&m.text);
    util_drop(&marked_text);
}
