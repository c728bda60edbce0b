
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_ZONE_SNAPSHOT_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_ZONE_SNAPSHOT_H_INCLUDED_


#include "ngx_http_kvroute.h"


/* the file of a zone, ngx_http_kvroute_zone_t.snapshot */
struct ngx_http_kvroute_snapshot_s {
    ngx_str_t                    file;      /* both end in '\0' */
    ngx_str_t                    temp;
    ngx_msec_t                   interval;

    /* per worker */

    ngx_msec_t                   last;      /* when it was last begun */
    ngx_uint_t                   locked;    /* times, one after another */
    unsigned                     failed:1;  /* which was logged */
};


/* fills a new zone; an error leaves it empty */
void ngx_http_kvroute_zone_snapshot_read(ngx_http_kvroute_zone_t *zone,
    ngx_log_t *log);

/* from now on this process writes the files, now and then and at its exit */
void ngx_http_kvroute_zone_snapshot_start(ngx_cycle_t *cycle);
void ngx_http_kvroute_zone_snapshot_exit(ngx_cycle_t *cycle);


#endif /* _NGX_HTTP_KVROUTE_ZONE_SNAPSHOT_H_INCLUDED_ */
