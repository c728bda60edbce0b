#include "reply/engine_send.h"


void
kve_send_flush(kve_job_t *job)
{
    struct evbuffer     *chunk, *out;
    struct bufferevent  *bev;

    if (job->out.len == 0 || !job->started) {
        return;
    }

    chunk = job->server->engine->chunk;
    evbuffer_add(chunk, job->out.data, job->out.len);
    evhttp_send_reply_chunk(job->http, chunk);
    job->out.len = 0;

    /*
     * The socket nearly always takes the data at once, which saves an event.
     * libevent writes the rest.
     */

    bev = job->conn->bev;
    out = bufferevent_get_output(bev);

    evbuffer_unfreeze(out, 1);
    (void) evbuffer_write(out, bufferevent_getfd(bev));
    evbuffer_freeze(out, 1);

    if (evbuffer_get_length(out) == 0) {
        bufferevent_disable(bev, EV_WRITE);
    }
}


/* the end of a reply can end its connection: forget both first */

void
kve_send_end(kve_job_t *job)
{
    job->conn->http = NULL;
    job->conn->job = NULL;
    job->conn = NULL;
    evhttp_send_reply_end(job->http);
}
