/*
 * Flags: settings of a process, and of each of its replicas.
 */

#ifndef KVE_ENGINE_OPTIONS_H
#define KVE_ENGINE_OPTIONS_H


#include "base/engine_util.h"
#include "model/replica.h"


#define KVE_RANKS  64


#define KVE_NAMES_MAX      16


typedef enum {
    KVE_VLLM = 0,
    KVE_VLLM_OLD,
    KVE_SGLANG,
    KVE_TRTLLM,
    KVE_LLAMACPP,
    KVE_TGI
} kve_dialect_e;


/* settings by flags for all replicas, by POST /control for one */

typedef struct {
    double              retry_after;        /* s, negative: none */

    char                fault[48];          /* name[=number], or empty */
    double              fault_rate;
    int64_t             fault_count;        /* negative: any number */
    double              stall_ms;           /* 0: until the client leaves */

    double              delay_ms;           /* before a request is read */
    int                 health_status;      /* 0: by the engine's state */
    int                 first_token_headers;
    double              keepalive_timeout;  /* s */
    int                 keepalive_max;      /* requests, 0: any */

    char                metrics[16];        /* ok, frozen, garbage, ... */
    double              metrics_delay_ms;

    double              output_tokens;

    int                 kv_lose;            /* next messages to drop */
    int                 kv_double;
    int                 kv_swap;
    int                 kv_replay_silent;

    int                 transfer_lost;      /* 1: left out, 2: null */
    int                 transfer_blocks;    /* more blocks than it has */
} kve_settings_t;


typedef struct {
    const char         *name[KVE_NAMES_MAX];
    int                 n;
} kve_names_t;


typedef struct {
    int                 port;
    int                 count;
    const char         *host;
    const char         *dialect_name;
    kve_dialect_e       dialect;
    const char         *model;
    kve_names_t         served;
    kve_names_t         loras;              /* JSON objects or names */
    int                 nloras;
    char               *lora[KVE_NAMES_MAX];
    const char         *hw_name;
    kve_config_t        config;
    double              speed;              /* times faster than real */
    int                 block_size;
    int                 blocks;
    int                 host_blocks;        /* of the tiers below the GPU's */
    double              host_rate;          /* GB/s */
    int                 state_blocks;       /* hybrid: from state to state */
    int                 max_seqs;
    int                 bytes_per_token;
    int64_t             max_model_len;
    int                 max_queued;
    int                 metrics_engines;    /* series per gauge */
    int                 ranks;              /* behind each port */
    int                 request_log;        /* entries */
    int                 kv_events;          /* first port, 0: none */
    int                 kv_replay;
    const char         *kv_encoding_name;
    int                 kv_encoding;        /* events/engine_encode.h */
    double              kv_bandwidth;       /* bytes/s of transfers, 0: no limit */
    double              kv_bytes;           /* of a token */
    const char         *kv_transfers;       /* file of all descriptors */
    const char         *disaggregation;     /* SGLang: prefill, decode */
    int                 seed;

    double              prefill_overhead;
    double              prefill_per_token;
    double              itl;                /* s */

    int                 caching;
    int                 continues;
    int                 no_metrics;
    int                 no_log_stats;
    int                 prompt_tokens_details;
    int                 force_include_usage;
    int                 cache_report;

    kve_settings_t      settings;
} kve_options_t;


/* 0, or an exit status + 1 */
int kve_options_parse(kve_options_t *opt, int argc, char **argv);
void kve_options_free(kve_options_t *opt);

/* converts bytes of a prompt into tokens */
uint32_t kve_tokens(const kve_options_t *opt, size_t bytes);


#endif
