
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _SUITE_H_INCLUDED_
#define _SUITE_H_INCLUDED_


/*
 * A test program of Check: tests register themselves, and main() runs them.
 *
 *     TEST(test_name)
 *     {
 *         ...
 *     }
 *
 * TEST_LOOP(test_name, n) runs n times, with i from 0.  suite_around(begin,
 * end) names functions that are called around each test of the program.
 */


#include <check.h>


typedef struct suite_test_s  suite_test_t;

struct suite_test_s {
    TTest            test;
    int              runs;
    suite_test_t    *next;
};

typedef struct {
    void           (*begin)(void);
    void           (*end)(void);
} suite_around_t;

extern const suite_around_t  suite_around;

void suite_add(suite_test_t *t);

#define suite_around(begin, end)                                              \
    const suite_around_t  suite_around = { begin, end }

#define TEST(name)  TEST_LOOP(name, 1)

#define TEST_LOOP(name, n)                                                    \
    static void name(int i);                                                  \
                                                                              \
    static void __attribute__ ((constructor)) name ## _add(void)              \
    {                                                                         \
        static suite_test_t  t = {                                            \
            { #name, name, __FILE__, __LINE__ }, n, NULL                      \
        };                                                                    \
                                                                              \
        suite_add(&t);                                                        \
    }                                                                         \
                                                                              \
    static void name(int loop __attribute__ ((unused)))


#endif /* _SUITE_H_INCLUDED_ */
