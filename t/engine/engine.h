/*
 * The emulated engine: an HTTP server that stands for one or many replicas,
 * each on its own port, each with its own replica model behind it.
 *
 * engine_options.c   flags
 * engine.c           start, the clock that drives the models, restarts
 * engine_http.c      connections, routes, plain replies
 * engine_parse.c     request body of any API -> fields and prompts
 * engine_convert.c   other APIs' bodies -> chat messages
 * engine_render.c    messages -> prompt text, as a chat template would
 * engine_job.c       a request's life
 * engine_sub.c       its sequences: reply length, block hashes
 * engine_run.c       the model's events and tokens -> replies
 * engine_reply.c     the reply's text, usage and the like
 * engine_whole.c     replies that are not streamed
 * engine_stream.c    streamed replies, each API's framing
 * engine_fault.c     misbehaviour on demand
 * engine_control.c   GET and POST /control
 * engine_metrics.c   /metrics, engine_dialects.c its contents by engine,
 * engine_prom.c      its format
 * engine_info.c      models, tokenize, slots, loads, ...
 * engine_store.c     responses that are kept
 *
 * One thread; everything belongs to it.
 */

#ifndef KVE_ENGINE_H
#define KVE_ENGINE_H


#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>

#include "engine_util.h"
#include "replica.h"


#define KVE_BODY_MAX       (64u * 1024 * 1024 + 65536)
#define KVE_NAMES_MAX      16
#define KVE_LORA_SETS      8
#define KVE_SUBS_MAX       128
#define KVE_STORED         256
#define KVE_CONN_SLOTS     256


typedef struct kve_engine_s  kve_engine_t;
typedef struct kve_server_s  kve_server_t;
typedef struct kve_conn_s    kve_conn_t;
typedef struct kve_job_s     kve_job_t;


typedef enum {
    KVE_VLLM = 0,
    KVE_VLLM_OLD,
    KVE_SGLANG,
    KVE_TRTLLM,
    KVE_LLAMACPP,
    KVE_TGI
} kve_dialect_e;


typedef enum {
    KVE_CHAT = 0,
    KVE_COMPLETIONS,
    KVE_RESPONSES,
    KVE_MESSAGES,
    KVE_EMBEDDINGS,
    KVE_GENERATE_SGLANG,
    KVE_GENERATE_TGI,
    KVE_GENERATE_LLAMACPP
} kve_api_e;


/* what a flag sets for all and POST /control for one replica */

typedef struct {
    double              fail_rate;          /* 0 .. 1 */
    int                 fail_status;        /* 0: one of fail_types */
    unsigned            fail_types;         /* bit mask */
    double              retry_after;        /* s, negative: none */

    char                fault[48];          /* name[=number], or empty */
    double              fault_rate;
    int64_t             fault_count;        /* negative: any number */
    double              stall_ms;           /* 0: until the client goes */

    double              delay_ms;           /* before a request is read */
    int                 health_status;      /* 0: by the engine's state */
    int                 first_token_headers;
    double              sse_ping;           /* s, 0: none */
    double              keepalive_timeout;  /* s */
    int                 keepalive_max;      /* requests, 0: any */

    char                metrics[16];        /* ok, frozen, garbage, ... */
    double              metrics_delay_ms;

    double              output_tokens;
    double              output_spread;      /* fraction of the mean */
    double              tool_call_rate;
    int                 reasoning_tokens;
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
    int                 max_loras;
    const char         *hw_name;
    const char         *orca_frontend;
    kve_config_t        config;
    double              speed;              /* times faster than real */
    double              replica_speed;
    int                 block_size;
    int                 blocks;
    int                 max_seqs;
    int                 max_batched;
    int                 bytes_per_token;
    int                 image_tokens;
    int64_t             max_model_len;
    int                 max_waiting;
    int                 max_queued;
    double              loading;            /* s of 503 after the start */
    int                 metrics_engines;    /* series per gauge */
    int                 request_log;        /* entries */
    int                 seed;

    double              ttft;               /* s, llm-d's latencies */
    double              prefill_overhead;
    double              prefill_per_token;
    double              itl;

    double              fail_percent;
    kve_names_t         fail_names;
    const char         *fault;
    const char         *headers;
    const char         *metrics;
    const char         *fake_metrics;

    int                 caching;
    int                 chunk_reuse;
    int                 no_metrics;
    int                 no_log_stats;
    int                 prompt_tokens_details;
    int                 force_include_usage;
    int                 cache_report;
    int                 request_id_headers;
    int                 load_tracking;
    int                 orca_rust;

    kve_settings_t      settings;
} kve_options_t;


typedef struct {
    uint64_t            requests;
    uint64_t            generate_requests;
    uint64_t            body_bytes;
    uint64_t            completed;
    uint64_t            aborted;            /* the client went first */
    uint64_t            failed;             /* replied with an error */
    uint64_t            rejected;           /* of these: too many wait */
    uint64_t            faults;
    uint64_t            connections;
    uint64_t            tokens_sent;
    uint64_t            cached_tokens;
    uint64_t            prompt_tokens;
    uint64_t            stops;              /* by finish reason */
    uint64_t            lengths;
    uint64_t            tool_calls;
    double              drift_sum;          /* s, token sent - token due */
    double              drift_max;
    uint64_t            drift_over;         /* by more than 5 ms */
    uint64_t            drift_n;
} kve_counters_t;


typedef struct {
    double              arrived;            /* wall clock */
    char               *id;
    const char         *path;
    uint64_t            body_bytes;
    uint32_t            prompt_tokens;
    uint32_t            cached_tokens;
    uint32_t            output_tokens;
    double              ttft;               /* s, negative: none */
    double              e2e;
    int                 status;
    const char         *end;                /* done, aborted, fault, ... */
} kve_log_entry_t;


/* of the Responses API */

typedef struct {
    char               *id;                 /* NULL: free */
    char               *object;             /* JSON */
    cJSON              *messages;           /* to go on from, or NULL */
} kve_stored_t;


typedef struct {
    uint32_t            running;
    uint32_t            waiting;
    double              kv_usage;
    unsigned            running_set:1;
    unsigned            waiting_set:1;
    unsigned            kv_usage_set:1;
} kve_fake_t;


struct kve_server_s {
    kve_engine_t       *engine;
    int                 index;
    int                 port;
    struct evhttp      *http;
    struct evhttp_bound_socket  *socket;
    struct event       *up;                 /* end of a "down" time */

    kve_replica_t      *model;
    double              wake;               /* virtual */
    kve_job_t          *jobs;               /* generating */
    kve_conn_t         *conns[KVE_CONN_SLOTS];
    uint32_t            nconns;
    uint32_t            open_requests;
    uint32_t            open_streams;

    kve_settings_t      settings;
    kve_counters_t      counters;
    kve_fake_t          fake;
    uint64_t            random;
    double              started;            /* wall clock */
    double              ready;              /* monotonic: end of loading */
    uint32_t            restarts;

    kve_hist_t          ttft, itl, e2e, queue, prefill, decode;

    char               *lora_set[KVE_LORA_SETS];
    double              lora_seen[KVE_LORA_SETS];
    int                 nlora_sets;
    kve_buf_t           frozen;             /* metrics */
    uint64_t            steps_read;         /* by TensorRT-LLM's /metrics */

    kve_stored_t        stored[KVE_STORED];
    uint32_t            nstored;

    kve_log_entry_t    *log;
    uint64_t            nlog;
};


struct kve_engine_s {
    struct event_base  *base;
    struct event       *tick;
    struct evbuffer    *chunk;
    kve_options_t       opt;
    kve_server_t       *servers;
    int                 nservers;
    double              start;              /* monotonic, virtual 0 */
    unsigned            exiting:1;
};


/* a body, understood */

typedef struct {
    kve_api_e           api;
    cJSON              *body;
    cJSON              *messages;           /* as chat completions has them */
    cJSON              *tools;
    const char         *model;
    uint64_t            root;               /* what all hashes start from */

    kve_buf_t          *prompts;            /* rendered */
    int                 nprompts;

    int64_t             max_tokens;         /* negative: not given */
    int64_t             min_tokens;
    int                 n;
    const char         *tool_name;          /* to be called */

    unsigned            stream:1;
    unsigned            include_usage:1;
    unsigned            continuous_usage:1;
    unsigned            ignore_eos:1;
    unsigned            return_progress:1;
    unsigned            timings_per_token:1;
    unsigned            tools_allowed:1;
    unsigned            skip_cache:1;       /* all is computed anew */
    unsigned            background:1;
    unsigned            single:1;           /* reply is not an array */

    int                 status;             /* of an error */
    const char         *error_type;
    char                error[256];
} kve_parsed_t;


typedef enum {
    KVE_PART_REASONING = 0,
    KVE_PART_CONTENT,
    KVE_PART_TOOL                           /* arguments of the call */
} kve_part_e;


typedef struct {
    kve_part_e          kind;
    size_t              start;
    size_t              end;
} kve_part_t;


/* the reply as the template would render it, and what of it is shown */

typedef struct {
    kve_buf_t           text;
    kve_part_t          parts[3];
    int                 nparts;
    char               *tool_name;
    char                tool_id[32];
    const char         *finish;             /* stop, length, tool_calls */
} kve_reply_t;


/* one sequence; a request may have several (n, arrays of prompts) */

typedef struct {
    kve_req_t           req;
    kve_job_t          *job;
    int                 index;
    uint64_t           *hashes;
    uint64_t           *digests;
    kve_reply_t         reply;
    uint32_t            sent;               /* tokens */
    double             *times;              /* of its last tokens */
    uint32_t            times_from;
    unsigned            failed:1;           /* by the model */
    unsigned            done:1;             /* by the model */
    unsigned            finished:1;         /* by us */
    unsigned            begun:1;
    unsigned            closed:1;           /* finish reason is out */
    int                 part;               /* last one streamed, or -1 */
    int                 block;              /* its number */
    double              last;               /* real time of last token */
} kve_sub_t;


typedef enum {
    KVE_FAULT_NONE = 0,
    KVE_FAULT_STATUS,
    KVE_FAULT_CLOSE,                        /* FIN before headers */
    KVE_FAULT_RESET,                        /* RST before headers */
    KVE_FAULT_RESET_HEADERS,
    KVE_FAULT_RESET_STREAM,
    KVE_FAULT_TRUNCATE,
    KVE_FAULT_GARBAGE,                      /* not HTTP */
    KVE_FAULT_GARBAGE_BODY,
    KVE_FAULT_HANG,                         /* no headers, ever */
    KVE_FAULT_STALL,
    KVE_FAULT_SLOW,
    KVE_FAULT_ERROR_STREAM,
    KVE_FAULT_INVALID                       /* unknown name */
} kve_fault_e;


struct kve_job_s {
    kve_server_t       *server;
    kve_conn_t         *conn;
    struct evhttp_request  *http;
    kve_job_t          *prev, *next;
    kve_parsed_t        parsed;
    kve_sub_t          *subs;
    int                 nsubs;
    int                 lora;               /* index, or -1 */

    char                id[48];
    char               *request_id;         /* X-Request-Id */
    const char         *path;
    uint64_t            body_bytes;
    time_t              created;
    double              arrived;            /* real */
    double              first;              /* real, of the first token */
    int                 orca;               /* 1: text, 2: JSON */
    int64_t             want_output;        /* X-Engine-Output-Tokens */
    int64_t             want_reasoning;
    int                 want_tool;

    kve_fault_e         fault;
    int                 fault_n;
    double              stall_ms;
    double              stalled;            /* real, 0: not, -1: over */

    struct event       *timer;              /* delay, or ping */
    int                 sequence;           /* of Responses events */
    kve_buf_t           out;                /* chunk under construction */
    kve_buf_t           head;               /* JSON around "choices" */
    kve_buf_t           tail;

    unsigned            started:1;          /* headers are out */
    unsigned            begun:1;            /* a token is out */
    unsigned            submitted:1;
    unsigned            is_stream:1;        /* counted in open_streams */
    unsigned            background:1;       /* replied to already */
};


struct kve_conn_s {
    kve_server_t       *server;
    kve_conn_t         *prev, *next;
    struct bufferevent *bev;
    struct evhttp_connection  *evcon;
    struct evhttp_request     *http;        /* not replied to yet */
    kve_job_t          *job;
    struct event       *doom;               /* to be closed when drained */
    struct event       *later;              /* a reply put off */
    void              (*handler)(kve_server_t *s, kve_conn_t *c,
                                 struct evhttp_request *req);
    int                 doom_ticks;
    int                 requests;
    unsigned            reset:1;
    unsigned            closing:1;          /* by us */
};


/* engine_options.c */

/* 0, or an exit status + 1 */
int kve_options_parse(kve_options_t *opt, int argc, char **argv);
void kve_options_free(kve_options_t *opt);

/* engine.c */

double kve_virtual(kve_engine_t *e);
void kve_engine_wake(kve_engine_t *e);
int kve_server_listen(kve_server_t *s);
void kve_server_deafen(kve_server_t *s, double seconds);
void kve_server_restart(kve_server_t *s, const kve_conn_t *except);

/* engine_http.c */

void kve_http_setup(kve_server_t *s);
const char *kve_http_header(struct evhttp_request *req, const char *name);
void kve_http_reply(struct evhttp_request *req, kve_conn_t *c, int status,
    const char *type, const void *data, size_t len);
void kve_http_json(struct evhttp_request *req, kve_conn_t *c, int status,
    kve_buf_t *b);
void kve_http_error(struct evhttp_request *req, kve_conn_t *c, int status,
    kve_api_e api, const char *type, const char *message);
void kve_http_headers(struct evhttp_request *req, kve_conn_t *c);
void kve_http_later(kve_conn_t *c, struct evhttp_request *req,
    double seconds, void (*handler)(kve_server_t *s, kve_conn_t *c,
    struct evhttp_request *req));
void kve_http_raw(kve_conn_t *c, const void *data, size_t len);
void kve_http_doom(kve_conn_t *c, int reset);
void kve_conns_kill(kve_server_t *s, const kve_conn_t *except);

/* engine_parse.c */

void kve_parse(kve_server_t *s, kve_api_e api, const char *data, size_t len,
    kve_parsed_t *p);
void kve_parse_free(kve_parsed_t *p);
void kve_parse_fail(kve_parsed_t *p, int status, const char *type,
    const char *fmt, ...) __attribute__((format(printf, 4, 5)));
uint32_t kve_tokens(const kve_options_t *opt, size_t bytes);

/* engine_convert.c */

void kve_convert_messages(kve_parsed_t *p);
void kve_convert_responses(kve_server_t *s, kve_parsed_t *p);

/* engine_render.c */

typedef struct {
    int                 image_bytes;
    int                 thinking;           /* -1: not said */
    const char         *effort;
    const cJSON        *documents;
    unsigned            no_generation_prompt:1;
    unsigned            continue_final:1;
} kve_render_t;

void kve_render_messages(kve_buf_t *b, const cJSON *messages,
    const cJSON *tools, const kve_render_t *how);
void kve_render_ids(kve_buf_t *b, const cJSON *ids, int bytes_per_token);

/* engine_job.c */

void kve_job_create(kve_server_t *s, kve_conn_t *c,
    struct evhttp_request *req, kve_api_e api, const char *path);
void kve_job_gone(kve_job_t *job, int killed);
void kve_job_headers(kve_job_t *job);
void kve_job_error(kve_job_t *job, int status, const char *type,
    const char *message);
void kve_job_send_end(kve_job_t *job);
void kve_job_end(kve_job_t *job, int status, const char *how);
void kve_log_free(kve_server_t *s);

/* engine_sub.c */

void kve_sub_init(kve_job_t *job, int i, const kve_buf_t *prompt);

/* engine_run.c */

void kve_server_run(kve_server_t *s, double now);
void kve_stream_flush(kve_job_t *job);

/* engine_reply.c */

void kve_reply_build(kve_reply_t *reply, uint64_t seed, uint32_t tokens,
    int bytes_per_token, uint32_t reasoning, const char *tool);
void kve_reply_free(kve_reply_t *reply);
void kve_reply_part(kve_buf_t *b, const kve_sub_t *sub, kve_part_e kind);
int kve_reply_has(const kve_sub_t *sub, kve_part_e kind);
uint32_t kve_reply_prompt_tokens(const kve_job_t *job);
uint32_t kve_reply_cached_tokens(const kve_job_t *job);
uint32_t kve_reply_output_tokens(const kve_job_t *job);
void kve_reply_usage(kve_buf_t *b, kve_job_t *job);
void kve_reply_responses_usage(kve_buf_t *b, kve_job_t *job);
void kve_reply_messages_usage(kve_buf_t *b, kve_job_t *job, int at_start);
void kve_reply_responses_object(kve_buf_t *b, kve_job_t *job,
    const char *status);
void kve_reply_item(kve_buf_t *b, kve_job_t *job, kve_sub_t *sub,
    kve_part_e kind, int whole);
void kve_reply_timings(kve_buf_t *b, kve_job_t *job, const kve_sub_t *sub);
void kve_reply_meta(kve_buf_t *b, kve_job_t *job, const kve_sub_t *sub);
void kve_reply_orca(kve_job_t *job);
const char *kve_reply_stop_reason(const kve_sub_t *sub);

/* engine_whole.c */

void kve_reply_frame(kve_job_t *job, const char *object);
void kve_reply_body(kve_job_t *job, kve_buf_t *b);

/* engine_stream.c */

void kve_stream_open(kve_job_t *job);
void kve_stream_admitted(kve_job_t *job, kve_sub_t *sub);
void kve_stream_first(kve_job_t *job, kve_sub_t *sub);
void kve_stream_token(kve_job_t *job, kve_sub_t *sub, uint32_t n);
void kve_stream_finish(kve_job_t *job, kve_sub_t *sub);
void kve_stream_close(kve_job_t *job);
void kve_stream_error(kve_job_t *job, const char *message);

/* engine_fault.c */

kve_fault_e kve_fault_parse(const char *s, int *n);

/* non-zero: the job is no more */
int kve_fault_choose(kve_job_t *job);
int kve_fault_at_start(kve_job_t *job);
int kve_fault_at_reply(kve_job_t *job, const kve_buf_t *body);

/* 1: the job is no more, -1: the token is not to be sent before *until */
int kve_fault_at_token(kve_job_t *job, kve_sub_t *sub, double now,
    double *until);
int kve_fault_types(const cJSON *list, unsigned *types);
const char *kve_fault_type_name(int i);

/* engine_control.c */

void kve_control_handle(kve_server_t *s, kve_conn_t *c,
    struct evhttp_request *req);
void kve_admin_handle(kve_server_t *s, kve_conn_t *c,
    struct evhttp_request *req);
int kve_fake_set(kve_server_t *s, const cJSON *fake);

/* engine_metrics.c */

void kve_metrics_init(kve_server_t *s);
void kve_metrics_handle(kve_server_t *s, kve_conn_t *c,
    struct evhttp_request *req);
void kve_metrics_done(kve_server_t *s, kve_sub_t *sub);
void kve_metrics_free(kve_server_t *s);

/* engine_info.c */

int kve_info_handle(kve_server_t *s, kve_conn_t *c,
    struct evhttp_request *req, const char *path);

/* engine_store.c */

/* takes the messages; an id that is there already is given new contents */
void kve_store_add(kve_server_t *s, const char *id, cJSON *messages,
    const char *object);
kve_stored_t *kve_store_find(kve_server_t *s, const char *id);
void kve_store_drop(kve_stored_t *r);
void kve_store_free(kve_server_t *s);
int kve_store_handle(kve_server_t *s, kve_conn_t *c,
    struct evhttp_request *req, const char *path);


#endif
