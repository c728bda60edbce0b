
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _UTIL_H_INCLUDED_
#define _UTIL_H_INCLUDED_


/*
 * Shared by the unit tests and the fuzzers (built with UTIL_NO_CHECK):
 * failures with their location, repeatable random numbers, texts in windows,
 * and slow references that share no code with core.
 *
 *     KVR_TEST_SEED    seed of the random cases, default 1
 *     KVR_TEST_SCALE   their number, in percent, default 100
 *     KVR_TEST_DUMP    file for the body of a failed test
 */


#ifndef UTIL_NO_CHECK
#include "suite.h"
#endif

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/kvr_set.h"
#include "core/prompt/kvr_prompt.h"


/* failures; the note names the current case, kernel and window */

#define util_check(cond, ...)                                                 \
    do {                                                                      \
        if (!(cond)) {                                                        \
            util_fail(__FILE__, __LINE__, #cond, __VA_ARGS__);                \
        }                                                                     \
    } while (0)

void util_fail(const char *file, int line, const char *cond, const char *fmt,
    ...) __attribute__ ((format (printf, 4, 5), noreturn));
void util_about(const void *data, size_t len);
void util_note(const char *fmt, ...) __attribute__ ((format (printf, 1, 2)));

/* Returns printable bytes, valid until the fourth call after this one. */
const char *util_show(const void *data, size_t len);


/* random numbers */

typedef struct {
    uint64_t         state;
} util_rng_t;

void util_seed(util_rng_t *r, const char *name, uint64_t n);
uint64_t util_next(util_rng_t *r);
unsigned util_below(util_rng_t *r, unsigned n);
unsigned util_cases(unsigned n);


/* sets of the first 64 peers, as a word */

static inline kvr_set_t
util_set(uint64_t word)
{
    unsigned   i;
    kvr_set_t  s;

    s = kvr_set_none();

    for (i = 0; i < 64; i++) {
        if (word >> i & 1) {
            kvr_set_add(&s, i);
        }
    }

    return s;
}

static inline uint64_t
util_word(kvr_set_t s)
{
    uint32_t  i;
    uint64_t  word;

    for (word = 0; kvr_set_next(&s, &i); /* void */ ) {
        word |= 1ULL << i;
    }

    return word;
}


/* a buffer that grows */

typedef struct {
    uint8_t         *p;
    size_t           len;
    size_t           size;
} util_buf_t;

void util_put(util_buf_t *b, const void *data, size_t len);
void util_puts(util_buf_t *b, const char *s);
void util_byte(util_buf_t *b, unsigned c);
void util_printf(util_buf_t *b, const char *fmt, ...)
    __attribute__ ((format (printf, 2, 3)));
void util_drop(util_buf_t *b);

/* Reads a file of t/fuzz/corpus, the samples of unit tests and fuzzers. */
void util_sample(util_buf_t *b, const char *room, const char *name);


/*
 * A text served in windows.  Each is a block of the exact size, so that ASan
 * and valgrind see reads beyond it.  The next call overwrites and frees it.
 */

typedef enum {
    UTIL_WHOLE = 0,
    UTIL_CUT,                /* n: the text is cut in two there */
    UTIL_STEP,               /* n: bytes from any offset, as from a file */
    UTIL_GRID,               /* n: windows end at multiples, as buffers do */
    UTIL_RANDOM              /* n: at most this many bytes, random */
} util_cut_e;

typedef struct {
    const uint8_t   *data;
    size_t           len;
    util_cut_e       cut;
    size_t           n;
    util_rng_t       rng;
    uint8_t         *window;
    size_t           window_len;
    unsigned         calls;
    uint64_t         served; /* bytes */
} util_feed_t;

void util_feed(util_feed_t *f, const void *data, size_t len, util_cut_e cut,
    size_t n);
const uint8_t *util_fetch(void *data, uint64_t offset, size_t *len);
void util_unfeed(util_feed_t *f);

/* Sets the k-th way to cut a text of len; returns 0 after the last. */
int util_cut(size_t len, unsigned k, util_cut_e *cut, size_t *n);


/*
 * Sets the kernel of the reader; the linker wraps kvr_text_ops().  Returns 0 if
 * there is no n-th.
 */

int util_kernel(unsigned n);
const char *util_kernel_name(void);


/* references */

extern const uint8_t  util_secret[KVR_SECRET_LEN];

/* XXH3 of the installed library, not the one inlined in the kernels */
uint64_t util_digest(const void *data, size_t len);
uint64_t util_mix(uint64_t a, uint64_t b);

/* Makes n values: the first ones of a system prompt, then of the session. */
void util_chain(uint64_t *chain, uint64_t system, unsigned shared,
    uint64_t session, unsigned n);

/*
 * Makes the canonical form, or with canonical = 0 the decoded one, of a string
 * after its opening quote; *used is the number of bytes read, with the closing
 * quote.  KVR_AGAIN: no closing quote, KVR_ERROR: an invalid escape.  Like the
 * kernels, the canonical form decodes only "\u".
 */
int util_string(const uint8_t *p, size_t len, util_buf_t *out, size_t *used,
    int canonical);

/* The same for a container, without white space outside its strings. */
int util_raw(const uint8_t *p, size_t len, util_buf_t *out, size_t *used);

/* Returns the digests of the blocks of a text; finish: also of the rest. */
size_t util_blocks(const util_buf_t *text, uint64_t *out, size_t max,
    int finish);


#endif /* _UTIL_H_INCLUDED_ */
