
/*
 * Copyright (C) kvroute contributors
 */


#include "core/legs/kvr_connector.h"


static size_t kvr_connector_meet_sglang(kvr_endpoint_e endpoint,
    const kvr_meeting_t *meeting, kvr_leg_e role, unsigned kept, char *dst);
static size_t kvr_connector_meet_mooncake(kvr_endpoint_e endpoint,
    const kvr_meeting_t *meeting, kvr_leg_e role, unsigned kept, char *dst);
static size_t kvr_connector_pull(kvr_endpoint_e endpoint,
    const kvr_meeting_t *meeting, kvr_leg_e role, unsigned kept, char *dst);
static char *kvr_connector_comma(char *dst, unsigned kept);
static char *kvr_connector_token(char *dst, kvr_endpoint_e endpoint);
static char *kvr_connector_put(char *dst, const char *text);
static char *kvr_connector_bytes(char *dst, const uint8_t *p, size_t n);


/*
 * vLLM accepts the two flags alone.  The others are those that its own proxy
 * sends, in case a version requires them.
 */
#define KVR_CONNECTOR_NIXL_ASK                                                \
    ",\"kv_transfer_params\":{\"do_remote_decode\":true,"                     \
    "\"do_remote_prefill\":false,\"remote_engine_id\":null,"                  \
    "\"remote_block_ids\":null,\"remote_host\":null,\"remote_port\":null}"


/* ends of paths: an ingress may add a prefix */

static const char *const  kvr_connector_openai[] = {
    "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses",
    NULL
};

static const char *const  kvr_connector_sglang[] = {
    "/v1/completions", "/v1/chat/completions", "/generate", NULL
};


static const char *const  kvr_connector_limits[] = {
    "stream", "stream_options", "max_tokens", "max_completion_tokens",
    "max_output_tokens", "min_tokens", "min_completion_tokens", NULL
};

static const kvr_json_names_t  kvr_connector_one = {
    .name = kvr_connector_limits
};

static const char *const  kvr_connector_none[] = { NULL };

/* a prefill server of SGLang stops by itself before it decodes */

static const kvr_json_names_t  kvr_connector_all = {
    .name = kvr_connector_none
};


static const kvr_leg_e  kvr_connector_both[] = {
    KVR_LEG_PREFILL, KVR_LEG_DECODE
};

/* a sidecar makes the prefill leg */
static const kvr_leg_e  kvr_connector_decode[] = { KVR_LEG_DECODE };


static const kvr_connector_t  kvr_connectors[] = {

    [KVR_CONNECTOR_NIXL] = {
        .name = "nixl", .paths = kvr_connector_openai,
        .limits = &kvr_connector_one, .plan = kvr_connector_both, .alone = 1,
        .ask = KVR_CONNECTOR_NIXL_ASK, .member = "kv_transfer_params" },

    [KVR_CONNECTOR_STORE] = {
        .name = "store", .paths = kvr_connector_openai,
        .limits = &kvr_connector_one, .plan = kvr_connector_both, .alone = 1 },

    [KVR_CONNECTOR_HEADER] = {
        .name = "header", .paths = kvr_connector_openai,
        .limits = &kvr_connector_one, .plan = kvr_connector_decode,
        .alone = 1 },

    [KVR_CONNECTOR_SGLANG] = {
        .name = "sglang", .paths = kvr_connector_sglang,
        .limits = &kvr_connector_all, .plan = kvr_connector_both,
        .meet = kvr_connector_meet_sglang },

    [KVR_CONNECTOR_MOONCAKE] = {
        .name = "mooncake", .paths = kvr_connector_openai,
        .limits = &kvr_connector_one, .plan = kvr_connector_both, .alone = 1,
        .meet = kvr_connector_meet_mooncake },

    [KVR_CONNECTOR_PULL] = {
        .name = "pull", .paths = kvr_connector_openai,
        .limits = &kvr_connector_all, .plan = kvr_connector_decode, .alone = 1,
        .pull = kvr_connector_pull }
};

_Static_assert(kvr_nelts(kvr_connectors) == KVR_CONNECTOR_MAX, "connectors");


static const char *const  kvr_connector_privates[] = {
    "kv_transfer_params", "ec_transfer_params", "bootstrap_host",
    "bootstrap_port", "bootstrap_room", "bootstrap_pair_key",
    "disaggregated_params", "disagg_prefill_dp_rank", "decode_tp_size", NULL
};

/* members with the client's own text: prompts, schemas of tools, labels */

static const char *const  kvr_connector_content[] = {
    "messages", "prompt", "input", "text", "tools", "functions",
    "response_format", "metadata", NULL
};

static const kvr_json_names_t  kvr_connector_never = {
    .name = kvr_connector_privates,
    .first = "kebd",
    .content = kvr_connector_content
};


const kvr_connector_t *
kvr_connector(kvr_connector_e connector)
{
    return &kvr_connectors[connector];
}


int
kvr_connector_serves(const kvr_connector_t *c, const uint8_t *path,
    size_t len)
{
    size_t              n;
    const char *const  *end;

    while (len && path[len - 1] == '/') {
        len--;
    }

    for (end = c->paths; *end; end++) {
        n = strlen(*end);

        if (len >= n && memcmp(path + len - n, *end, n) == 0) {
            return 1;
        }
    }

    return 0;
}


const kvr_json_names_t *
kvr_connector_private(void)
{
    return &kvr_connector_never;
}


size_t
kvr_connector_ask(const kvr_connector_t *c, kvr_endpoint_e endpoint,
    unsigned kept, char *dst)
{
    char  *p;

    p = kvr_connector_comma(dst, kept);
    p = kvr_connector_token(p, endpoint);
    p = kvr_connector_put(p, c->ask ? c->ask : "");
    p = kvr_connector_put(p, "}");

    return (size_t) (p - dst);
}


static size_t
kvr_connector_meet_sglang(kvr_endpoint_e endpoint,
    const kvr_meeting_t *meeting, kvr_leg_e role, unsigned kept, char *dst)
{
    char  *p;

    (void) endpoint;
    (void) role;

    p = kvr_connector_comma(dst, kept);
    p = kvr_connector_put(p, "\"bootstrap_host\":\"");
    p = kvr_connector_bytes(p, meeting->server, meeting->host_len);
    p = kvr_connector_put(p, "\",\"bootstrap_port\":");
    p += kvr_decimal((uint8_t *) p, meeting->port);
    p = kvr_connector_put(p, ",\"bootstrap_room\":");
    p += kvr_decimal((uint8_t *) p, meeting->room >> 1);
    p = kvr_connector_put(p, "}");

    return (size_t) (p - dst);
}


static size_t
kvr_connector_meet_mooncake(kvr_endpoint_e endpoint,
    const kvr_meeting_t *meeting, kvr_leg_e role, unsigned kept, char *dst)
{
    char  *p;

    p = kvr_connector_comma(dst, kept);

    if (role == KVR_LEG_PREFILL) {
        p = kvr_connector_token(p, endpoint);
        p = kvr_connector_put(p, ",\"kv_transfer_params\":{"
                              "\"do_remote_decode\":true,"
                              "\"do_remote_prefill\":false");

    } else {
        p = kvr_connector_put(p, "\"kv_transfer_params\":{"
                              "\"do_remote_decode\":false,"
                              "\"do_remote_prefill\":true,"
                              "\"remote_bootstrap_addr\":\"http://");
        p = kvr_connector_bytes(p, meeting->server, meeting->host_len);
        p = kvr_connector_put(p, ":");
        p += kvr_decimal((uint8_t *) p, meeting->port);
        p = kvr_connector_put(p, "\",\"remote_engine_id\":\"");
        p = kvr_connector_bytes(p, meeting->server, meeting->server_len);
        p = kvr_connector_put(p, "\"");
    }

    p = kvr_connector_put(p, ",\"transfer_id\":\"xfer-");
    p += kvr_decimal((uint8_t *) p, meeting->room >> 1);
    p = kvr_connector_put(p, "\"}}");

    return (size_t) (p - dst);
}


static size_t
kvr_connector_pull(kvr_endpoint_e endpoint, const kvr_meeting_t *meeting,
    kvr_leg_e role, unsigned kept, char *dst)
{
    char  *p;

    (void) endpoint;
    (void) role;

    p = kvr_connector_comma(dst, kept);
    p = kvr_connector_put(p, "\"kv_transfer_params\":{"
                          "\"remote_kv_source\":{\"kv_request_id\":\"kvroute-");
    p += kvr_decimal((uint8_t *) p, meeting->room >> 1);
    p = kvr_connector_put(p, "\",\"remote_host\":\"");
    p = kvr_connector_bytes(p, meeting->server, meeting->host_len);
    p = kvr_connector_put(p, "\",\"remote_port\":");
    p += kvr_decimal((uint8_t *) p, meeting->port);
    p = kvr_connector_put(p, "}}}");

    return (size_t) (p - dst);
}


/* writes a comma if other members stay before */
static char *
kvr_connector_comma(char *dst, unsigned kept)
{
    return kept ? kvr_connector_put(dst, ",") : dst;
}


/* writes a limit of one token, and no stream */
static char *
kvr_connector_token(char *dst, kvr_endpoint_e endpoint)
{
    dst = kvr_connector_put(dst, "\"stream\":false,");

    return kvr_connector_put(dst, endpoint == KVR_ENDPOINT_RESPONSES
                             ? "\"max_output_tokens\":1" : "\"max_tokens\":1");
}


static char *
kvr_connector_put(char *dst, const char *text)
{
    return kvr_connector_bytes(dst, (const uint8_t *) text, strlen(text));
}


static char *
kvr_connector_bytes(char *dst, const uint8_t *p, size_t n)
{
    memcpy(dst, p, n);

    return dst + n;
}
