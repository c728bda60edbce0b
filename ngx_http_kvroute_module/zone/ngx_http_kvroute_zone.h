
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_ZONE_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_ZONE_H_INCLUDED_


/*
 * The shared memory of a zone, and the peers of upstreams in it.
 *
 *     _zone       its layout, its life over reloads, the row of this process
 *     _zone_size  what it has room for, and what it needs
 *     _zone_heal  what processes leave behind that were killed
 *     _zone_history  what upstreams did in the last minutes
 *     _zone_snapshot  the file that it is kept in over a restart
 *     _shared     other shared memory of the module, of one structure
 *     _peers      the lists of an upstream's peers, as this process knows them
 *     _peers_number  numbers and members of peers
 *     _timer      timers
 *     _lock       nginx's lock of an upstream's peers
 */


#include "ngx_http_kvroute.h"
#include "zone/ngx_http_kvroute_lock.h"
#include "zone/ngx_http_kvroute_peers.h"
#include "zone/ngx_http_kvroute_zone_snapshot.h"


/*
 * The head of a zone.  Parts of the zone are told by their distance in bytes
 * from the head, never by an address.
 */

struct ngx_http_kvroute_shm_s {
    uint64_t                     layout;    /* of all that is shared */
    uint64_t                     unit;
    uint64_t                     max_peers;
    uint64_t                     processes;
    uint64_t                     lines;
    ngx_atomic_t                 generation;

    uint8_t                      secret[KVR_SECRET_LEN];
    uint64_t                     keyed;     /* 1: it is that of a key_file */

    uint64_t                     created;   /* s */

    uint64_t                     registry;
    uint64_t                     load;
    uint64_t                     sketch;
    uint64_t                     hot;
    uint64_t                     history;
    uint64_t                     index;

    kvr_receipts_t               receipts;
    kvr_zone_file_t              file;
};


/* _zone */

ngx_int_t ngx_http_kvroute_zone_add(ngx_conf_t *cf,
    ngx_http_kvroute_zone_t *zone, ngx_str_t *name, size_t size);

ngx_int_t ngx_http_kvroute_zone_init_module(ngx_cycle_t *cycle);
ngx_int_t ngx_http_kvroute_zone_init_process(ngx_cycle_t *cycle);
void ngx_http_kvroute_zone_exit_process(ngx_cycle_t *cycle);

/* _zone_size: lines of the index, at least */
#define NGX_HTTP_KVROUTE_LINES  1024

/* bytes that a zone needs, by what is configured */
size_t ngx_http_kvroute_zone_size_min(ngx_http_kvroute_zone_t *zone);

/* where its index begins */
size_t ngx_http_kvroute_zone_size_index(ngx_http_kvroute_zone_t *zone,
    ngx_uint_t processes);

/* rows by default: for all workers that may be, but not most of its bytes */
ngx_uint_t ngx_http_kvroute_zone_size_processes(ngx_http_kvroute_zone_t *zone,
    size_t size);

/*
 * _zone_history: looks at all upstreams of a zone, if it is time; what an
 * upstream has in its zone, NULL if nothing; how many requests its queue has
 * rejected so far, but for those whose client left
 */
void ngx_http_kvroute_zone_look(ngx_http_kvroute_zone_t *zone);
kvr_upstream_t *ngx_http_kvroute_zone_upstream(
    ngx_http_kvroute_srv_conf_t *kscf);
uint64_t ngx_http_kvroute_zone_rejects(ngx_http_kvroute_srv_conf_t *kscf);

/*
 * _shared: adds shared memory, with room for size bytes, zeros, on a cache
 * line.  Its init handler keeps what there is of a configuration before, and
 * leaves the address in data.  Memory of another layout has another name.
 */
ngx_shm_zone_t *ngx_http_kvroute_shared_add(ngx_conf_t *cf, const char *prefix,
    uint64_t layout, ngx_str_t *name, size_t size);
ngx_int_t ngx_http_kvroute_shared_init(ngx_shm_zone_t *shm_zone, void *data);

/*
 * _timer: sets up an event that is nothing but a timer, and does not keep a
 * worker that is to exit.  nginx looks at the connection of an event: dummy is
 * it, and has the data of the handler; NULL: the handler needs none.
 */
void ngx_http_kvroute_timer_init(ngx_event_t *ev, ngx_connection_t *dummy,
    ngx_event_handler_pt handler, void *data, ngx_log_t *log);

/* _zone_heal: takes back what dead processes have counted */
void ngx_http_kvroute_zone_sweep(ngx_http_kvroute_zone_t *zone,
    ngx_log_t *log);

/* a process, told from others that had its id before */
kvr_load_owner_t ngx_http_kvroute_zone_owner(ngx_pid_t pid);

/* whether it is still there; data is not used */
int ngx_http_kvroute_zone_alive(void *data, kvr_load_owner_t owner);


#endif /* _NGX_HTTP_KVROUTE_ZONE_H_INCLUDED_ */
