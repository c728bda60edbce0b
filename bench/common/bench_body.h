
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _BENCH_BODY_H_INCLUDED_
#define _BENCH_BODY_H_INCLUDED_


/*
 * Request bodies to measure with: chat completions whose messages are filled
 * with text of one kind.  Made from a seed, so that all runs have the same.
 */


#include <stddef.h>
#include <stdint.h>


typedef enum {
    BENCH_PROSE = 0,             /* words, few escapes */
    BENCH_CODE,                  /* an escape every dozen bytes */
    BENCH_MULTI,                 /* multibyte text as it is */
    BENCH_ESCAPED,               /* the same as \uXXXX */
    BENCH_IMAGE,                 /* base64 in a data URL */
    BENCH_SMALL,                 /* messages of some sixty bytes */
    BENCH_KINDS
} bench_kind_e;


#define BENCH_NONCE_LEN  16


typedef struct {
    char    *data;
    size_t   len;
    size_t   nonce;              /* where BENCH_NONCE_LEN bytes are free */
    size_t   messages;
} bench_body_t;


extern const char *const  bench_kind_names[];


/* makes a body of about so many bytes; exits if there is no memory */
void bench_body_make(bench_body_t *body, bench_kind_e kind, size_t size,
    unsigned seed);

/* makes it another prompt, from its first message on */
void bench_body_nonce(bench_body_t *body, uint64_t n);

/* the kind of a name, or BENCH_KINDS */
bench_kind_e bench_kind(const char *name);


#endif /* _BENCH_BODY_H_INCLUDED_ */
