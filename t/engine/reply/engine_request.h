/*
 * A running request.  Its sequences are the model's requests; a request has
 * several for several replies, or several prompts.
 */

#ifndef KVE_ENGINE_REQUEST_H
#define KVE_ENGINE_REQUEST_H


#include <time.h>

#include "base/engine_fault.h"
#include "base/engine_http.h"
#include "body/engine_parsed.h"
#include "model/replica.h"


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


/* the reply as the template would render it, and its visible parts */

typedef struct {
    kve_buf_t           text;
    kve_part_t          parts[3];
    int                 nparts;
    char               *tool_name;
    char                tool_id[32];
    const char         *finish;             /* stop, length, tool_calls */
} kve_reply_t;


/* a sequence; a request can have several (n, arrays of prompts) */

typedef struct {
    kve_req_t           req;
    kve_job_t          *job;
    int                 index;
    uint64_t           *hashes;
    kve_reply_t         reply;
    uint32_t            sent;               /* tokens */
    double             *times;              /* times of its last tokens */
    uint32_t            times_from;
    unsigned            failed:1;           /* by the model */
    unsigned            done:1;             /* by the model */
    unsigned            finished:1;         /* by us */
    unsigned            begun:1;
    unsigned            closed:1;           /* finish reason sent */
    int                 part;               /* last one streamed, or -1 */
    int                 block;              /* its index */
    double              last;               /* real time of last token */
} kve_sub_t;


struct kve_job_s {
    kve_server_t       *server;
    kve_conn_t         *conn;
    struct evhttp_request  *http;
    kve_job_t          *prev, *next;
    kve_parsed_t        parsed;
    kve_sub_t          *subs;
    int                 nsubs;
    int                 rank;               /* its rank */
    int                 lora;               /* index, or -1 */

    char                id[48];
    char               *request_id;         /* X-Request-Id */
    char               *session;            /* X-Session-ID, for KV events */
    const char         *path;
    uint64_t            body_bytes;
    time_t              created;
    double              arrived;            /* real */
    double              first;              /* real, of the first token */
    uint64_t            transfer;           /* number of its transfer, or 0 */
    kve_replica_t      *source;             /* fetches from it, or NULL */
    kve_meet_t         *meet;               /* reply/engine_meet.h, or NULL */
    int                 leg;                /* its leg there */
    int                 meet_port;          /* of the other one, if known */
    double              arrives;            /* virtual: end of the transfer */
    int64_t             want_output;        /* X-Engine-Output-Tokens */
    int64_t             want_reasoning;
    int                 want_tool;

    kve_fault_e         fault;
    int                 fault_n;
    double              stall_ms;
    double              stalled;            /* real; 0: no stall, -1: over */

    struct event       *timer;              /* delay, or ping */
    int                 sequence;           /* of Responses events */
    kve_buf_t           out;                /* chunk under construction */
    kve_buf_t           head;               /* JSON around "choices" */
    kve_buf_t           tail;

    unsigned            started:1;          /* headers sent */
    unsigned            begun:1;            /* a token sent */
    unsigned            checked:1;          /* can start */
    unsigned            submitted:1;
    unsigned            is_stream:1;        /* counted in open_streams */
    unsigned            background:1;       /* replied to already */
    unsigned            corrupt:1;          /* uses another's transfer */
    unsigned            given:1;            /* transferred: nothing to compute */
};


#endif
