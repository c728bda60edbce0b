
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_ZONE_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_ZONE_H_INCLUDED_


/*
 * The shared memory of a zone, and the peers of upstreams in it.
 *
 *     _zone           its layout, reloads, the row of this process
 *     _zone_size      the memory it needs, and its default number of rows
 *     _zone_heal      undoes what killed processes leave behind
 *     _zone_history   the upstreams of a zone, and their last minutes
 *     _zone_snapshot  the file that keeps a zone over a restart
 *     _shared         other shared memory, for one structure
 *     _peers          this process's copies of an upstream's lists of peers
 *     _peers_number   slots and members of peers
 *     _timer          timers
 *     _lock           nginx's lock of an upstream's peers
 */


#include "ngx_http_kvroute.h"
#include "zone/ngx_http_kvroute_lock.h"
#include "zone/ngx_http_kvroute_peers.h"
#include "zone/ngx_http_kvroute_zone_snapshot.h"


/* offsets of the parts of a zone, in bytes from its head */
typedef struct {
    uint64_t                     registry;
    uint64_t                     sketch;
    uint64_t                     hot;
    uint64_t                     history;
    uint64_t                     load;
    uint64_t                     index;
} ngx_http_kvroute_parts_t;


/* the head of a zone */
struct ngx_http_kvroute_shm_s {
    uint64_t                     layout;    /* checksum of all structures */
    uint64_t                     max_peers;
    uint64_t                     processes;
    uint64_t                     lines;
    ngx_atomic_t                 generation;

    uint8_t                      secret[KVR_SECRET_LEN];
    uint64_t                     keyed;     /* 1: by a key_file */

    uint64_t                     created;   /* s */

    ngx_http_kvroute_parts_t     parts;

    kvr_receipts_t               receipts;
    kvr_zone_file_t              file;
};


/* _zone */

/*
 * Returns whether no newer configuration uses the zone.  After a reload, older
 * workers leave to the newer ones what only one process may do.
 */
static ngx_inline ngx_uint_t
ngx_http_kvroute_zone_latest(ngx_http_kvroute_zone_t *zone)
{
    return zone->generation == zone->shm->generation;
}

ngx_int_t ngx_http_kvroute_zone_add(ngx_conf_t *cf,
    ngx_http_kvroute_zone_t *zone, ngx_str_t *name, size_t size);

ngx_int_t ngx_http_kvroute_zone_init_module(ngx_cycle_t *cycle);
ngx_int_t ngx_http_kvroute_zone_init_process(ngx_cycle_t *cycle);
void ngx_http_kvroute_zone_exit_process(ngx_cycle_t *cycle);

/* _zone_size: minimum of lines in the index */
#define NGX_HTTP_KVROUTE_LINES  1024

/* Returns the minimum size of a zone, in bytes. */
size_t ngx_http_kvroute_zone_size_min(ngx_http_kvroute_zone_t *zone);

/* Sets the offsets of the parts; returns that of the index, the last one. */
size_t ngx_http_kvroute_zone_size_parts(ngx_http_kvroute_zone_t *zone,
    ngx_uint_t processes, ngx_http_kvroute_parts_t *parts);

/* Returns the default number of rows in a zone of that size. */
ngx_uint_t ngx_http_kvroute_zone_size_processes(ngx_http_kvroute_zone_t *zone,
    size_t size);

/*
 * _zone_history: Returns the next upstream of this configuration that uses a
 * zone, or NULL.  *i is 0 at first.  zone NULL: all upstreams.
 */
ngx_http_kvroute_srv_conf_t *ngx_http_kvroute_zone_next(
    ngx_http_kvroute_zone_t *zone, ngx_uint_t *i);

/* Adds a step to the history of a zone's upstreams when it is due. */
void ngx_http_kvroute_zone_look(ngx_http_kvroute_zone_t *zone);

/* Returns the entry of an upstream in its zone, or NULL. */
kvr_upstream_t *ngx_http_kvroute_zone_upstream(
    ngx_http_kvroute_srv_conf_t *kscf);

/* Returns how many requests the queue has rejected, without aborted ones. */
uint64_t ngx_http_kvroute_zone_rejects(ngx_http_kvroute_srv_conf_t *kscf);

/*
 * _shared: Adds shared memory for size bytes, zeroed, on a cache line.  The
 * init handler keeps memory of the previous configuration, and sets data to
 * the address.  Memory with another layout has another name.
 */
ngx_shm_zone_t *ngx_http_kvroute_shared_add(ngx_conf_t *cf, const char *prefix,
    uint64_t layout, ngx_str_t *name, size_t size);
ngx_int_t ngx_http_kvroute_shared_init(ngx_shm_zone_t *shm_zone, void *data);

/*
 * _timer: Initializes an event as a timer that does not delay the exit of a
 * worker.  nginx needs a connection for an event: dummy, which has the data of
 * the handler; or NULL without data.
 */
void ngx_http_kvroute_timer_init(ngx_event_t *ev, ngx_connection_t *dummy,
    ngx_event_handler_pt handler, void *data, ngx_log_t *log);

/* Limits a log message to one a minute; *last: s, of the last one, 0: never. */
ngx_uint_t ngx_http_kvroute_timer_minute(time_t *last);

/* _zone_heal: Removes the counts of dead processes. */
void ngx_http_kvroute_zone_sweep(ngx_http_kvroute_zone_t *zone,
    ngx_log_t *log);

/* Identifies a process by its id and the time of its start. */
kvr_load_owner_t ngx_http_kvroute_zone_owner(ngx_pid_t pid);


#endif /* _NGX_HTTP_KVROUTE_ZONE_H_INCLUDED_ */
