
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_CONNECTOR_H_INCLUDED_
#define _KVR_CONNECTOR_H_INCLUDED_


/*
 * How the KV cache of a prompt gets from the prefill server to the decode
 * server: one row for each connector of the engines.
 *
 * Such a request has a leg for each server.  The prefill leg requests the
 * prompt and a single token, the decode leg the answer.  The row has the plan,
 * which lists the legs that nginx makes, and the members that nginx adds to
 * each leg.
 *
 *     header    nginx sends the client's request to the sidecar of a decode
 *               server (llm-d), with a header that names the prefill server;
 *               the sidecar makes both legs
 *     store     the servers share a store (LMCache): the prefill server writes
 *               to it, and the decode server finds the entries by itself
 *     nixl      vLLM's NixlConnector: the prefill server answers with a
 *               descriptor, a member that the decode leg repeats byte for byte.
 *               It is valid for one request and some seconds; used later, it
 *               names memory of another request
 *     sglang    SGLang: both legs are sent at once and name the place where
 *               their servers meet: the prefill server's host, a port of its
 *               own, and a room, a number unique to the request.  Each server
 *               waits for the other, for minutes if necessary, and cannot serve
 *               a request alone
 *     mooncake  vLLM's MooncakeConnector: as sglang, but a server can serve a
 *               request alone, and the prefill leg asks for one token.  The
 *               prefill server's address is its engine_id
 *     pull      vLLM's P2P tier: there is one leg.  Its body names another
 *               server of the same upstream, which the engine asks for the part
 *               of the prompt that it lacks.  A miss is computed
 *
 * Sources: vLLM, docs/features/nixl_connector_usage.md and its
 * toy_proxy_server.py, and vllm/v1/kv_offload/tiering/p2p of 0.32; llm-d, the
 * sidecar's x-prefiller-host-port; LMCache's shared storage examples; requests
 * of other routers (t/legs).
 */


#include "core/base/kvr_core.h"
#include "core/prompt/kvr_endpoint.h"
#include "core/text/kvr_json.h"


typedef enum {
    KVR_CONNECTOR_NIXL = 0,
    KVR_CONNECTOR_STORE,
    KVR_CONNECTOR_HEADER,
    KVR_CONNECTOR_SGLANG,
    KVR_CONNECTOR_MOONCAKE,
    KVR_CONNECTOR_PULL,
    KVR_CONNECTOR_MAX
} kvr_connector_e;


/* roles of legs; the decode leg is the client's request */
typedef enum {
    KVR_LEG_PREFILL = 0,
    KVR_LEG_DECODE,
    KVR_LEGS
} kvr_leg_e;


/* where the servers of two concurrent legs meet */
typedef struct {
    const uint8_t     *server;     /* the prefill server's address */
    size_t             server_len;
    size_t             host_len;   /* without its port, as in a URL */
    uint32_t           port;       /* for the meeting */
    uint64_t           room;       /* 63 bits of it are used */
} kvr_meeting_t;


/* writes the members to append to the body of a leg: kvr_connector_ask() */
typedef size_t (*kvr_connector_meet_pt)(kvr_endpoint_e endpoint,
    const kvr_meeting_t *meeting, kvr_leg_e role, unsigned kept, char *dst);


/* lists of names end with NULL */
typedef struct {
    const char            *name;   /* as configured */
    const kvr_leg_e       *plan;   /* legs that nginx makes, in their order;
                                      the decode leg is the last */
    const char            *ask;    /* members of the prefill leg, or NULL */
    const char            *member; /* of its answer, repeated in the decode leg;
                                      or NULL */
    const char *const     *paths;  /* ends of supported paths */

    /* members removed from the prefill leg, some of which get new values */

    const kvr_json_names_t *limits;

    /* both legs at once; NULL: one leg after the other */

    kvr_connector_meet_pt  meet;

    /* a single leg, which names the server to fetch from; or NULL */

    kvr_connector_meet_pt  pull;

    unsigned               alone:1;  /* a server can serve a request alone */
} kvr_connector_t;


/* Returns a connector's row. */
const kvr_connector_t *kvr_connector(kvr_connector_e connector);

/*
 * Returns whether a connector supports an endpoint, by the end of its path:
 * the endpoint has its limits at the root of the body, or supports meetings.
 */
int kvr_connector_serves(const kvr_connector_t *c, const uint8_t *path,
    size_t len);

/*
 * Returns the members that control transfers.  No client may send them, since
 * an engine connects to the host that they name.  Engines read them at the
 * root and in members that they merge into their own parameters: SGLang's
 * "parameters", vLLM's "vllm_xargs" and "sampling_params.extra_args".
 */
const kvr_json_names_t *kvr_connector_private(void);

/*
 * Writes the members to append to the body of a leg before the decode leg: a
 * limit of one token, no stream, and "ask".  It begins with a comma if kept is
 * set, and ends with the closing brace.  Returns its length, at most
 * KVR_CONNECTOR_LEN; for a meeting twice the length of the server's address
 * more.
 */
#define KVR_CONNECTOR_LEN  256

size_t kvr_connector_ask(const kvr_connector_t *c, kvr_endpoint_e endpoint,
    unsigned kept, char *dst);


#endif /* _KVR_CONNECTOR_H_INCLUDED_ */
