
/*
 * Copyright (C) kvroute contributors
 */


#include "core/legs/kvr_connector.h"


static char *kvr_connector_put(char *dst, const char *text);
static char *kvr_connector_bytes(char *dst, const uint8_t *p, size_t n);
static char *kvr_connector_number(char *dst, uint64_t number);


/*
 * vLLM takes the two flags alone as well; the others are what its own proxy
 * sends, and what a version that insists on them would miss.
 */
#define KVR_CONNECTOR_NIXL_ASK                                                \
    ",\"kv_transfer_params\":{\"do_remote_decode\":true,"                     \
    "\"do_remote_prefill\":false,\"remote_engine_id\":null,"                  \
    "\"remote_block_ids\":null,\"remote_host\":null,\"remote_port\":null}"



static const char *const  kvr_connector_path[] = {
    "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses",
    "/generate"
};

/* bits of these */
#define KVR_CONNECTOR_PATHS         0x0f
#define KVR_CONNECTOR_SGLANG_PATHS  0x13


static const kvr_connector_t  kvr_connectors[] = {

    { "nixl",   KVR_CONNECTOR_NIXL_ASK, "kv_transfer_params",
      KVR_CONNECTOR_PATHS, 1, 0, 1, 0 },
    { "store",  NULL, NULL, KVR_CONNECTOR_PATHS, 1, 0, 1, 0 },
    { "header", NULL, NULL, KVR_CONNECTOR_PATHS, 0, 0, 1, 0 },
    { "sglang", NULL, NULL, KVR_CONNECTOR_SGLANG_PATHS, 1, 1, 0, 1 },
    { "mooncake", NULL, NULL, KVR_CONNECTOR_PATHS, 1, 1, 1, 0 }
};

_Static_assert(kvr_nelts(kvr_connectors) == KVR_CONNECTOR_MAX, "kvr_connectors");


static const char *const  kvr_connector_privates[] = {
    "kv_transfer_params", "bootstrap_host", "bootstrap_port", "bootstrap_room",
    "disaggregated_params", "disagg_prefill_dp_rank", NULL
};

static const char *const  kvr_connector_limit[] = {
    "stream", "stream_options", "max_tokens", "max_completion_tokens",
    "max_output_tokens", "min_tokens", "min_completion_tokens", NULL
};


const kvr_connector_t *
kvr_connector(kvr_connector_e connector)
{
    return &kvr_connectors[connector];
}


/* behind whatever an ingress puts before it */
int
kvr_connector_serves(const kvr_connector_t *c, const uint8_t *path,
    size_t len)
{
    size_t  i, n;

    while (len && path[len - 1] == '/') {
        len--;
    }

    for (i = 0; i < kvr_nelts(kvr_connector_path); i++) {
        n = strlen(kvr_connector_path[i]);

        if (len >= n && memcmp(path + len - n, kvr_connector_path[i], n) == 0) {
            return (c->paths >> i) & 1;
        }
    }

    return 0;
}


const char *const *
kvr_connector_private(void)
{
    return kvr_connector_privates;
}


const char *const *
kvr_connector_limits(const kvr_connector_t *c)
{
    return &kvr_connector_limit[c->whole ? kvr_nelts(kvr_connector_limit) - 1
                                         : 0];
}


size_t
kvr_connector_ask(const kvr_connector_t *c, kvr_endpoint_e endpoint,
    unsigned kept, char *dst)
{
    char  *p;

    p = kvr_connector_put(dst, kept ? ",\"stream\":false," : "\"stream\":false,");
    p = kvr_connector_put(p, endpoint == KVR_ENDPOINT_RESPONSES
                             ? "\"max_output_tokens\":1" : "\"max_tokens\":1");
    p = kvr_connector_put(p, c->ask ? c->ask : "");
    p = kvr_connector_put(p, "}");

    return (size_t) (p - dst);
}


size_t
kvr_connector_meet(const kvr_connector_t *c, kvr_endpoint_e endpoint,
    const kvr_meeting_t *meeting, unsigned leg, unsigned kept, char *dst)
{
    char  *p;

    if (c->whole) {
        p = kvr_connector_put(dst, &",\"bootstrap_host\":\""[!kept]);
        p = kvr_connector_bytes(p, meeting->server, meeting->host_len);
        p = kvr_connector_put(p, "\",\"bootstrap_port\":");
        p = kvr_connector_number(p, meeting->port);
        p = kvr_connector_put(p, ",\"bootstrap_room\":");
        p = kvr_connector_number(p, meeting->room >> 1);
        p = kvr_connector_put(p, "}");

        return (size_t) (p - dst);
    }

    if (leg == 0) {
        p = dst + kvr_connector_ask(c, endpoint, kept, dst) - 1;
        p = kvr_connector_put(p, ",\"kv_transfer_params\":{"
                              "\"do_remote_decode\":true,"
                              "\"do_remote_prefill\":false");

    } else {
        p = kvr_connector_put(dst, &",\"kv_transfer_params\":{"
                              "\"do_remote_decode\":false,"
                              "\"do_remote_prefill\":true,"
                              "\"remote_bootstrap_addr\":\"http://"[!kept]);
        p = kvr_connector_bytes(p, meeting->server, meeting->host_len);
        p = kvr_connector_put(p, ":");
        p = kvr_connector_number(p, meeting->port);
        p = kvr_connector_put(p, "\",\"remote_engine_id\":\"");
        p = kvr_connector_bytes(p, meeting->server, meeting->server_len);
        p = kvr_connector_put(p, "\"");
    }

    p = kvr_connector_put(p, ",\"transfer_id\":\"xfer-");
    p = kvr_connector_number(p, meeting->room >> 1);
    p = kvr_connector_put(p, "\"}}");

    return (size_t) (p - dst);
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


static char *
kvr_connector_number(char *dst, uint64_t number)
{
    size_t  i;
    char    digit[20];

    i = sizeof(digit);

    do {
        digit[--i] = (char) ('0' + number % 10);
        number /= 10;
    } while (number);

    memcpy(dst, digit + i, sizeof(digit) - i);

    return dst + sizeof(digit) - i;
}
