
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Compares the reader with the oracle: thousands of bodies of all APIs, intact
 * and damaged, each read in one piece by every kernel and in windows. oracle.h
 * lists the allowed differences.
 */


#include "bodies.h"
#include "oracle.h"


static void
conf_init(util_rng_t *r, kvr_prompt_conf_t *conf, const char *path)
{
    memset(conf, 0, sizeof(*conf));

    conf->path = (const uint8_t *) path;
    conf->path_len = strlen(path);
    conf->no_prefill = !kvr_endpoint_computes(kvr_endpoint(conf->path,
                                                      conf->path_len));

    if (util_below(r, 2)) {
        conf->salt = (const uint8_t *) "tenant";
        conf->salt_len = 6;
    }
}


static void
check_body(util_rng_t *r, const kvr_prompt_conf_t *conf, const uint8_t *body,
    size_t len, oracle_stats_t *stats)
{
    size_t                   n;
    unsigned                 i, k;
    util_cut_e               cut;

    static oracle_result_t   res, other;

    (void) util_kernel(0);
    util_about(body, len);

    oracle_read(&res, conf, body, len, UTIL_WHOLE, 0);
    oracle_verify(&res, conf, body, len, stats);

    /* the result is the same for all kernels and cuts */

    for (k = 0; util_kernel(k); k++) {

        if (k) {
            oracle_read(&other, conf, body, len, UTIL_WHOLE, 0);
            oracle_same(&res, &other, "another kernel");
        }

        for (i = 0; i < 2; i++) {
            cut = (util_cut_e) (UTIL_CUT + util_below(r, 4));
            n = 1 + util_below(r, util_below(r, 2) ? 10 : 300);

            if (cut == UTIL_CUT) {
                n = 1 + util_below(r, (unsigned) len + 1);
            }

            oracle_read(&other, conf, body, len, cut, n);
            oracle_same(&res, &other, "in windows");
        }
    }

    (void) util_kernel(0);
}


TEST(test_oracle_bodies)
{
    unsigned            i, k;
    const char         *path;
    util_rng_t          r;
    util_buf_t          body = { 0 }, damaged = { 0 };
    oracle_stats_t      stats = { 0 };
    kvr_prompt_conf_t   conf;

    static const char *const  names[] = {
        "NUMBER", "SURROGATE", "ESCAPE", "UNREAD", "CONTAINER", "NOT_OBJECT",
        "BOM", "SPACE", "HEX", "CONTROL", "NUL", "DEPTH"
    };

    for (i = 0; i < util_cases(2500); i++) {

        util_seed(&r, "oracle bodies", i);

        bodies_make(&r, &body, &path);
        conf_init(&r, &conf, path);

        check_body(&r, &conf, body.p, body.len, &stats);

        for (k = 0; k < 4; k++) {
            damaged.len = 0;
            util_put(&damaged, body.p, body.len);
            bodies_damage(&r, &damaged);

            check_body(&r, &conf, damaged.p, damaged.len, &stats);
        }
    }

    util_drop(&body);
    util_drop(&damaged);

    if (getenv("KVR_TEST_STATS")) {
        printf("%u bodies, %u accepted, %u rejected by both\n", stats.bodies,
               stats.accepted, stats.rejected);

        for (i = 0; i < ORACLE_EXPLANATIONS; i++) {
            printf("%12s %u\n", names[i], stats.explained[i]);
        }
    }

    /* each listed difference occurs */

    for (i = 0; i < ORACLE_EXPLANATIONS; i++) {
        util_check(stats.explained[i] || util_cases(100) < 100,
                   "%s did not occur", names[i]);
    }

    util_check(stats.accepted > stats.bodies / 4, "few good ones");
    util_check(stats.rejected > stats.bodies / 4, "few bad ones");
}
