
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _BENCH_BODY_H_INCLUDED_
#define _BENCH_BODY_H_INCLUDED_


/*
 * Request bodies for measurements: chat completions whose messages have text
 * of one kind.  They are made from a seed, so all runs have the same bodies.
 */


#include <stddef.h>
#include <stdint.h>


typedef enum {
    BENCH_PROSE = 0,             /* words, few escapes */
    BENCH_CODE,                  /* an escape every dozen bytes */
    BENCH_MULTI,                 /* multibyte characters, unescaped */
    BENCH_ESCAPED,               /* the same characters as \uXXXX */
    BENCH_IMAGE,                 /* base64 in a data URL */
    BENCH_SMALL,                 /* messages of about sixty bytes */
    BENCH_KINDS
} bench_kind_e;


#define BENCH_NONCE_LEN  16


typedef struct {
    char    *data;
    size_t   len;
    size_t   nonce;              /* offset of BENCH_NONCE_LEN free bytes */
    size_t   messages;
} bench_body_t;


extern const char *const  bench_kind_names[];


/* makes a body of about this size; exits if there is no memory */
void bench_body_make(bench_body_t *body, bench_kind_e kind, size_t size,
    unsigned seed);

/* changes the first message, so that the whole prompt is another one */
void bench_body_nonce(bench_body_t *body, uint64_t n);

/* returns the kind with this name, or BENCH_KINDS */
bench_kind_e bench_kind(const char *name);


#endif /* _BENCH_BODY_H_INCLUDED_ */
