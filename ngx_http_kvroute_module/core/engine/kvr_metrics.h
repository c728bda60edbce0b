
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_METRICS_H_INCLUDED_
#define _KVR_METRICS_H_INCLUDED_


/*
 * What an engine says of itself: the Prometheus text of vLLM (old names and
 * new, with ":" or, under Ray, "_"), SGLang, TensorRT-LLM, Triton, llama.cpp
 * and TGI; SGLang's /v1/loads; the header endpoint-load-metrics (ORCA).
 *
 * Is fed piece by piece and keeps one line at most.  What is not known, or no
 * sensible number, is passed over.  A field that was not there is not set: an
 * engine that exports nothing is not idle.
 */


#include "core/text/kvr_json_push.h"


#define KVR_METRICS_LINE   4096  /* longer ones are passed over */
#define KVR_METRICS_LORAS  16


typedef enum {
    KVR_ENGINE_AUTO = 0,
    KVR_ENGINE_VLLM,
    KVR_ENGINE_SGLANG,
    KVR_ENGINE_TRTLLM,
    KVR_ENGINE_LLAMACPP,
    KVR_ENGINE_TGI,
    KVR_ENGINES
} kvr_engine_e;


/* fields that are set */
#define KVR_METRICS_RUNNING     0x001
#define KVR_METRICS_WAITING     0x002
#define KVR_METRICS_KV          0x004
#define KVR_METRICS_CAPACITY    0x008
#define KVR_METRICS_HITS        0x010
#define KVR_METRICS_QUERIES     0x020
#define KVR_METRICS_PREEMPTIONS 0x040
#define KVR_METRICS_START       0x080
#define KVR_METRICS_LORA        0x100
#define KVR_METRICS_NO_CACHE    0x200  /* prefix caching is switched off */


/* data-parallel ranks are summed */
typedef struct {
    uint32_t       set;
    kvr_engine_e   engine;       /* whose names these were */
    uint32_t       running;      /* requests */
    uint32_t       waiting;
    double         kv;           /* share in use, 0 .. 1, mean of the ranks */
    uint64_t       capacity;     /* of the KV cache, tokens */
    uint64_t       hits;         /* of the prefix cache, tokens, ever */
    uint64_t       queries;      /* tokens of prompts, ever */
    uint64_t       preemptions;  /* ever */
    double         start;        /* of the process, s since 1970 */

    uint32_t       max_loras;    /* that can be loaded at a time; 0: unknown */
    uint32_t       loras;        /* in use, as FNV-1a of their names: */
    uint64_t       lora[KVR_METRICS_LORAS];
} kvr_metrics_t;


/* sums while a text is read, by place in a table */
#define KVR_METRICS_SUMS  40

typedef struct {
    kvr_metrics_t  m;

    double         sum[KVR_METRICS_SUMS];
    uint32_t       count[KVR_METRICS_SUMS];
    double         newest;       /* of the sets of adapters */

    kvr_push_t     json;
    uint8_t        mode;         /* 0: at the start, 'p'rometheus, 'j'son */
    uint8_t        leaf;
    unsigned       drop:1;       /* the rest of a line that is too long */
    uint32_t       len;
    char           line[KVR_METRICS_LINE + 1];
} kvr_metrics_reader_t;


void kvr_metrics_init(kvr_metrics_reader_t *r);
void kvr_metrics_read(kvr_metrics_reader_t *r, const uint8_t *data,
    size_t len);

/* the text is over; what was found is in r->m */
void kvr_metrics_end(kvr_metrics_reader_t *r);

/*
 * Reads the value of an endpoint-load-metrics header: "TEXT a=1, b=2", "JSON
 * {...}", or either without the word.  Returns the fields found.
 */
uint32_t kvr_metrics_orca(kvr_metrics_t *m, const uint8_t *value, size_t len);

/* of a name, as in m->lora[] */
uint64_t kvr_metrics_lora(const void *name, size_t len);

const char *kvr_engine_name(kvr_engine_e engine);
kvr_engine_e kvr_engine_by_name(const void *name, size_t len);


#endif /* _KVR_METRICS_H_INCLUDED_ */
