
/*
 * Copyright (C) kvroute contributors
 */


/* Removed directives and parameters, and what to write instead. */


#include "conf/ngx_http_kvroute_conf_param.h"


#define NGX_HTTP_KVROUTE_CONF_OLD_POLICY                                      \
    "kvroute kvroute_upstream kvroute_policy"
#define NGX_HTTP_KVROUTE_CONF_OLD_UPSTREAM                                    \
    "kvroute kvroute_shadow kvroute_upstream"
#define NGX_HTTP_KVROUTE_CONF_OLD_PROBES  "kvroute_probe kvroute_health"


static const char *ngx_http_kvroute_conf_old_find(ngx_str_t *directive,
    ngx_str_t *word);


static const struct {
    const char  *directive;
    const char  *param;   /* or NULL: the directive */
    const char  *now;
} ngx_http_kvroute_conf_old_list[] = {

    { "kvroute_bypass", NULL,
      "write \"if ($VARIABLE) { kvroute_policy off; }\"" },
    { "kvroute_deadline", NULL, "write \"kvroute_request deadline=VALUE;\"" },
    { "kvroute_early", NULL,
      "remove it, \"proxy_set_header\" has the decision without it" },
    { "kvroute_inspect", NULL,
      "remove it, a variable in \"proxy_pass\" has the body without it" },
    { "kvroute_learn_reply", NULL, "remove it, replies are always learned" },
    { "kvroute_max_body", NULL, "write \"client_max_body_size SIZE;\"" },
    { "kvroute_priority", NULL,
      "write \"kvroute_request priority=VALUE max_priority=CLASS;\"" },
    { "kvroute_queue_for", NULL, "write \"kvroute_request upstream=VALUE;\"" },
    { "kvroute_tenant", NULL,
      "write \"kvroute_request tenant=VALUE weight=NUMBER name=TEXT;\"" },

    { "kvroute_zone", "block=", "remove it, an entry is of 256 bytes" },
    { "kvroute_zone", "processes=",
      "remove it, the number follows \"worker_processes\"" },
    { NGX_HTTP_KVROUTE_CONF_OLD_UPSTREAM, "host=",
      "write \"capacity=SIZE+HOST\"" },
    { NGX_HTTP_KVROUTE_CONF_OLD_UPSTREAM, "disk=",
      "write \"capacity=SIZE+HOST+DISK\"" },
    { NGX_HTTP_KVROUTE_CONF_OLD_UPSTREAM, "target_ttft=",
      "write half of it as \"max_pending=\", such as \"max_pending=500ms\"" },
    { NGX_HTTP_KVROUTE_CONF_OLD_POLICY, "by=",
      "remove it, \"least_request\" compares requests in flight" },
    { NGX_HTTP_KVROUTE_CONF_OLD_POLICY, "strict=",
      "remove it, a session leaves a server that is full or gone" },
    { NGX_HTTP_KVROUTE_CONF_OLD_POLICY, "threshold=",
      "remove it, short matches do not decide" },
    { NGX_HTTP_KVROUTE_CONF_OLD_POLICY, "balance_",
      "remove it, the cost of a server includes its load" },
    { NGX_HTTP_KVROUTE_CONF_OLD_POLICY, "chunks=",
      "remove it, engines reuse prefixes only" },
    { "kvroute_probe", "port=", "write \"url=:PORT\"" },
    { "kvroute_probe", "addr=", "write \"url=ADDRESS:PORT\"" },
    { "kvroute_probe", "path=", "write \"url=/PATH\"" },
    { "kvroute_probe", "engine=", "write \"kvroute_engine NAME;\"" },
    { "kvroute_probe", "mandatory",
      "remove it, \"kvroute_health\" finds engines that do not respond" },
    { NGX_HTTP_KVROUTE_CONF_OLD_PROBES, "ssl",
      "write \"kvroute_engine ssl;\" beside it" },
    { NGX_HTTP_KVROUTE_CONF_OLD_PROBES, "name=",
      "write \"kvroute_engine ssl name=HOST;\" beside it" },
    { NGX_HTTP_KVROUTE_CONF_OLD_PROBES, "verify=",
      "write \"kvroute_engine ssl trusted=FILE name=HOST;\" beside it" },
    { NGX_HTTP_KVROUTE_CONF_OLD_PROBES, "trusted=",
      "write \"kvroute_engine ssl trusted=FILE name=HOST;\" beside it" },
    { NGX_HTTP_KVROUTE_CONF_OLD_PROBES, "header=",
      "write \"kvroute_engine header=LINE;\" beside it" },
    { NGX_HTTP_KVROUTE_CONF_OLD_PROBES, "header_file=",
      "write \"kvroute_engine header=@FILE;\" beside it" },
    { "kvroute_health", "port=", "remove it, checks use the server's port" },
    { "kvroute_health", "status=", "remove it, 200 to 299 pass" },
    { "kvroute_health", "passes=", "remove it, two checks must pass" },
    { "kvroute_eject", "max=", "remove it, half of the servers may be out" },
    { "kvroute_eject", "share=", "remove it, the share is 50%" },
    { "kvroute_eject", "window=", "remove it, the window is 30s" },
    { "kvroute_eject", "slow=", "remove it, the factor is 6" },
    { "kvroute_queue", "max_bytes=",
      "remove it, \"max=\" and \"client_max_body_size\" limit the bytes" },
    { "kvroute_queue", "status=",
      "remove it, \"error_page 429 =503 @LOCATION;\" changes the status" },
    { "kvroute_queue", "order=",
      "remove it, equal requests wait in the order of arrival" },
    { "kvroute_share", "interval=", "remove it, updates are sent after 5ms" },
    { "kvroute_share", "lease=", "remove it, the lease is 2500ms" },
    { "kvroute_share", "stream=",
      "remove it, the name of the zone is that of the stream" },
    { "kvroute_share", "verify=", "write \"trusted=off\"" },
    { "kvroute_events", "topic=", "remove it, all topics are read" },
    { "kvroute_events", "ranks=", "write a range, such as \"port=5557-5560\"" },
    { "kvroute_events", "session=",
      "remove it, \"proxy_set_header X-Session-ID $request_id;\" is enough" },
    { "kvroute_prefill", "bootstrap_port=",
      "write \"connector=NAME:PORT\", as \"connector=sglang:8998\"" },
    { "kvroute_prefill", "when=",
      "write \"min=SIZE!\", as \"min=8k!\", for \"always\"" },
    { "kvroute_prefill", "tries=", "remove it, two servers are tried" },
    { "kvroute_prefill", "lease=", "remove it, the lease is 10s" },
    { "kvroute_prefill", "max_params=", "remove it, the limit is 1m" },
    { "kvroute_continue", "max=", "remove it, the limit is 1m" },
    { "kvroute_first_token", "hedge=",
      "write \"kvroute_first_token TIME PERCENT;\", as \"auto 5%\"" },
    { "kvroute_continue", "tries=", "write \"kvroute_continue NUMBER;\"" },
    { "kvroute_budget", "timeout=", "write \"over=TIME\", as \"over=30s\"" }
};


char *
ngx_http_kvroute_conf_old(ngx_conf_t *cf, ngx_command_t *cmd, void *conf)
{
    ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                       "there is no directive \"%V\" any more: %s", &cmd->name,
                       ngx_http_kvroute_conf_old_find(&cmd->name, NULL));

    return NGX_CONF_ERROR;
}


const char *
ngx_http_kvroute_conf_old_param(ngx_conf_t *cf, ngx_str_t *word)
{
    ngx_str_t  *value;

    value = cf->args->elts;

    return ngx_http_kvroute_conf_old_find(&value[0], word);
}


/* word: a parameter, or NULL */
static const char *
ngx_http_kvroute_conf_old_find(ngx_str_t *directive, ngx_str_t *word)
{
    size_t       len;
    ngx_uint_t   i;
    const char  *p, *param;

    for (i = 0; i < kvr_nelts(ngx_http_kvroute_conf_old_list); i++) {

        param = ngx_http_kvroute_conf_old_list[i].param;

        if (param
            ? word == NULL
              || ngx_strncmp(word->data, param, ngx_strlen(param)) != 0
            : word != NULL)
        {
            continue;
        }

        p = ngx_http_kvroute_conf_old_list[i].directive;

        for ( /* void */ ; *p; p += len) {

            p += strspn(p, " ");
            len = strcspn(p, " ");

            if (directive->len == len
                && ngx_strncmp(directive->data, p, len) == 0)
            {
                return ngx_http_kvroute_conf_old_list[i].now;
            }
        }
    }

    return NULL;
}
