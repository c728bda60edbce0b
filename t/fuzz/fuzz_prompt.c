
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Fuzzes the reader of request bodies.  The input is a body; a first line that
 * starts with "/" is the request's path.  Windows depend on a hash of the
 * input. All kernels must give the same result in one piece and in windows,
 * equal to that of the unit tests' oracle (t/unit/oracle.h).
 */


#include "oracle.h"


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned                k;
    util_rng_t              r;
    const uint8_t          *line;
    kvr_prompt_conf_t       conf = { 0 };

    static oracle_stats_t   stats;
    static oracle_result_t  res, other;

    r.state = util_digest(data, size);

    conf.path = (const uint8_t *) "/v1/chat/completions";
    conf.path_len = 20;

    line = size && data[0] == '/' ? memchr(data, '\n', size) : NULL;

    /* the oracle has its paths in strings */

    if (line && line - data < 200
        && memchr(data, '\0', (size_t) (line - data)) == NULL)
    {
        conf.path = data;
        conf.path_len = (size_t) (line - data);

        size -= conf.path_len + 1;
        data = line + 1;
    }

    conf.no_prefill = !kvr_endpoint_computes(kvr_endpoint(conf.path,
                                                     conf.path_len));

    util_note("path %.*s", (int) conf.path_len, conf.path);

    (void) util_kernel(0);

    oracle_read(&res, &conf, data, size, UTIL_WHOLE, 0);
    oracle_verify(&res, &conf, data, size, &stats);

    for (k = 0; util_kernel(k); k++) {

        if (k) {
            oracle_read(&other, &conf, data, size, UTIL_WHOLE, 0);
            oracle_same(&res, &other, "another kernel");
        }

        oracle_read(&other, &conf, data, size, UTIL_CUT,
                    1 + util_below(&r, (unsigned) size + 1));
        oracle_same(&res, &other, "cut in two");

        oracle_read(&other, &conf, data, size, UTIL_GRID,
                    1 + util_below(&r, 80));
        oracle_same(&res, &other, "in buffers");

        oracle_read(&other, &conf, data, size, UTIL_RANDOM,
                    1 + util_below(&r, util_below(&r, 2) ? 4 : 300));
        oracle_same(&res, &other, "in windows");
    }

    return 0;
}


#include "main.h"
