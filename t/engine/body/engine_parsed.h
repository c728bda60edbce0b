/*
 * A parsed request body: the common part of all APIs.
 */

#ifndef KVE_ENGINE_PARSED_H
#define KVE_ENGINE_PARSED_H


#include "base/engine_http.h"


#define KVE_SUBS_MAX       128


typedef struct {
    kve_api_e           api;
    cJSON              *body;
    cJSON              *messages;           /* as in chat completions */
    cJSON              *tools;
    const char         *model;
    uint64_t            root;               /* start of all hashes */

    kve_buf_t          *prompts;            /* rendered */
    int                 nprompts;

    int64_t             max_tokens;         /* negative: not given */
    int64_t             min_tokens;
    int                 n;

    unsigned            stream:1;
    unsigned            include_usage:1;
    unsigned            continuous_usage:1;
    unsigned            continues:1;        /* can continue its own reply */
    unsigned            ignore_eos:1;
    unsigned            timings_per_token:1;
    unsigned            tools_allowed:1;
    unsigned            skip_cache:1;       /* computes all again */
    unsigned            background:1;
    unsigned            single:1;           /* reply is not an array */

    int                 status;             /* of an error */
    const char         *error_type;
    char                error[256];
} kve_parsed_t;


/* the first error counts */
void kve_parsed_fail(kve_parsed_t *p, int status, const char *type,
    const char *fmt, ...) __attribute__((format(printf, 4, 5)));
void kve_parsed_free(kve_parsed_t *p);


#endif
