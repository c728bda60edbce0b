
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The input is a chunked body, as probes read it.  One piece and several must
 * give the same data and the same end; if a stateless reader accepts the body,
 * its result must be the same too.
 */


#include "core/engine/kvr_framing.h"
#include "util.h"


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


/* Collects the data of all runs; returns the result. */
static int
read_all(const uint8_t *data, size_t size, util_rng_t *r, util_buf_t *out)
{
    int             rc;
    size_t          len, n, off;
    kvr_framing_t   c = { 0 };
    const uint8_t  *p, *end, *run;

    out->len = 0;
    rc = KVR_AGAIN;

    for (off = 0; off < size && rc == KVR_AGAIN; off += n) {

        n = r ? 1 + util_below(r, (unsigned) kvr_min(size - off, 20)) : size;
        p = data + off;
        end = p + n;

        while ((rc = kvr_framing_read(&c, &p, end, &run, &len)) == KVR_OK) {
            util_check(len && run >= data + off && run + len <= end,
                       "a run of %zu bytes", len);
            util_put(out, run, len);
        }

        util_check(p >= data + off && p <= end, "read beyond");
        util_check(rc != KVR_AGAIN || p == end, "not all was read");
    }

    return rc;
}


/* Reads sizes, CRLF and data only; KVR_AGAIN if there is more than that. */
static int
simple(const uint8_t *p, size_t size, util_buf_t *out)
{
    char           *after;
    size_t          len;
    const uint8_t  *line, *end;

    end = p + size;
    out->len = 0;

    for ( ;; ) {
        line = memmem(p, (size_t) (end - p), "\r\n", 2);

        if (line == NULL || line == p || line - p > 6) {
            return KVR_AGAIN;
        }

        if (*p == '+' || *p == '-' || *p == ' ' || (*p >= '\t' && *p <= '\r')
            || (line - p > 1 && (p[1] | 0x20) == 'x'))
        {
            return KVR_AGAIN;
        }

        len = strtoul((const char *) p, &after, 16);

        if ((const uint8_t *) after != line) {
            return KVR_AGAIN;
        }

        p = line + 2;

        if (len == 0) {
            return end - p >= 2 && p[0] == '\r' && p[1] == '\n' ? KVR_DECLINED
                                                                : KVR_AGAIN;
        }

        if ((size_t) (end - p) < len + 2 || p[len] != '\r'
            || p[len + 1] != '\n')
        {
            return KVR_AGAIN;
        }

        util_put(out, p, len);
        p += len + 2;
    }
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int         rc;
    uint8_t    *copy;
    util_rng_t  r;

    static util_buf_t  whole, pieces;

    r.state = util_digest(data, size);

    rc = read_all(data, size, NULL, &whole);
    util_check(read_all(data, size, &r, &pieces) == rc, "another end: %d", rc);
    util_check(whole.len == pieces.len
               && (whole.len == 0
                   || memcmp(whole.p, pieces.p, whole.len) == 0),
               "other data");

    /* strtoul() needs a terminator */

    copy = malloc(size + 1);
    memcpy(copy, data, size);
    copy[size] = '\0';

    if (simple(copy, size, &pieces) == KVR_DECLINED) {
        util_check(rc == KVR_DECLINED, "a plain body: %d", rc);
        util_check(whole.len == pieces.len
                   && (whole.len == 0
                       || memcmp(whole.p, pieces.p, whole.len) == 0),
                   "other data than a plain body has");
    }

    free(copy);

    return 0;
}


#include "main.h"
