
/*
 * Copyright (C) kvroute contributors
 */


/* Headers for which nginx has no place of their own. */


#include "request/ngx_http_kvroute_request.h"


ngx_table_elt_t *
ngx_http_kvroute_headers_find(ngx_list_t *headers, ngx_str_t *name)
{
    return ngx_http_kvroute_headers_next(headers, name, NULL);
}


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

            if (!passed) {
                passed = (&h[i] == after);
                continue;
            }

            if (h[i].hash
                && h[i].key.len == name->len
                && ngx_strncasecmp(h[i].key.data, name->data, name->len) == 0)
            {
                return &h[i];
            }
        }
    }

    return NULL;
}
