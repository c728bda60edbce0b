
/*
 * Copyright (C) kvroute contributors
 */


/* made by page/embed from page/page.html: change that one */


#include "ngx_http_kvroute_status.h"


const u_char  ngx_http_kvroute_status_page[] =
"<!doctype html><title>kvroute</title>\n"
;

const size_t  ngx_http_kvroute_status_page_len =
    sizeof(ngx_http_kvroute_status_page) - 1;
