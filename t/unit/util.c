
/*
 * Copyright (C) kvroute contributors
 */


#include "util.h"

#include <xxhash.h>


/* the name under which the linker provides the real kvr_text_ops() */
const kvr_text_ops_t *__wrap_kvr_text_ops(void);


static char                   util_where[512];
static const kvr_text_ops_t  *util_ops;
static const void            *util_subject;
static size_t                 util_subject_len;


const uint8_t  util_secret[KVR_SECRET_LEN] = {
    0x8f, 0x1c, 0x53, 0xe0, 0x2b, 0x9a, 0x77, 0x04, 0xd6, 0x61, 0xbe, 0x38,
    0xa5, 0x4f, 0xc2, 0x19, 0x70, 0xed, 0x3b, 0x86, 0x5d, 0xf4, 0x0a, 0x91,
    0xc8, 0x27, 0x6e, 0xb3, 0x12, 0xdf, 0x44, 0x9b, 0xe6, 0x59, 0x30, 0x7d,
    0xab, 0x02, 0xf8, 0x65, 0x1e, 0xc9, 0x74, 0xb0, 0x4d, 0x93, 0xea, 0x26,
    0x5f, 0xd1, 0x08, 0x8c, 0xf7, 0x32, 0xa9, 0x6b, 0xce, 0x15, 0x40, 0xbd,
    0x99, 0x7a, 0x2e, 0xe3, 0x06, 0xd8, 0x61, 0xfc, 0x87, 0x3a, 0xb5, 0x50,
    0x1b, 0xc4, 0x6f, 0x92, 0xe9, 0x0d, 0x78, 0xa6, 0x35, 0xdb, 0x4c, 0xf1,
    0x82, 0x57, 0xbc, 0x29, 0x9e, 0x63, 0xd0, 0x14, 0xca, 0x7f, 0x01, 0xe8,
    0x46, 0xb9, 0x2c, 0x95, 0xf3, 0x58, 0x0e, 0xdd, 0xa1, 0x67, 0x3c, 0x8a,
    0xc5, 0x10, 0x72, 0xef, 0xb4, 0x4b, 0x9d, 0x21, 0xd7, 0x68, 0x05, 0xfa,
    0x83, 0x36, 0xac, 0x5b, 0xe2, 0x17, 0x79, 0xc0, 0x4e, 0xb1, 0x94, 0x2f,
    0xd3, 0x0c, 0x6a, 0xf5, 0x88, 0x3d, 0xa7, 0x52, 0x1a, 0xcb, 0x76, 0xe1,
    0xbf, 0x45, 0x98, 0x23, 0xfd, 0x6c, 0x0b, 0xd4, 0x81, 0x34, 0xe7, 0x5e,
    0xa8, 0x13, 0xcf, 0x7b, 0x42, 0xb6, 0x90, 0x2d, 0xf9, 0x64, 0x07, 0xda,
    0x8d, 0x3e, 0xa2, 0x55, 0xec, 0x1f, 0x71, 0xc6, 0x48, 0xbb, 0x96, 0x2a,
    0xd5, 0x0f, 0x69, 0xf0, 0x84, 0x33, 0xaf, 0x5a, 0xe5, 0x18, 0x7c, 0xc1
};


void
util_note(const char *fmt, ...)
{
    va_list  args;

    va_start(args, fmt);
    vsnprintf(util_where, sizeof(util_where), fmt, args);
    va_end(args);
}


void
util_about(const void *data, size_t len)
{
    util_subject = data;
    util_subject_len = len;
}


void
util_fail(const char *file, int line, const char *cond, const char *fmt, ...)
{
    FILE        *dump;
    va_list      args;
    const char  *seed;
    static char  text[8192];

    if (util_subject && getenv("KVR_TEST_DUMP")) {
        dump = fopen(getenv("KVR_TEST_DUMP"), "w");

        if (dump) {
            fwrite(util_subject, 1, util_subject_len, dump);
            fclose(dump);
        }
    }

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);

    seed = getenv("KVR_TEST_SEED");
    seed = seed ? seed : "1";

#ifndef UTIL_NO_CHECK

    ck_abort_msg("%s:%d: %s: %s [%s; kernel %s, KVR_TEST_SEED=%s]", file, line,
                 cond, text, util_where, util_kernel_name(), seed);

#endif

    fprintf(stderr, "%s:%d: %s: %s [%s; kernel %s, KVR_TEST_SEED=%s]\n", file,
            line, cond, text, util_where, util_kernel_name(), seed);
    abort();
}


const char *
util_show(const void *data, size_t len)
{
    char           *s;
    size_t          i, n;
    const uint8_t  *p;

    static char      text[4][2048];
    static unsigned  turn;

    s = text[turn++ % 4];
    p = data;
    n = 0;

    for (i = 0; i < len && n < sizeof(text[0]) - 16; i++) {

        if (p[i] >= ' ' && p[i] < 0x7f) {
            s[n++] = (char) p[i];

        } else {
            n += (size_t) sprintf(s + n, "<%02x>", p[i]);
        }
    }

    s[n] = '\0';

    if (i < len) {
        strcat(s, "...");
    }

    return s;
}


void
util_seed(util_rng_t *r, const char *name, uint64_t n)
{
    const char  *seed;

    seed = getenv("KVR_TEST_SEED");

    r->state = (seed ? strtoull(seed, NULL, 0) : 1) * 0x9e3779b97f4a7c15ULL;
    r->state ^= XXH3_64bits(name, strlen(name)) + n * 0xd6e8feb86659fd93ULL;

    (void) util_next(r);

    util_note("%s, case %llu", name, (unsigned long long) n);
}


uint64_t
util_next(util_rng_t *r)
{
    uint64_t  z;

    /* splitmix64 */

    r->state += 0x9e3779b97f4a7c15ULL;

    z = r->state;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ z >> 27) * 0x94d049bb133111ebULL;

    return z ^ z >> 31;
}


unsigned
util_below(util_rng_t *r, unsigned n)
{
    return (unsigned) (((util_next(r) >> 32) * n) >> 32);
}


unsigned
util_cases(unsigned n)
{
    const char          *scale;
    unsigned long long   cases;

    scale = getenv("KVR_TEST_SCALE");
    cases = (unsigned long long) n * (scale ? strtoul(scale, NULL, 0) : 100);

    return cases < 100 ? 1 : (unsigned) (cases / 100);
}


void
util_put(util_buf_t *b, const void *data, size_t len)
{
    if (len == 0) {
        return;
    }

    if (b->size - b->len < len) {
        b->size = 2 * b->size + len + 64;
        b->p = realloc(b->p, b->size);

        if (b->p == NULL) {
            abort();
        }
    }

    memcpy(b->p + b->len, data, len);
    b->len += len;
}


void
util_puts(util_buf_t *b, const char *s)
{
    util_put(b, s, strlen(s));
}


void
util_byte(util_buf_t *b, unsigned c)
{
    uint8_t  byte;

    byte = (uint8_t) c;
    util_put(b, &byte, 1);
}


void
util_printf(util_buf_t *b, const char *fmt, ...)
{
    int      n;
    char     text[512];
    va_list  args;

    va_start(args, fmt);
    n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);

    if (n < 0 || (size_t) n >= sizeof(text)) {
        abort();
    }

    util_put(b, text, (size_t) n);
}


void
util_drop(util_buf_t *b)
{
    free(b->p);
    memset(b, 0, sizeof(*b));
}


void
util_sample(util_buf_t *b, const char *room, const char *name)
{
    char    path[256];
    FILE   *f;
    size_t  n;

    sprintf(path, "t/fuzz/corpus/%s/%s", room, name);

    f = fopen(path, "r");
    util_check(f != NULL, "%s: tests run in the repository's folder", path);

    b->len = 0;

    while ((n = fread(path, 1, sizeof(path), f)) > 0) {
        util_put(b, path, n);
    }

    fclose(f);
}


void
util_feed(util_feed_t *f, const void *data, size_t len, util_cut_e cut,
    size_t n)
{
    memset(f, 0, sizeof(*f));

    f->data = data;
    f->len = len;
    f->cut = cut;
    f->n = n;
    f->rng.state = n * 77 + len;
}


const uint8_t *
util_fetch(void *data, uint64_t offset, size_t *len)
{
    size_t        n, most;
    util_feed_t  *f;

    f = data;
    f->calls++;

    util_unfeed(f);

    if (offset >= f->len) {
        *len = 0;
        return NULL;
    }

    n = f->len - offset;

    switch (f->cut) {

    case UTIL_WHOLE:
        break;

    case UTIL_CUT:
        n = offset < f->n ? kvr_min(n, f->n - offset) : n;
        break;

    case UTIL_STEP:
        n = kvr_min(n, f->n);
        break;

    case UTIL_GRID:
        n = kvr_min(n, f->n - offset % f->n);
        break;

    case UTIL_RANDOM:
        most = 1 + util_below(&f->rng, (unsigned) f->n);
        n = kvr_min(n, most);
        break;
    }

    f->window = malloc(n);
    if (f->window == NULL) {
        abort();
    }

    memcpy(f->window, f->data + offset, n);

    f->window_len = n;
    f->served += n;
    *len = n;

    return f->window;
}


void
util_unfeed(util_feed_t *f)
{
    if (f->window) {
        memset(f->window, '"', f->window_len);
        free(f->window);
        f->window = NULL;
    }
}


int
util_cut(size_t len, unsigned k, util_cut_e *cut, size_t *n)
{
    static const size_t  sizes[] = { 1, 2, 3, 63, 64, 65 };

    *cut = UTIL_WHOLE;
    *n = 0;

    if (k == 0) {
        return 1;
    }

    k--;

    if (k < 6) {
        *cut = UTIL_STEP;
        *n = sizes[k];
        return 1;
    }

    k -= 6;

    if (k < 5) {
        *cut = UTIL_GRID;
        *n = sizes[k + 1];
        return 1;
    }

    k -= 5;

    *cut = UTIL_CUT;
    *n = k + 1;

    return *n < len;
}


const kvr_text_ops_t *
__wrap_kvr_text_ops(void)
{
    return util_ops ? util_ops : kvr_text_ops_nth(0);
}


int
util_kernel(unsigned n)
{
    const kvr_text_ops_t  *ops;

    ops = kvr_text_ops_nth(n);
    util_ops = ops ? ops : kvr_text_ops_nth(0);

    return ops != NULL;
}


const char *
util_kernel_name(void)
{
    return __wrap_kvr_text_ops()->name;
}


uint64_t
util_digest(const void *data, size_t len)
{
    return XXH3_64bits_withSecret(data, len, util_secret, KVR_SECRET_LEN);
}


/* as in the head of kvr_core.h, by halves of 32 bits */
uint64_t
util_mix(uint64_t a, uint64_t b)
{
    uint64_t  al, ah, bl, bh, ll, lh, hl, hh, mid, lo, hi;

    a ^= 0x9e3779b97f4a7c15ULL;
    b ^= 0xe7037ed1a0b428dbULL;

    al = a & 0xffffffff;
    ah = a >> 32;
    bl = b & 0xffffffff;
    bh = b >> 32;

    ll = al * bl;
    lh = al * bh;
    hl = ah * bl;
    hh = ah * bh;

    mid = (ll >> 32) + (lh & 0xffffffff) + (hl & 0xffffffff);

    lo = (ll & 0xffffffff) | mid << 32;
    hi = hh + (lh >> 32) + (hl >> 32) + (mid >> 32);

    return lo ^ hi;
}


void
util_chain(uint64_t *chain, uint64_t system, unsigned shared,
    uint64_t session, unsigned n)
{
    unsigned  i;
    uint64_t  h;

    h = util_mix(system, 1);

    for (i = 0; i < n; i++) {
        h = util_mix(h, i < shared ? 5 : 1000 + session);
        chain[i] = h;
    }
}


static int
util_hex4(const uint8_t *p, size_t len, unsigned *value)
{
    size_t       i;
    const char  *s;

    static const char  digits[] = "0123456789abcdef0123456789ABCDEF";

    *value = 0;

    for (i = 0; i < 4; i++) {

        if (i == len) {
            return KVR_AGAIN;
        }

        s = p[i] ? strchr(digits, p[i]) : NULL;

        if (s == NULL) {
            return KVR_ERROR;
        }

        *value = *value * 16 + (unsigned) (s - digits) % 16;
    }

    return KVR_OK;
}


static void
util_utf8(util_buf_t *out, unsigned u)
{
    if (u < 0x80) {
        util_byte(out, u);
        return;
    }

    if (u < 0x800) {
        util_byte(out, 0xc0 + u / 64);

    } else {

        if (u < 0x10000) {
            util_byte(out, 0xe0 + u / 4096);

        } else {
            util_byte(out, 0xf0 + u / 262144);
            util_byte(out, 0x80 + u / 4096 % 64);
        }

        util_byte(out, 0x80 + u / 64 % 64);
    }

    util_byte(out, 0x80 + u % 64);
}


/* a character from an escape */
static void
util_character(util_buf_t *out, unsigned u, int canonical)
{
    const char  *s;

    static const char  from[] = "\"\\\b\f\n\r\t";
    static const char  to[] = "\"\\bfnrt";

    if (!canonical) {
        util_utf8(out, u);
        return;
    }

    s = u && u < 0x80 ? strchr(from, (int) u) : NULL;

    if (s) {
        util_byte(out, '\\');
        util_byte(out, (uint8_t) to[s - from]);

    } else if (u < 0x20 || (u >= 0xd800 && u < 0xe000)) {
        util_printf(out, "\\u%04x", u);

    } else {
        util_utf8(out, u);
    }
}


int
util_string(const uint8_t *p, size_t len, util_buf_t *out, size_t *used,
    int canonical)
{
    int          rc;
    size_t       i;
    unsigned     u, low;
    const char  *s;

    static const char  from[] = "\"\\/bfnrt";
    static const char  to[] = "\"\\/\b\f\n\r\t";

    i = 0;

    while (i < len) {

        if (p[i] == '"') {
            *used = i + 1;
            return KVR_OK;
        }

        if (p[i] != '\\') {
            util_byte(out, p[i++]);
            continue;
        }

        if (++i == len) {
            return KVR_AGAIN;
        }

        if (p[i] != 'u') {

            s = p[i] ? strchr(from, p[i]) : NULL;

            if (s) {
                util_character(out, (uint8_t) to[s - from], canonical);

            } else if (canonical) {
                util_byte(out, '\\');
                util_byte(out, p[i]);

            } else {
                return KVR_ERROR;
            }

            i++;
            continue;
        }

        i++;

        rc = util_hex4(p + i, len - i, &u);
        if (rc != KVR_OK) {
            return rc;
        }

        i += 4;

        if (u >= 0xd800 && u < 0xdc00) {

            /* it can be the first half of a pair, if the text continues */

            if (i == len || (p[i] == '\\' && i + 1 == len)) {
                return KVR_AGAIN;
            }

            if (p[i] == '\\' && p[i + 1] == 'u') {
                rc = util_hex4(p + i + 2, len - i - 2, &low);

                if (rc != KVR_OK) {
                    return rc;
                }

                if (low >= 0xdc00 && low < 0xe000) {
                    u = 0x10000 + (u - 0xd800) * 1024 + (low - 0xdc00);
                    i += 6;
                }
            }
        }

        util_character(out, u, canonical);
    }

    return KVR_AGAIN;
}


int
util_raw(const uint8_t *p, size_t len, util_buf_t *out, size_t *used)
{
    int     string;
    size_t  i, depth;

    string = 0;
    depth = 0;

    for (i = 0; i < len; i++) {

        /* outside strings it is invalid JSON, but not a quote */

        if (p[i] == '\\') {
            util_byte(out, p[i]);

            if (++i == len) {
                break;
            }

            if (string) {
                util_byte(out, p[i]);
                continue;
            }

            if (p[i] == '"') {
                util_byte(out, p[i]);
                continue;
            }
        }

        if (string) {
            util_byte(out, p[i]);
            string = (p[i] != '"');
            continue;
        }

        switch (p[i]) {

        case ' ':
        case '\t':
        case '\r':
        case '\n':
            continue;

        case '"':
            string = 1;
            break;

        case '[':
        case '{':
            depth++;
            break;

        case ']':
        case '}':
            depth--;
            break;
        }

        util_byte(out, p[i]);

        if (depth == 0) {
            *used = i + 1;
            return KVR_OK;
        }
    }

    return KVR_AGAIN;
}


size_t
util_blocks(const util_buf_t *text, uint64_t *out, size_t max, int finish)
{
    size_t  n, off, len;

    n = 0;

    for (off = 0; off < text->len; off += len) {

        len = kvr_min((size_t) KVR_BLOCK, text->len - off);

        if (len < KVR_BLOCK && !finish) {
            break;
        }

        if (n < max) {
            out[n] = util_digest(text->p + off, len);
        }

        n++;
    }

    return n;
}
