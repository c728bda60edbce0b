
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The file that keeps a zone over a restart (snapshot=).
 *
 * Worker 0 writes it in slices, one per timer, so a request waits for at most
 * one slice.  At a clean exit it writes everything at once.  It writes FILE.tmp
 * and renames it to FILE, so a killed worker leaves the old file.  There is no
 * fsync(), which would block the worker.  After a power failure the file can be
 * damaged; its digest shows that, and nginx starts with an empty zone.
 *
 * Two processes can write at a time, for example the workers of two binaries
 * during an upgrade.  The one that has locked FILE.tmp writes, the other tries
 * again later.  A lock ends with its process.
 *
 * The master reads the file when the zone's memory is new, not at a reload that
 * keeps the zone.
 */


#include "zone/ngx_http_kvroute_zone.h"
#include "core/state/kvr_zone_snapshot.h"

#include <sys/file.h>


/* ms between slices, and between checks whether a snapshot is due */
#define NGX_HTTP_KVROUTE_SNAPSHOT_SLICE  5
#define NGX_HTTP_KVROUTE_SNAPSHOT_LOOK   200

/* consecutive snapshots that can find the file locked before an error */
#define NGX_HTTP_KVROUTE_SNAPSHOT_LOCKED 3


/* the snapshot being written; one at a time */
typedef struct {
    ngx_http_kvroute_zone_t  *zone;         /* NULL: none */
    ngx_fd_t                  fd;
    kvr_zone_snapshot_t       core;
    u_char                    buf[KVR_ZONE_SNAPSHOT_SLICE];
} ngx_http_kvroute_zone_writer_t;


static const char *ngx_http_kvroute_zone_snapshot_load(
    ngx_http_kvroute_zone_t *zone, ngx_fd_t fd, ngx_log_t *log);
static void ngx_http_kvroute_zone_snapshot_timer(ngx_event_t *ev);
static ngx_http_kvroute_zone_t *ngx_http_kvroute_zone_snapshot_due(
    ngx_cycle_t *cycle);
static ngx_int_t ngx_http_kvroute_zone_snapshot_open(
    ngx_http_kvroute_zone_t *zone);
static ngx_int_t ngx_http_kvroute_zone_snapshot_mine(
    ngx_http_kvroute_zone_t *zone);
static ngx_int_t ngx_http_kvroute_zone_snapshot_step(void);
static void ngx_http_kvroute_zone_snapshot_close(void);
static ngx_int_t ngx_http_kvroute_zone_failed(
    ngx_http_kvroute_zone_t *zone, ngx_err_t err, const char *what,
    ngx_str_t *name);


static ngx_http_kvroute_zone_writer_t  ngx_http_kvroute_zone_writer;

static ngx_event_t       ngx_http_kvroute_zone_snapshot_event;
static ngx_uint_t        ngx_http_kvroute_zone_snapshot_started;


void
ngx_http_kvroute_zone_snapshot_read(ngx_http_kvroute_zone_t *zone,
    ngx_log_t *log)
{
    ngx_fd_t     fd;
    ngx_str_t   *name;
    const char  *why;

    name = &zone->snapshot->file;

    /* a FIFO without a writer must not block nginx */

    fd = ngx_open_file(name->data, NGX_FILE_RDONLY|NGX_FILE_NONBLOCK,
                       NGX_FILE_OPEN, 0);

    if (fd == NGX_INVALID_FILE && ngx_errno == NGX_ENOENT) {
        ngx_log_error(NGX_LOG_NOTICE, log, 0,
                      "kvroute_zone \"%V\" starts empty, there is no snapshot "
                      "\"%V\" yet", &zone->name, name);
        return;
    }

    if (fd == NGX_INVALID_FILE) {
        why = ngx_open_file_n " failed";

    } else {
        ngx_set_errno(0);
        why = ngx_http_kvroute_zone_snapshot_load(zone, fd, log);
    }

    if (why) {
        ngx_log_error(NGX_LOG_WARN, log, ngx_errno,
                      "kvroute_zone \"%V\" starts empty: snapshot \"%V\" is "
                      "not used, %s", &zone->name, name, why);
        kvr_set(&zone->shm->file.refused, 1);
    }

    if (fd != NGX_INVALID_FILE && ngx_close_file(fd) == NGX_FILE_ERROR) {
        ngx_log_error(NGX_LOG_ALERT, log, ngx_errno,
                      ngx_close_file_n " \"%V\" failed", name);
    }
}


/* Returns NULL, or why the file is not used. */
static const char *
ngx_http_kvroute_zone_snapshot_load(ngx_http_kvroute_zone_t *zone, ngx_fd_t fd,
    ngx_log_t *log)
{
    size_t                     size, len;
    u_char                    *p;
    ssize_t                    n;
    ngx_file_info_t            fi;
    kvr_zone_snapshot_e        rc;
    kvr_zone_snapshot_read_t   r;

    if (ngx_fd_info(fd, &fi) == NGX_FILE_ERROR) {
        return ngx_fd_info_n " failed";
    }

    /* the file of a larger zone can be larger than this zone */

    if (!ngx_is_file(&fi)
        || ngx_file_size(&fi) > (off_t) (2 * zone->shm_zone->shm.size))
    {
        return "it is no file, or larger than twice the zone";
    }

    size = (size_t) ngx_file_size(&fi);

    p = ngx_alloc(size + 1, log);
    if (p == NULL) {
        return "there is no memory for it";
    }

    for (len = 0; len < size; len += (size_t) n) {

        n = ngx_read_fd(fd, p + len, size - len);

        if (n == -1) {
            ngx_free(p);
            return ngx_read_fd_n " failed";
        }

        if (n == 0) {
            break;
        }
    }

    rc = kvr_zone_snapshot_read(&zone->core, zone->secret, p, len,
                                (uint64_t) ngx_time(), &r);

    ngx_free(p);

    if (rc != KVR_ZONE_SNAPSHOT_OK) {
        return kvr_zone_snapshot_why(rc);
    }

    kvr_set(&zone->shm->file.read, r.lines);

    ngx_log_error(NGX_LOG_NOTICE, log, 0,
                  "kvroute_zone \"%V\" starts with %uL entries of %uD servers "
                  "from snapshot \"%V\", written %uL s ago",
                  &zone->name, r.lines, r.peers, &zone->snapshot->file, r.age);

    return NULL;
}


void
ngx_http_kvroute_zone_snapshot_start(ngx_cycle_t *cycle)
{
    ngx_uint_t                      i, n;
    ngx_event_t                    *ev;
    ngx_http_kvroute_zone_t       **zone;
    ngx_http_kvroute_main_conf_t   *kmcf;

    kmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_kvroute_module);

    zone = kmcf->zones.elts;

    for (i = 0, n = 0; i < kmcf->zones.nelts; i++) {
        if (zone[i]->snapshot) {
            zone[i]->snapshot->last = ngx_current_msec;
            n++;
        }
    }

    if (n == 0) {
        return;
    }

    ngx_http_kvroute_zone_snapshot_started = 1;

    ev = &ngx_http_kvroute_zone_snapshot_event;

    ngx_http_kvroute_timer_init(ev, NULL, ngx_http_kvroute_zone_snapshot_timer,
                                NULL, cycle->log);

    ngx_add_timer(ev, NGX_HTTP_KVROUTE_SNAPSHOT_LOOK);
}


/* Writes the files at the end of nginx or of this binary, not at a reload. */
void
ngx_http_kvroute_zone_snapshot_exit(ngx_cycle_t *cycle)
{
    ngx_uint_t                      i;
    ngx_http_kvroute_zone_t       **zone;
    ngx_http_kvroute_main_conf_t   *kmcf;

    if (!ngx_http_kvroute_zone_snapshot_started) {
        return;
    }

    ngx_http_kvroute_zone_snapshot_close();

    kmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_kvroute_module);

    zone = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {

        if (zone[i]->snapshot == NULL
            || !ngx_http_kvroute_zone_latest(zone[i])
            || ngx_http_kvroute_zone_snapshot_open(zone[i]) != NGX_OK)
        {
            continue;
        }

        while (ngx_http_kvroute_zone_snapshot_step() == NGX_AGAIN) {
            /* void */
        }
    }
}


static void
ngx_http_kvroute_zone_snapshot_timer(ngx_event_t *ev)
{
    ngx_http_kvroute_zone_t         *zone;
    ngx_http_kvroute_zone_writer_t  *w;

    w = &ngx_http_kvroute_zone_writer;

    /* the exit writes the file, if there is no successor */

    if (ngx_exiting || ngx_quit || ngx_terminate) {
        ngx_http_kvroute_zone_snapshot_close();
        return;
    }

    if (w->zone && w->zone->cycle != (ngx_cycle_t *) ngx_cycle) {
        ngx_http_kvroute_zone_snapshot_close();
    }

    if (w->zone == NULL) {
        zone = ngx_http_kvroute_zone_snapshot_due((ngx_cycle_t *) ngx_cycle);

        if (zone) {
            zone->snapshot->last = ngx_current_msec;
            (void) ngx_http_kvroute_zone_snapshot_open(zone);
        }

    } else {
        (void) ngx_http_kvroute_zone_snapshot_step();
    }

    ngx_add_timer(ev, w->zone ? NGX_HTTP_KVROUTE_SNAPSHOT_SLICE
                              : NGX_HTTP_KVROUTE_SNAPSHOT_LOOK);
}


static ngx_http_kvroute_zone_t *
ngx_http_kvroute_zone_snapshot_due(ngx_cycle_t *cycle)
{
    ngx_uint_t                      i;
    ngx_http_kvroute_zone_t       **zone;
    ngx_http_kvroute_snapshot_t    *snapshot;
    ngx_http_kvroute_main_conf_t   *kmcf;

    kmcf = ngx_http_cycle_get_module_main_conf(cycle, ngx_http_kvroute_module);

    zone = kmcf->zones.elts;

    for (i = 0; i < kmcf->zones.nelts; i++) {
        snapshot = zone[i]->snapshot;

        if (snapshot && ngx_current_msec - snapshot->last >= snapshot->interval)
        {
            return zone[i];
        }
    }

    return NULL;
}


/* Starts a snapshot.  NGX_DECLINED: another process is writing it. */
static ngx_int_t
ngx_http_kvroute_zone_snapshot_open(ngx_http_kvroute_zone_t *zone)
{
    ngx_fd_t                         fd;
    ngx_int_t                        rc;
    ngx_file_info_t                  fi, named;
    ngx_http_kvroute_snapshot_t     *snapshot;
    ngx_http_kvroute_zone_writer_t  *w;

    w = &ngx_http_kvroute_zone_writer;
    snapshot = zone->snapshot;

    rc = ngx_http_kvroute_zone_snapshot_mine(zone);

    if (rc != NGX_OK) {
        return rc;
    }

    fd = open((const char *) snapshot->temp.data,
              O_WRONLY|O_CREAT|O_CLOEXEC|O_NOFOLLOW|O_NONBLOCK, 0600);

    if (fd == NGX_INVALID_FILE) {
        return ngx_http_kvroute_zone_failed(zone, ngx_errno, ngx_open_file_n,
                                            &snapshot->temp);
    }

    if (flock(fd, LOCK_EX|LOCK_NB) == -1) {
        rc = NGX_DECLINED;

        if (++snapshot->locked >= NGX_HTTP_KVROUTE_SNAPSHOT_LOCKED) {
            rc = ngx_http_kvroute_zone_failed(zone, ngx_errno, "flock()",
                                              &snapshot->temp);
        }

        (void) ngx_close_file(fd);
        return rc;
    }

    snapshot->locked = 0;

    /* the process that had it locked may have renamed it */

    if (ngx_fd_info(fd, &fi) == NGX_FILE_ERROR
        || lstat((const char *) snapshot->temp.data, &named) == -1
        || fi.st_ino != named.st_ino || fi.st_dev != named.st_dev)
    {
        (void) ngx_close_file(fd);
        return NGX_DECLINED;
    }

    if (!ngx_is_file(&fi)) {
        (void) ngx_close_file(fd);
        return ngx_http_kvroute_zone_failed(zone, 0, "another file is there:",
                                            &snapshot->temp);
    }

    if (ftruncate(fd, 0) == -1) {
        rc = ngx_http_kvroute_zone_failed(zone, ngx_errno, "ftruncate()",
                                          &snapshot->temp);
        (void) ngx_close_file(fd);
        return rc;
    }

    w->zone = zone;
    w->fd = fd;

    kvr_zone_snapshot_begin(&w->core, &zone->core, zone->secret);

    return NGX_OK;
}


/*
 * Tells whether the file can be replaced: it is a snapshot, empty or missing.
 */
static ngx_int_t
ngx_http_kvroute_zone_snapshot_mine(ngx_http_kvroute_zone_t *zone)
{
    u_char                        magic[8];
    ssize_t                       n;
    ngx_fd_t                      fd;
    ngx_err_t                     err;
    ngx_http_kvroute_snapshot_t  *snapshot;

    snapshot = zone->snapshot;

    fd = ngx_open_file(snapshot->file.data, NGX_FILE_RDONLY|NGX_FILE_NONBLOCK,
                       NGX_FILE_OPEN, 0);

    if (fd == NGX_INVALID_FILE) {
        err = ngx_errno;

        if (err == NGX_ENOENT) {
            return NGX_OK;
        }

        return ngx_http_kvroute_zone_failed(zone, err, ngx_open_file_n,
                                            &snapshot->file);
    }

    n = ngx_read_fd(fd, magic, sizeof(magic));

    (void) ngx_close_file(fd);

    /* a power failure can leave an empty file */

    if (n == 0 || (n > 0 && kvr_zone_snapshot_is(magic, (size_t) n))) {
        return NGX_OK;
    }

    return ngx_http_kvroute_zone_failed(zone, 0, "another file is there:",
                                        &snapshot->file);
}


/* Writes a slice.  NGX_AGAIN: there are more. */
static ngx_int_t
ngx_http_kvroute_zone_snapshot_step(void)
{
    size_t                           len, done;
    ssize_t                          n;
    ngx_int_t                        rc;
    kvr_zone_file_t                 *file;
    ngx_http_kvroute_snapshot_t     *snapshot;
    ngx_http_kvroute_zone_writer_t  *w;

    w = &ngx_http_kvroute_zone_writer;
    snapshot = w->zone->snapshot;

    len = kvr_zone_snapshot_next(&w->core, (uint64_t) ngx_time(), w->buf);

    for (done = 0; done < len; done += (size_t) n) {

        n = ngx_write_fd(w->fd, w->buf + done, len - done);

        if (n == -1 && ngx_errno == NGX_EINTR) {
            n = 0;
        }

        if (n == -1) {
            rc = ngx_http_kvroute_zone_failed(w->zone, ngx_errno,
                                              ngx_write_fd_n, &snapshot->temp);

            /* free the space on a full disk */

            (void) ngx_delete_file(snapshot->temp.data);
            ngx_http_kvroute_zone_snapshot_close();

            return rc;
        }
    }

    if (!w->core.done) {
        return NGX_AGAIN;
    }

    if (ngx_rename_file(snapshot->temp.data, snapshot->file.data)
        == NGX_FILE_ERROR)
    {
        rc = ngx_http_kvroute_zone_failed(w->zone, ngx_errno,
                                          ngx_rename_file_n, &snapshot->file);

    } else {
        rc = NGX_OK;
        snapshot->failed = 0;

        file = &w->zone->shm->file;

        kvr_add(&file->written, 1);
        kvr_set(&file->bytes, w->core.bytes);
        kvr_set(&file->time, (uint64_t) ngx_time());

        ngx_log_error(NGX_LOG_INFO, w->zone->cycle->log, 0,
                      "kvroute_zone \"%V\": snapshot \"%V\" was written, "
                      "%uL bytes of entries",
                      &w->zone->name, &snapshot->file, w->core.bytes);
    }

    ngx_http_kvroute_zone_snapshot_close();

    return rc;
}


static void
ngx_http_kvroute_zone_snapshot_close(void)
{
    ngx_http_kvroute_zone_writer_t  *w;

    w = &ngx_http_kvroute_zone_writer;

    if (w->zone) {
        (void) ngx_close_file(w->fd);
        w->zone = NULL;
    }
}


/* Counts a failure, and logs the first one until a snapshot succeeds. */
static ngx_int_t
ngx_http_kvroute_zone_failed(ngx_http_kvroute_zone_t *zone,
    ngx_err_t err, const char *what, ngx_str_t *name)
{
    kvr_add(&zone->shm->file.failed, 1);

    if (!zone->snapshot->failed) {
        zone->snapshot->failed = 1;

        ngx_log_error(NGX_LOG_ERR, zone->cycle->log, err,
                      "snapshot of a zone cannot be written, a restart will "
                      "start cold: %s \"%V\"", what, name);
    }

    return NGX_ERROR;
}
