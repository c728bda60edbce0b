#include <math.h>
#include <string.h>

#include "replica_int.h"


double
kve_run_time(const kve_run_t *run, uint64_t k)
{
    double  x;

    x = (double) k;

    return run->t0 + x * run->d + run->g * (x * (x - 1) / 2);
}


/* the end of a step: its stored and removed blocks are reported */

static void
kve_replica_told(kve_replica_t *r, double t)
{
    if (r->told) {
        r->told = 0;
        r->watch->step(r->watch->data, t);
    }
}


/* how many of the run's steps are over at t */

static uint64_t
kve_run_steps(const kve_run_t *run, double t)
{
    double    x, b, k;
    uint64_t  n;

    if (kve_run_time(run, run->n) <= t) {
        return run->n;
    }

    x = t - run->t0;

    if (x <= 0) {
        return 0;
    }

    b = run->d - run->g / 2;
    k = run->g > 0 ? (sqrt(b * b + 2 * run->g * x) - b) / run->g : x / run->d;
    n = k < (double) run->n ? (uint64_t) k : run->n;

    while (n < run->n && kve_run_time(run, n + 1) <= t) {
        n++;
    }

    while (n > 0 && kve_run_time(run, n) > t) {
        n--;
    }

    return n;
}


/* k of the run's steps are over */

static void
kve_replica_settle(kve_replica_t *r, uint64_t k)
{
    uint64_t  done;

    done = r->run.step + k - r->step;

    while (r->begun < k) {
        kve_replica_told(r, kve_run_time(&r->run, r->begun));
        kve_replica_begin(r, r->run.step + r->begun++);
    }

    if (r->begun == k && k < r->run.n) {
        kve_replica_told(r, kve_run_time(&r->run, k));
    }

    r->step += done;
    r->context += done * r->ndecode;
    r->st.generation_tokens += done * r->ndecode;
}


static void
kve_replica_cut(kve_replica_t *r, uint64_t n)
{
    r->run.n = n;

    if (r->cf.token_log) {
        r->log[r->nlog - 1].n = n;
    }
}


/*
 * Advances to t; with "cut" the run ends after the step that is running then.
 * A step that would start exactly at t does not, because its cause comes
 * first.
 */

void
kve_replica_settle_to(kve_replica_t *r, double t, int cut)
{
    uint64_t  k;

    if (!r->active) {
        return;
    }

    k = kve_run_steps(&r->run, t);
    kve_replica_settle(r, k);

    if (k == r->run.n) {
        return;
    }

    if (!cut || r->begun > k || kve_run_time(&r->run, k) < t) {

        if (r->begun == k) {
            kve_replica_begin(r, r->run.step + r->begun++);
        }

        k++;
    }

    if (cut) {
        kve_replica_cut(r, k);
    }
}


static void
kve_replica_run_end(kve_replica_t *r)
{
    double      t;
    kve_req_t  *req, *next;

    t = kve_run_time(&r->run, r->run.n);

    kve_replica_settle(r, r->run.n);

    r->active = 0;
    r->st.steps += r->run.n;
    r->st.busy += t - r->run.t0;

    while (r->ndecode && r->heap[0]->finish <= r->step) {
        kve_replica_finish(r, r->heap[0], t);
    }

    for (req = r->prefill.first; req; req = next) {
        next = req->pnext;

        if (req->chunk) {
            req->todo -= req->chunk;
            req->depth += req->chunk;
            req->chunk = 0;

            if (req->todo == 0) {
                kve_replica_join(r, req, t);
            }
        }
    }

    kve_replica_told(r, t);
}


/* decode steps that can follow the one at hand before blocks run out */

static uint64_t
kve_replica_room(const kve_replica_t *r, uint64_t want)
{
    uint32_t  bs, left, need;
    uint64_t  n, cycles;

    bs = r->cf.block_size;
    left = kve_blocks_free(r->blocks);
    cycles = left / r->ndecode;

    if (cycles * bs >= want) {
        return want;
    }

    n = cycles * bs;
    left -= cycles * r->ndecode;

    while (n < want) {
        need = r->phase_count[(r->step + 1 + n) % bs];

        if (need > left) {
            break;
        }

        left -= need;
        n++;
    }

    return n;
}


static void
kve_replica_log(kve_replica_t *r)
{
    size_t      i;
    uint64_t    oldest;
    kve_req_t  *req;

    if (r->nlog == r->log_size) {

        /* keep the times that queries can ask for */

        oldest = r->step;

        for (req = r->running.first; req; req = req->next) {
            if (req->nspans && req->spans[0].step < oldest) {
                oldest = req->spans[0].step;
            }
        }

        for (req = r->waiting.first; req; req = req->next) {
            if (req->nspans && req->spans[0].step < oldest) {
                oldest = req->spans[0].step;
            }
        }

        for (i = 0; i < r->nevents; i++) {
            req = r->events[i].req;
            if (r->events[i].type == KVE_DONE
                && req->spans[0].step < oldest)
            {
                oldest = req->spans[0].step;
            }
        }

        for (i = 0; i < r->nlog; i++) {
            if (r->log[i].step + r->log[i].n >= oldest) {
                break;
            }
        }

        r->nlog -= i;

        if (i && r->nlog) {
            memmove(r->log, r->log + i, r->nlog * sizeof(kve_run_t));
        }

        if (r->nlog * 2 >= r->log_size) {
            r->log = kve_grow(r->log, &r->log_size, r->log_size,
                              sizeof(kve_run_t));
        }
    }

    r->log[r->nlog++] = r->run;
}


/* plans the next run; nothing is running now */

static void
kve_replica_plan(kve_replica_t *r, double t)
{
    int         rc;
    double      attention;
    uint32_t    budget, chunks, tokens, preempted;
    uint64_t    n;
    kve_req_t  *req;

    preempted = 0;

    while (r->phase_count[r->step % r->cf.block_size]
           > kve_blocks_free(r->blocks))
    {
        kve_replica_preempt(r, r->running.last, t);
        preempted = 1;
    }

    kve_replica_begin(r, r->step);

    budget = r->cf.max_batched - r->ndecode;
    chunks = 0;

    for (req = r->prefill.first; req; req = req->pnext) {
        if (budget && !req->loading) {
            budget -= kve_replica_chunk(r, req, budget);
            chunks++;
        }
    }

    while (r->waiting.first && budget && r->nrunning < r->cf.max_seqs
           && (!preempted || r->nrunning == 0))
    {
        req = r->waiting.first;
        rc = kve_replica_admit(r, req, t, budget);

        if (rc == 0) {
            break;
        }

        if (rc < 0) {
            kve_replica_drop(r, req);
            kve_replica_event(r, KVE_ABORTED, req, t);
            continue;
        }

        preempted = 0;
        budget -= req->chunk;
        chunks += !req->loading;
    }

    if (r->ndecode == 0 && chunks == 0) {
        return;
    }

    n = 1;

    if (chunks == 0) {
        n = r->heap[0]->finish - r->step;

        if (r->cf.max_run && n > r->cf.max_run) {
            n = r->cf.max_run;
        }

        if (preempted) {
            n = 1;
        }

        if (n > 1) {
            n = 1 + kve_replica_room(r, n - 1);
        }
    }

    tokens = r->ndecode;
    attention = 0;

    if (chunks) {
        for (req = r->prefill.first; req; req = req->pnext) {
            tokens += req->chunk;
            attention += (double) req->chunk
                         * (req->depth + req->chunk / 2.0);
        }
    }

    r->run.step = r->step;
    r->run.n = n;
    r->run.t0 = t;
    r->run.d = fmax(r->cf.hw.floor, tokens * r->cf.hw.linear)
               + r->cf.hw.step + r->cf.hw.request * (r->ndecode + chunks)
               + r->cf.hw.kv * r->context
               + r->cf.hw.attention * attention;
    r->run.g = r->cf.hw.kv * r->ndecode;

    r->run.d /= r->cf.speed;
    r->run.g /= r->cf.speed;

    r->active = 1;
    r->begun = 1;

    if (r->cf.token_log) {
        kve_replica_log(r);
    }
}


static void
kve_replica_arrive(kve_replica_t *r, kve_req_t *req, double t)
{
    kve_list_remove(&r->arrivals, req);

    /* requests that are not first in the queue change nothing */

    if (r->waiting.first == NULL && r->nrunning < r->cf.max_seqs) {
        kve_replica_settle_to(r, t, 1);
    }

    req->state = KVE_WAITING;
    kve_list_push(&r->waiting, req);
    r->nwaiting++;
    r->waiting_tokens += req->prompt_tokens;

    if (!r->active) {
        kve_replica_plan(r, t);
    }
}


/* ends the loads that are due by t */

static void
kve_replica_loaded(kve_replica_t *r, double t)
{
    kve_req_t  *req;

    kve_replica_settle_to(r, t, 1);

    for (req = r->prefill.first; req; req = req->pnext) {
        if (req->loading && req->ready <= t) {
            req->loading = 0;
            r->nloading--;
        }
    }

    if (!r->active) {
        kve_replica_plan(r, t);
    }
}


void
kve_replica_release(kve_replica_t *r, kve_req_t *req, double t)
{
    kve_replica_go(r, t);

    if (req->nkept == 0) {
        return;
    }

    kve_replica_let(r, req);

    /* requests can have waited for these only */

    if (!r->active) {
        kve_replica_plan(r, r->now);
    }
}


void
kve_replica_go(kve_replica_t *r, double t)
{
    double  te, ta, tl;

    for ( ;; ) {
        tl = kve_replica_ready(r);
        te = r->active ? kve_run_time(&r->run, r->run.n) : INFINITY;
        ta = r->arrivals.first
             ? r->arrivals.first->submit_time + r->cf.hw.api : INFINITY;

        if (tl <= ta && tl <= te) {
            if (tl > t) {
                break;
            }

            kve_replica_loaded(r, tl);
            continue;
        }

        if (ta <= te) {
            if (ta > t) {
                break;
            }

            kve_replica_arrive(r, r->arrivals.first, ta);
            continue;
        }

        if (te > t) {
            break;
        }

        kve_replica_run_end(r);
        kve_replica_plan(r, te);
    }

    kve_replica_settle_to(r, t, 0);

    if (t > r->now) {
        r->now = t;
    }
}


void
kve_req_times(const kve_replica_t *r, const kve_req_t *req, uint32_t first,
    uint32_t n, double *times)
{
    size_t            lo, hi, mid;
    uint32_t          i, k, span;
    uint64_t          step;
    const kve_run_t  *run;

    span = 0;
    lo = 0;
    run = NULL;

    for (i = 0; i < n; i++) {
        k = first + i;

        if (req->nspans == 0 || r->nlog == 0) {
            times[i] = NAN;
            continue;
        }

        while (span + 1 < req->nspans && req->spans[span + 1].token <= k) {
            span++;
        }

        step = req->spans[span].step;

        if (k > req->spans[span].token) {
            step += k - req->spans[span].token;
        }

        if (run == NULL || step > run->step + run->n || step <= run->step) {

            /* the run with this step, usually the last one */

            hi = r->nlog;
            lo = r->log[hi - 1].step < step ? hi - 1 : 0;

            while (hi - lo > 1) {
                mid = lo + (hi - lo) / 2;

                if (r->log[mid].step < step) {
                    lo = mid;

                } else {
                    hi = mid;
                }
            }

            run = &r->log[lo];
        }

        times[i] = kve_run_time(run, step - run->step)
                   + r->cf.hw.output * k;
    }
}
