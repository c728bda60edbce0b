
/*
 * Copyright (C) kvroute contributors
 */


/*
 * What processes leave behind that were killed: which row is whose, whether
 * its owner is still there, and what is taken back if it is not.
 */


#include "ngx_http_kvroute.h"

#include <signal.h>


static int ngx_http_kvroute_zone_alive(void *data, kvr_load_owner_t owner);
static void ngx_http_kvroute_zone_heal(void *data, kvr_load_row_t *row,
    uint32_t column, kvr_load_sum_t *left);


void
ngx_http_kvroute_zone_sweep(ngx_http_kvroute_zone_t *zone, ngx_log_t *log)
{
    uint32_t  n;

    n = kvr_load_sweep(zone->sh->load, ngx_http_kvroute_zone_owner(ngx_pid),
                       ngx_http_kvroute_zone_alive, ngx_http_kvroute_zone_heal,
                       zone);

    if (n) {
        ngx_log_error(NGX_LOG_NOTICE, log, 0,
                      "kvroute_zone \"%V\": counters of %uD dead processes "
                      "were taken back", &zone->name, n);
    }
}


/*
 * A process id may be used again: it takes the time of its start to tell a
 * process.  Where there is no /proc to ask the id alone must do.
 */
kvr_load_owner_t
ngx_http_kvroute_zone_owner(ngx_pid_t pid)
{
    int         i;
    u_char     *p;
    ssize_t     n;
    ngx_fd_t    fd;
    uint64_t    started;
    u_char      name[sizeof("/proc//stat") + NGX_INT64_LEN], buf[1024];

    static kvr_load_owner_t  self;
    static ngx_pid_t         self_pid;

    if (pid == self_pid) {
        return self;
    }

    started = 0;

    ngx_sprintf(name, "/proc/%P/stat%Z", pid);

    fd = ngx_open_file(name, NGX_FILE_RDONLY, NGX_FILE_OPEN, 0);

    if (fd != NGX_INVALID_FILE) {
        n = ngx_read_fd(fd, buf, sizeof(buf) - 1);

        (void) ngx_close_file(fd);

        buf[ngx_max(n, 0)] = '\0';

        /* the name of the program may hold anything but ends in the last ")" */

        p = (u_char *) strrchr((char *) buf, ')');

        for (i = 2; p && i < 22; i++) {
            p = (u_char *) ngx_strchr(p + 1, ' ');
        }

        if (p) {
            started = strtoull((char *) p + 1, NULL, 10);
        }
    }

    if (pid == ngx_pid) {
        self = kvr_load_owner(pid, started);
        self_pid = pid;
    }

    return kvr_load_owner(pid, started);
}


static int
ngx_http_kvroute_zone_alive(void *data, kvr_load_owner_t owner)
{
    ngx_pid_t         pid;
    kvr_load_owner_t  found;

    pid = (ngx_pid_t) (owner >> 32);

    if (kill(pid, 0) == -1 && ngx_errno == NGX_ESRCH) {
        return 0;
    }

    /*
     * The time of the start may be unknown, then or now: there is no /proc, or
     * this process has run out of files.  Better one row too many than one
     * taken from a process that goes on counting in it.
     */

    found = ngx_http_kvroute_zone_owner(pid);

    return found == owner || (uint32_t) found == 0 || (uint32_t) owner == 0;
}


/*
 * nginx itself never gives back the connections that a killed worker has
 * counted on a peer.  Of ours we know how many there were.
 */
static void
ngx_http_kvroute_zone_heal(void *data, kvr_load_row_t *row, uint32_t column,
    kvr_load_sum_t *left)
{
    ngx_http_kvroute_zone_t  *zone = data;

    ngx_uint_t                      i, n;
    kvr_seat_t                     *seat;
    kvr_peer_t                     *peer;
    kvr_upstream_t                 *upstream;
    ngx_http_upstream_rr_peer_t    *p;
    ngx_http_upstream_rr_peers_t   *peers;
    ngx_http_upstream_srv_conf_t  **uscf;
    ngx_http_kvroute_srv_conf_t    *kscf;
    ngx_http_kvroute_main_conf_t   *kmcf;

    if (column < KVR_INDEX_PEERS
        || column >= kvr_registry_resident(0)
        || row->generation != zone->generation)
    {
        return;
    }

    seat = &zone->sh->registry->seat[column - KVR_INDEX_PEERS];
    peer = &zone->sh->registry->peer[seat->peer];
    upstream = &zone->sh->registry->upstream[seat->upstream];

    kmcf = ngx_http_cycle_get_module_main_conf(ngx_cycle,
                                               ngx_http_kvroute_module);
    if (kmcf == NULL) {
        return;
    }

    uscf = kmcf->upstreams.elts;

    for (i = 0; i < kmcf->upstreams.nelts; i++) {

        kscf = ngx_http_conf_upstream_srv_conf(uscf[i],
                                               ngx_http_kvroute_module);

        if (kscf->zone != zone
            || uscf[i]->host.len != upstream->len
            || ngx_memcmp(uscf[i]->host.data, upstream->name, upstream->len)
               != 0)
        {
            continue;
        }

        peers = uscf[i]->peer.data;

#if (NGX_HTTP_UPSTREAM_ZONE)
        if (peers->shpool == NULL) {
            return;
        }
#endif

        for (n = 0; peers && n < 2; peers = peers->next, n++) {

            ngx_http_upstream_rr_peers_rlock(peers);

            for (p = peers->peer; p; p = p->next) {

                if (p->name.len != peer->len
                    || ngx_memcmp(p->name.data, peer->name, peer->len) != 0)
                {
                    continue;
                }

                ngx_http_upstream_rr_peer_lock(peers, p);
                p->conns -= ngx_min(p->conns, left->active);
                left->active = 0;
                ngx_http_upstream_rr_peer_unlock(peers, p);
            }

            ngx_http_upstream_rr_peers_unlock(peers);
        }

        return;
    }
}
