/*
 * A replica in its process, and the process, which has one thread.
 */

#ifndef KVE_ENGINE_SERVER_H
#define KVE_ENGINE_SERVER_H


#include "base/engine_options.h"
#include "model/replica.h"


#define KVE_STORED         256
#define KVE_CONN_SLOTS     256


struct evhttp_request;

typedef struct kve_engine_s  kve_engine_t;
typedef struct kve_server_s  kve_server_t;
typedef struct kve_conn_s    kve_conn_t;
typedef struct kve_job_s     kve_job_t;
typedef struct kve_events_s  kve_events_t;
typedef struct kve_transfer_s  kve_transfer_t;
typedef struct kve_meet_s      kve_meet_t;

/* answers a request, now or later */

typedef void (*kve_handler_pt)(kve_server_t *s, kve_conn_t *c,
    struct evhttp_request *req);


typedef struct {
    uint64_t            requests;
    uint64_t            generate_requests;
    uint64_t            body_bytes;
    uint64_t            completed;
    uint64_t            aborted;            /* the client left first */
    uint64_t            failed;             /* replied with an error */
    uint64_t            rejected;           /* of these: too many wait */
    uint64_t            prefills;           /* for another replica's decode */
    uint64_t            pulls;              /* of another replica's prefill */
    uint64_t            corrupt;            /* of these: invalid ones */
    uint64_t            transferred;        /* tokens received by transfers */
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
    cJSON              *messages;           /* to continue, or NULL */
} kve_stored_t;


struct kve_server_s {
    kve_engine_t       *engine;
    int                 index;
    int                 port;
    struct evhttp      *http;
    struct evhttp_bound_socket  *socket;
    struct event       *up;                 /* end of "down" */

    kve_replica_t      *model;              /* of rank 0 */
    kve_replica_t      *rank[KVE_RANKS];
    int                 ranks;
    int                 turn;               /* next rank */
    double              wake;               /* virtual */
    double              link;               /* virtual: end of its use */
    kve_job_t          *jobs;               /* generating */
    kve_handler_pt      handler;            /* of requests */
    kve_conn_t         *conns[KVE_CONN_SLOTS];
    uint32_t            nconns;
    uint32_t            open_requests;
    uint32_t            open_streams;

    kve_settings_t      settings;
    kve_counters_t      counters;
    uint64_t            random;
    double              started;            /* wall clock */
    double              ready;              /* monotonic: end of loading */
    uint32_t            restarts;

    kve_hist_t          ttft, itl, e2e, queue, prefill, decode;

    kve_buf_t           frozen;             /* metrics */
    uint64_t            steps_read;         /* by TensorRT-LLM's /metrics */

    kve_stored_t        stored[KVE_STORED];
    uint32_t            nstored;

    kve_events_t       *events;             /* NULL: nothing is published */

    kve_log_entry_t    *log;
    uint64_t            nlog;
};


struct kve_engine_s {
    struct event_base  *base;
    struct event       *tick;
    struct evbuffer    *chunk;
    kve_transfer_t     *transfers;          /* reply/engine_transfer.h */
    kve_meet_t         *meetings;           /* reply/engine_meet.h */
    int                 meetings_fd;        /* or -1 */
    kve_options_t       opt;
    kve_server_t       *servers;
    int                 nservers;
    double              start;              /* monotonic, virtual 0 */
    unsigned            exiting:1;
};


/* sums of all ranks */
void kve_server_stats(const kve_server_t *s, kve_stats_t *st);

/* the models' time, which runs at --speed */
double kve_virtual(kve_engine_t *e);

/* advances the models in this many seconds, unless something is due earlier */
void kve_engine_arm(kve_engine_t *e, double seconds);
void kve_engine_wake(kve_engine_t *e);

void kve_log_free(kve_server_t *s);


#endif
