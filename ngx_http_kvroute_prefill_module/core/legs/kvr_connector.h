
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_CONNECTOR_H_INCLUDED_
#define _KVR_CONNECTOR_H_INCLUDED_


/*
 * How a prompt's keys and values come from the server that computed them to the
 * one that decodes: a row for each way that engines know.
 *
 * A request that goes this way has a leg for each server.  The prefill leg asks
 * for the prompt to be computed and a single token, the decode leg for the
 * answer.  The row says which legs nginx makes (the plan), and what they have
 * beside the client's own members.
 *
 *     header    the client's request goes to a decode server's sidecar (llm-d),
 *               which makes both legs: the prefill server is named in a header
 *     store     the servers share a store (LMCache): the prefill server puts it
 *               there, and the decode server finds it by itself
 *     nixl      vLLM's NixlConnector: the prefill server answers with a
 *               descriptor, a member that the decode leg repeats byte for
 *               byte.  It is good for one
 *               request and for seconds: whoever reads by it later reads what
 *               is somebody else's by then
 *     sglang    SGLang: both legs are sent at once, and both name the place where
 *               their servers meet: the prefill server's host, a port of its
 *               own, and a room, a number that no two requests have alike.
 *               Either server waits for the other one, for minutes if it must,
 *               and serves no request alone
 *     mooncake  vLLM's MooncakeConnector: the same with servers that can do
 *               without, and the prefill leg asks for one token.  The prefill server is
 *               known by its address: that is its engine_id
 *
 * Sources: vLLM, docs/features/nixl_connector_usage.md and its
 * toy_proxy_server.py; llm-d, the sidecar's x-prefiller-host-port; LMCache's
 * shared storage examples; what other routers send (t/legs).
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
    KVR_CONNECTOR_MAX
} kvr_connector_e;


/* what a leg is for; the decode leg is the client's own request */
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
    uint32_t           port;       /* that it is met at */
    uint64_t           room;       /* 63 bits of it are used */
} kvr_meeting_t;


/* what is appended to the body of a leg, as kvr_connector_ask() does */
typedef size_t (*kvr_connector_meet_pt)(kvr_endpoint_e endpoint,
    const kvr_meeting_t *meeting, kvr_leg_e role, unsigned kept, char *dst);


/* lists of names end with NULL */
typedef struct {
    const char            *name;   /* as configured */
    const kvr_leg_e       *plan;   /* legs that are made here, in their order;
                                      the decode leg ends it */
    const char            *ask;    /* members of the prefill leg, or NULL */
    const char            *member; /* of its answer, which the decode leg
                                      repeats; or NULL */
    const char *const     *paths;  /* ends of those that may go this way */

    /* members that the prefill leg has its own values for, or not at all */

    const kvr_json_names_t *limits;

    /* NULL: one leg follows the other; else they are concurrent */

    kvr_connector_meet_pt  meet;

    unsigned               alone:1;  /* any server can do all of it as well */
} kvr_connector_t;


/* a number below KVR_CONNECTOR_MAX */
const kvr_connector_t *kvr_connector(kvr_connector_e connector);

/*
 * Whether a prompt may go this way, by the end of its path: to endpoints whose
 * limits are known, and stand at the root of the body; or which know of meetings.
 */
int kvr_connector_serves(const kvr_connector_t *c, const uint8_t *path,
    size_t len);

/*
 * Members that tell engines of transfers: no client may send them, since an
 * engine connects to the host that they name.  Engines read them at the root,
 * and in members that they merge into their own parameters: SGLang's
 * "parameters", vLLM's "vllm_xargs" and "sampling_params.extra_args".
 */
const kvr_json_names_t *kvr_connector_private(void);

/*
 * Writes what is appended to the body of a leg before the decode leg: one token,
 * in one piece, and "ask".  It begins with a comma if kept is set, and ends with
 * the closing brace.  Returns its length, at most KVR_CONNECTOR_LEN; of a meeting
 * at most that and twice the server's.
 */
#define KVR_CONNECTOR_LEN  256

size_t kvr_connector_ask(const kvr_connector_t *c, kvr_leg_e role,
    kvr_endpoint_e endpoint, unsigned kept, char *dst);


#endif /* _KVR_CONNECTOR_H_INCLUDED_ */
