
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_ZONE_SNAPSHOT_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_ZONE_SNAPSHOT_H_INCLUDED_


#include "ngx_http_kvroute.h"


/* the snapshot file of a zone */
struct ngx_http_kvroute_snapshot_s {
    ngx_str_t                    file;      /* both end in '\0' */
    ngx_str_t                    temp;
    ngx_msec_t                   interval;

    /* per worker */

    ngx_msec_t                   last;      /* start of the last snapshot */
    ngx_uint_t                   locked;    /* consecutive times */
    unsigned                     failed:1;  /* and logged */
};


/* Reads the file into a new zone; an error leaves the zone empty. */
void ngx_http_kvroute_zone_snapshot_read(ngx_http_kvroute_zone_t *zone,
    ngx_log_t *log);

/* Let this process write the files regularly, and at its exit. */
void ngx_http_kvroute_zone_snapshot_start(ngx_cycle_t *cycle);
void ngx_http_kvroute_zone_snapshot_exit(ngx_cycle_t *cycle);


#endif /* _NGX_HTTP_KVROUTE_ZONE_SNAPSHOT_H_INCLUDED_ */
