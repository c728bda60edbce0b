
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The input is a response; an event stream if its first byte is a letter or a
 * colon.  One piece and several must give the same result.
 */


#include "util.h"
#include "core/response/kvr_response.h"


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


static void
part(void *data, kvr_response_part_e part, const uint8_t *p, size_t len)
{
    uint64_t *sum = data;

    *sum = util_mix(*sum, part + 1);

    for ( /* void */ ; len; len--) {
        *sum = util_mix(*sum, *p++);
    }
}


/* a string is reported in pieces: only the bytes must be equal */
static void
text(void *data, kvr_response_part_e part, const uint8_t *p, size_t len)
{
    util_buf_t *b = data;

    if (p) {
        util_put(b, p, len);

    } else {
        util_byte(b, part);
    }
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int             more;
    size_t          n, off;
    uint64_t        sum;
    unsigned        mode, stream;
    util_rng_t      r;
    kvr_response_t  u, v;
    kvr_tokens_t    t, w;

    static util_buf_t  whole, pieces;

    r.state = util_digest(data, size);
    stream = size && (data[0] == ':' || (data[0] >= 'a' && data[0] <= 'z'));

    for (mode = 0; mode <= KVR_RESPONSE_REPLY; mode++) {

        whole.len = 0;
        pieces.len = 0;
        sum = 0;

        kvr_response_init(&u, (kvr_response_mode_e) mode, stream);
        (void) kvr_response_read(&u, data, size, text, &whole);
        kvr_response_end(&u, text, &whole);

        kvr_response_init(&v, (kvr_response_mode_e) mode, stream);
        more = 1;

        for (off = 0; off < size && more; off += n) {
            n = 1 + util_below(&r, (unsigned) kvr_min(size - off, 40));
            more = kvr_response_read(&v, data + off, n, text, &pieces);
        }

        kvr_response_end(&v, text, &pieces);

        kvr_response_tokens(&u, &t);
        kvr_response_tokens(&v, &w);

        util_check(u.first == v.first, "first, mode %u", mode);
        util_check(memcmp(&t, &w, sizeof(t)) == 0, "tokens, mode %u", mode);

        /* the other mode skips some lines without tokens */

        util_check(u.error == v.error || mode == KVR_RESPONSE_TOKENS, "error");
        util_check(u.id_len == v.id_len
                   && (u.id_len == 0 || memcmp(u.id, v.id, u.id_len) == 0),
                   "id");
        util_check(whole.len == pieces.len
                   && (whole.len == 0
                       || memcmp(whole.p, pieces.p, whole.len) == 0),
                   "reply");

        kvr_response_init(&u, (kvr_response_mode_e) mode, !stream);
        (void) kvr_response_read(&u, data, size, part, &sum);
    }

    return 0;
}


#include "main.h"
