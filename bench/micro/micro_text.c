
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Reading and hashing bodies, compared with an XXH3 pass over the same bytes
 */


#include "micro_cases.h"
#include "micro_run.h"


#define MICRO_DIGESTS  20000


/* a body in one or two windows */
typedef struct {
    bench_body_t       body;
    size_t             cut;
} micro_body_t;


static uint64_t  micro_digests[MICRO_DIGESTS];
static uint64_t  micro_chain[MICRO_DIGESTS];


static const uint8_t *
micro_fetch(void *data, uint64_t offset, size_t *len)
{
    micro_body_t  *b = data;

    if (offset >= b->body.len) {
        *len = 0;
        return NULL;
    }

    *len = (offset < b->cut ? b->cut : b->body.len) - offset;

    return (uint8_t *) b->body.data + offset;
}


void
micro_text_conf(kvr_prompt_conf_t *conf)
{
    memset(conf, 0, sizeof(kvr_prompt_conf_t));

    conf->secret = micro_secret;
    conf->path = (const uint8_t *) "/v1/chat/completions";
    conf->path_len = 20;
    conf->digests = micro_digests;
    conf->max_digests = MICRO_DIGESTS;
    conf->chain = micro_chain;
    conf->max_chain = MICRO_DIGESTS;
}


static uint64_t
micro_read(micro_case_t *c, unsigned n)
{
    uint64_t           sum;
    kvr_prompt_t       pr;
    kvr_prompt_conf_t  conf;

    micro_text_conf(&conf);

    sum = 0;

    while (n--) {
        if (kvr_prompt_read(&pr, &conf, micro_fetch, c->data) != KVR_OK) {
            fprintf(stderr, "%s: bad body\n", c->name);
            exit(1);
        }

        sum += pr.n;
    }

    return sum;
}


static uint64_t
micro_hash(micro_case_t *c, unsigned n)
{
    uint64_t             sum;
    micro_body_t        *b;
    const kvr_text_ops_t  *ops;

    b = c->data;
    ops = kvr_text_ops();
    sum = 0;

    while (n--) {
        sum += ops->digest(micro_secret, (uint8_t *) b->body.data,
                           b->body.len);
    }

    return sum;
}


static uint64_t
micro_blocks(micro_case_t *c, unsigned n)
{
    size_t               i;
    uint64_t             sum;
    micro_body_t        *b;
    const kvr_text_ops_t  *ops;

    b = c->data;
    ops = kvr_text_ops();
    sum = 0;

    while (n--) {
        for (i = 0; i + KVR_BLOCK <= b->body.len; i += KVR_BLOCK) {
            sum = kvr_mix(sum, ops->digest(micro_secret,
                                           (uint8_t *) b->body.data + i,
                                           KVR_BLOCK));
        }
    }

    return sum;
}


void
micro_text(void)
{
    unsigned       i, k, two;
    micro_body_t  *b;

    static const struct {
        size_t        size;
        const char   *name;
    } sizes[] = {
        { 2048, "2k" }, { 32768, "32k" }, { 262144, "256k" },
        { 2097152, "2m" }
    };

    for (k = 0; k < BENCH_KINDS; k++) {
        for (i = 0; i < 4; i++) {

            if (!micro_full && k > BENCH_CODE && i != 1) {
                continue;
            }

            for (two = 0; two < 2; two++) {

                if (two && (k != BENCH_CODE || i != 1)) {
                    continue;
                }

                b = micro_alloc(sizeof(micro_body_t));

                bench_body_make(&b->body, (bench_kind_e) k, sizes[i].size, 7);

                b->cut = two ? b->body.len / 3 + 1 : b->body.len;

                micro_add(micro_read, b, "byte", (double) b->body.len,
                          "read %s %s%s", bench_kind_names[k], sizes[i].name,
                          two ? " in two" : "");
            }
        }
    }

    /* a thousand messages of sixty bytes */

    b = micro_alloc(sizeof(micro_body_t));
    bench_body_make(&b->body, BENCH_SMALL, 100000, 7);
    b->cut = b->body.len;

    micro_add(micro_read, b, "message", (double) b->body.messages,
              "read 1000 messages");

    /* controls */

    for (i = 0; i < 4; i++) {
        b = micro_alloc(sizeof(micro_body_t));
        bench_body_make(&b->body, BENCH_CODE, sizes[i].size, 7);

        micro_add(micro_hash, b, "byte", (double) b->body.len,
                  "control xxh3 %s", sizes[i].name);
        micro_add(micro_blocks, b, "byte", (double) b->body.len,
                  "xxh3 in blocks %s", sizes[i].name);
    }
}
