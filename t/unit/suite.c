
/*
 * Copyright (C) kvroute contributors
 */


#ifndef UTIL_NO_CHECK

#include <string.h>

#include "suite.h"


const suite_around_t __attribute__ ((weak))  suite_around = { NULL, NULL };

static suite_test_t   *suite_tests;
static suite_test_t  **suite_last = &suite_tests;


void
suite_add(suite_test_t *t)
{
    *suite_last = t;
    suite_last = &t->next;
}


int
main(int argc, char **argv)
{
    int           failed;
    TCase        *tc;
    Suite        *s;
    SRunner      *sr;
    const char   *name;
    suite_test_t  *t;

    (void) argc;

    name = strrchr(argv[0], '/');
    s = suite_create(name ? name + 1 : argv[0]);

    for (t = suite_tests; t; t = t->next) {
        tc = tcase_create(t->test.name);

        /* no time limit: slow machines and sanitizers must not fail */

        tcase_set_timeout(tc, 0);
        tcase_add_checked_fixture(tc, suite_around.begin, suite_around.end);
        tcase_add_loop_test(tc, &t->test, 0, t->runs);
        suite_add_tcase(s, tc);
    }

    sr = srunner_create(s);

    srunner_run_all(sr, CK_ENV);
    failed = srunner_ntests_failed(sr);
    srunner_free(sr);

    return failed != 0;
}

#endif
