
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Tells whether a request for an action comes from a page of another site.
 *
 * Actions are simple requests: a form on any page can make a browser send one,
 * with the operator's address and password.  So a browser must show that the
 * request comes from a page of this site.
 */


#include "status/ngx_http_kvroute_status.h"


static ngx_uint_t ngx_http_kvroute_api_site(ngx_http_request_t *r,
    u_char *data, size_t len);
static ngx_int_t ngx_http_kvroute_api_host(u_char *data, size_t len,
    ngx_int_t port, ngx_str_t *host);


/*
 * Returns why a request is taken for one of another site's page, or NULL.  A
 * page can neither set these headers nor remove them.  Browsers send
 * Sec-Fetch-Site over https and to localhost only, and Origin with each POST.
 * Other clients send none of them.
 */
const char *
ngx_http_kvroute_api_origin(ngx_http_request_t *r)
{
    ngx_http_variable_value_t  *v;

    static ngx_str_t  site = ngx_string("http_sec_fetch_site");
    static ngx_str_t  origin = ngx_string("http_origin");

    v = ngx_http_get_variable(r, &site, ngx_hash_key(site.data, site.len));

    if (v == NULL
        || (!v->not_found
            && !(v->len == 4 && ngx_strncmp(v->data, "none", 4) == 0)
            && !(v->len == 11 && ngx_strncmp(v->data, "same-origin", 11)
                                 == 0)))
    {
        return "the request comes from a page of another site, by its "
               "\"Sec-Fetch-Site\"";
    }

    v = ngx_http_get_variable(r, &origin,
                              ngx_hash_key(origin.data, origin.len));

    if (v == NULL
        || (!v->not_found
            && !ngx_http_kvroute_api_site(r, v->data, v->len)))
    {
        return "\"Origin\" differs from \"Host\": the request comes from a "
               "page of another site";
    }

    return NULL;
}


/*
 * Tells whether an Origin is the requested site.  A request without TLS can
 * have been https in front of another proxy, so the scheme is not compared.
 */
static ngx_uint_t
ngx_http_kvroute_api_site(ngx_http_request_t *r, u_char *data, size_t len)
{
    ngx_int_t  port, origin_port, host_port;
    ngx_str_t  origin, host, value;

    if (len > 7 && ngx_strncasecmp(data, (u_char *) "http://", 7) == 0) {
        port = 80;
        data += 7;
        len -= 7;

    } else if (len > 8 && ngx_strncasecmp(data, (u_char *) "https://", 8) == 0)
    {
        port = 443;
        data += 8;
        len -= 8;

    } else {
        return 0;
    }

    origin_port = ngx_http_kvroute_api_host(data, len, port, &origin);

    if (r->headers_in.host) {
        value = r->headers_in.host->value;

    } else {

        /* HTTP/3 stores it elsewhere */

        value.data = r->host_start;
        value.len = r->host_end - r->host_start;
    }

#if (NGX_HTTP_SSL)
    port = r->connection->ssl ? 443 : port;
#endif

    host_port = ngx_http_kvroute_api_host(value.data, value.len, port, &host);

    return origin_port != NGX_ERROR && origin_port == host_port
           && origin.len == host.len
           && ngx_strncasecmp(origin.data, host.data, host.len) == 0;
}


/*
 * Parses "host[:port]" and returns the port, or the port given if it has none.
 */
static ngx_int_t
ngx_http_kvroute_api_host(u_char *data, size_t len, ngx_int_t port,
    ngx_str_t *host)
{
    u_char  *p, *last;

    last = data + len;

    for (p = last; p > data && p[-1] != ':' && p[-1] != ']'; p--) {
        /* void */
    }

    if (p > data && p[-1] == ':') {
        port = ngx_atoi(p, last - p);
        last = p - 1;
    }

    host->data = data;
    host->len = last - data;

    return host->len ? port : NGX_ERROR;
}
