
/*
 * Copyright (C) kvroute contributors
 */


/* Headers for which nginx has no place of their own. */


#include "request/ngx_http_kvroute_request.h"


ngx_table_elt_t *
ngx_http_kvroute_headers_find(ngx_list_t *headers, ngx_str_t *name)
{
    ngx_uint_t        i;
    ngx_list_part_t  *part;
    ngx_table_elt_t  *h;

    for (part = &headers->part; part; part = part->next) {
        h = part->elts;

        for (i = 0; i < part->nelts; i++) {

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
