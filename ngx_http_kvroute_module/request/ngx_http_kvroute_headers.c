
/*
 * Copyright (C) kvroute contributors
 */


/* Headers for which nginx has no field. */


#include "request/ngx_http_kvroute_request.h"


ngx_table_elt_t *
ngx_http_kvroute_headers_next(ngx_list_t *headers, ngx_str_t *name,
    ngx_table_elt_t *after)
{
    ngx_uint_t        i, passed;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    passed = (after == NULL);

    for (part = &headers->part; part; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {

            if (h[i].key.len != name->len) {
                continue;
            }

            if (!passed) {
                passed = (&h[i] == after);

            } else if (h[i].hash
                       && ngx_strncasecmp(h[i].key.data, name->data, name->len)
                          == 0)
            {
                return &h[i];
            }
        }
    }

    return NULL;
}


ngx_table_elt_t *
ngx_http_kvroute_headers_add(ngx_http_request_t *r, const char *name,
    const char *value)
{
    ngx_table_elt_t  *h;

    h = ngx_list_push(&r->headers_out.headers);
    if (h == NULL) {
        return NULL;
    }

    h->hash = 1;
    ngx_http_kvroute_header_end(h);
    h->key.data = (u_char *) name;
    h->key.len = ngx_strlen(name);
    h->value.data = (u_char *) value;
    h->value.len = ngx_strlen(value);

    return h;
}
