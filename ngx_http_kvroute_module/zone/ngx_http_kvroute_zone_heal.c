
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Undoes what killed processes leave behind: finds rows whose owner is dead,
 * and removes their counts and locks.
 */


#include "zone/ngx_http_kvroute_zone.h"

#include <signal.h>


typedef struct {
    ngx_http_kvroute_zone_t  *zone;
    ngx_log_t                *log;
} ngx_http_kvroute_sweep_t;


static int ngx_http_kvroute_zone_alive(void *data, kvr_load_owner_t owner);
static ngx_uint_t ngx_http_kvroute_zone_younger(
    ngx_http_kvroute_sweep_t *sweep, kvr_load_row_t *row);
static int ngx_http_kvroute_zone_drop(void *data, kvr_load_row_t *row);
static int ngx_http_kvroute_zone_heal(void *data, kvr_load_row_t *row,
    uint32_t column, _Atomic uint64_t *word);
static void ngx_http_kvroute_zone_stuck(ngx_http_kvroute_zone_t *zone,
    ngx_uint_t healed, ngx_log_t *log);


/* Called at the start of a worker and by a timer; waits for no lock. */
void
ngx_http_kvroute_zone_sweep(ngx_http_kvroute_zone_t *zone, ngx_log_t *log)
{
    uint32_t                  n;
    ngx_http_kvroute_sweep_t  sweep;

    sweep.zone = zone;
    sweep.log = log;

    n = kvr_load_sweep(zone->core.load, ngx_http_kvroute_zone_owner(ngx_pid),
                       ngx_http_kvroute_zone_alive, ngx_http_kvroute_zone_drop,
                       ngx_http_kvroute_zone_heal, &sweep);

    if (n) {
        ngx_log_error(NGX_LOG_NOTICE, log, 0,
                      "kvroute_zone \"%V\": removed the counts of %uD dead "
                      "processes", &zone->name, n);
    }

    ngx_http_kvroute_zone_stuck(zone, n, log);
}


/*
 * Process ids are reused, so the time of the start identifies a process too.
 * Without /proc only the id is used.
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

        /* the program's name can have any bytes; the last ")" ends it */

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


/* Tells whether a process is alive; data is not used. */
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
     * The time of the start can be unknown, without /proc or free descriptors.
     * Then keep the row, because a live process may use it.
     */

    found = ngx_http_kvroute_zone_owner(pid);

    return found == owner || (uint32_t) found == 0 || (uint32_t) owner == 0;
}


/*
 * Tells whether a row is of a later configuration, whose servers this process
 * does not know.  The successor of the dead process will heal it.
 */
static ngx_uint_t
ngx_http_kvroute_zone_younger(ngx_http_kvroute_sweep_t *sweep,
    kvr_load_row_t *row)
{
    return kvr_get(&row->generation) > sweep->zone->generation;
}


/* Releases the lock of a dead process; locks of an older configuration die. */
static int
ngx_http_kvroute_zone_drop(void *data, kvr_load_row_t *row)
{
    ngx_http_kvroute_sweep_t  *sweep = data;

    uint32_t                      n, high;
    uint64_t                      owner;
    kvr_load_t                   *load;
    ngx_http_kvroute_srv_conf_t  *kscf;

    if (ngx_http_kvroute_zone_younger(sweep, row)) {
        return KVR_AGAIN;
    }

    if (kvr_get(&row->generation) == sweep->zone->generation) {

        owner = kvr_get(&row->owner);
        kscf = ngx_http_kvroute_lock_free(row);

        if (kscf) {
            ngx_log_error(NGX_LOG_WARN, sweep->log, 0,
                          "lock of the servers of upstream \"%V\" was "
                          "released: process %P was killed while holding it",
                          &kscf->upstream->host, (ngx_pid_t) (owner >> 32));
        }

        return KVR_OK;
    }

    load = sweep->zone->core.load;
    high = kvr_min(kvr_get(&load->high), load->rows);

    for (n = 0; n < high; n++) {

        owner = kvr_get(&load->row[n].owner);

        if (owner
            && kvr_get(&load->row[n].generation) == kvr_get(&row->generation)
            && ngx_http_kvroute_zone_alive(NULL, owner))
        {
            return KVR_AGAIN;
        }
    }

    kvr_set(&row->held, 0);

    return KVR_OK;
}


/*
 * Subtracts a dead worker's connections from nginx's counts of a peer, which
 * nginx itself never does.
 */
static int
ngx_http_kvroute_zone_heal(void *data, kvr_load_row_t *row, uint32_t column,
    _Atomic uint64_t *word)
{
    ngx_http_kvroute_sweep_t *sweep = data;

    uint32_t                       column_0;
    ngx_uint_t                     i, n, conns;
    kvr_peer_t                    *peer;
    kvr_member_t                  *member;
    kvr_registry_t                *registry;
    kvr_upstream_t                *upstream;
    ngx_http_kvroute_zone_t       *zone;
    ngx_http_kvroute_srv_conf_t   *kscf;
    ngx_http_upstream_rr_peer_t   *p;
    ngx_http_upstream_rr_peers_t  *peers;

    if (ngx_http_kvroute_zone_younger(sweep, row)) {
        return KVR_AGAIN;
    }

    zone = sweep->zone;
    registry = zone->core.registry;

    column_0 = kvr_registry_column(registry, 0);

    if (column < column_0 || column >= column_0 + registry->max_members
        || kvr_get(&row->generation) != zone->generation)
    {
        return KVR_OK;
    }

    member = &registry->member[column - column_0];
    peer = &registry->peer[member->peer];

    /* by name, because this process may not know the slots yet */

    upstream = &registry->upstream[member->upstream];
    i = 0;

    do {
        kscf = ngx_http_kvroute_zone_next(zone, &i);

    } while (kscf && (kscf->upstream->host.len != upstream->len
                      || ngx_memcmp(kscf->upstream->host.data, upstream->name,
                                    upstream->len)
                         != 0));

    if (kscf == NULL || kscf->shadow) {
        return KVR_OK;
    }

    peers = kscf->upstream->peer.data;

    for (n = 0; peers && n < 2; peers = peers->next, n++) {

        /* without a "zone" the dead process had its own counts */

        if (ngx_http_kvroute_peers_rwlock(peers) == NULL) {
            continue;
        }

        if (ngx_http_kvroute_lock_try(zone, peers, 1) != NGX_OK) {
            return KVR_AGAIN;
        }

        for (p = peers->peer; p; p = p->next) {

            if (p->name.len != peer->len
                || ngx_memcmp(p->name.data, peer->name, peer->len) != 0)
            {
                continue;
            }

            conns = kvr_load_split(kvr_get(word)).active;
            conns = ngx_min(conns, p->conns);

            kvr_set(word, kvr_get(word)
                          - ((uint64_t) conns << KVR_LOAD_BYTES_BITS));
            p->conns -= conns;
        }

        ngx_http_kvroute_lock_release(zone, peers);
    }

    return KVR_OK;
}


/*
 * Warns of a lock without a note, which cannot be released: it is held when a
 * process has just died, or twice in a row.
 */
static void
ngx_http_kvroute_zone_stuck(ngx_http_kvroute_zone_t *zone, ngx_uint_t healed,
    ngx_log_t *log)
{
    ngx_uint_t                     i, n, held;
    ngx_http_kvroute_srv_conf_t   *kscf;
    ngx_http_upstream_rr_peers_t  *peers;

    i = 0;

    while ((kscf = ngx_http_kvroute_zone_next(zone, &i)) != NULL) {

        held = 0;
        peers = kscf->upstream->peer.data;

        for (n = 0; peers && n < 2; peers = peers->next, n++) {

            if (ngx_http_kvroute_lock_try(zone, peers, 1) == NGX_OK) {
                ngx_http_kvroute_lock_release(zone, peers);

            } else {
                held = 1;
            }
        }

        if (!held) {
            kscf->stuck = 0;
            continue;
        }

        if (kscf->stuck < 2 && (++kscf->stuck == 2 || healed)) {
            kscf->stuck = 2;

            ngx_log_error(NGX_LOG_WARN, log, 0,
                          "lock of the servers of upstream \"%V\" is held, "
                          "maybe by a killed process: if requests hang, reload "
                          "nginx and kill the old workers",
                          &kscf->upstream->host);
        }
    }
}
