
/*
 * Copyright (C) kvroute contributors
 */


#include "core/legs/kvr_connector.h"


/*
 * vLLM takes the two flags alone as well; the others are what its own proxy
 * sends, and what a version that insists on them would miss.
 */
#define KVR_CONNECTOR_NIXL_ASK                                                \
    ",\"kv_transfer_params\":{\"do_remote_decode\":true,"                     \
    "\"do_remote_prefill\":false,\"remote_engine_id\":null,"                  \
    "\"remote_block_ids\":null,\"remote_host\":null,\"remote_port\":null}"


static const kvr_connector_t  kvr_connectors[] = {

    { "nixl",   KVR_CONNECTOR_NIXL_ASK, "kv_transfer_params", 1 },
    { "store",  NULL,                   NULL,                 1 },
    { "header", NULL,                   NULL,                 0 }
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


static const char *const  kvr_connector_paths[] = {
    "/v1/completions", "/v1/chat/completions", "/v1/messages", "/v1/responses"
};


const kvr_connector_t *
kvr_connector(kvr_connector_e connector)
{
    return &kvr_connectors[connector];
}


/* behind whatever an ingress puts before it */
int
kvr_connector_serves(const uint8_t *path, size_t len)
{
    size_t  i, n;

    while (len && path[len - 1] == '/') {
        len--;
    }

    for (i = 0; i < kvr_nelts(kvr_connector_paths); i++) {
        n = strlen(kvr_connector_paths[i]);

        if (len >= n && memcmp(path + len - n, kvr_connector_paths[i], n) == 0)
        {
            return 1;
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
kvr_connector_limits(void)
{
    return kvr_connector_limit;
}


size_t
kvr_connector_ask(const kvr_connector_t *c, kvr_endpoint_e endpoint,
    unsigned kept, char *dst)
{
    size_t       i, len, n;
    const char  *part[5];

    part[0] = kept ? "," : "";
    part[1] = "\"stream\":false,";
    part[2] = (endpoint == KVR_ENDPOINT_RESPONSES) ? "\"max_output_tokens\":1"
                                                   : "\"max_tokens\":1";
    part[3] = c->ask ? c->ask : "";
    part[4] = "}";

    for (i = 0, len = 0; i < kvr_nelts(part); i++) {
        n = strlen(part[i]);
        memcpy(dst + len, part[i], n);
        len += n;
    }

    return len;
}
