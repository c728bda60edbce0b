#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/engine_http.h"
#include "reply/engine_meet.h"


#define KVE_MEETINGS   65536
#define KVE_MEET_NEAR  16


typedef enum {
    KVE_MEET_NOBODY = 0,
    KVE_MEET_HERE,
    KVE_MEET_COMPUTED,
    KVE_MEET_GONE
} kve_meet_state_e;


/*
 * A meeting: leg 0 computes the prompt, leg 1 decodes.  Its number gives its
 * slot; it stays until the slot is needed.
 */

struct kve_meet_s {
    _Atomic uint64_t    number;             /* 0: none */
    _Atomic uint32_t    state[2];           /* kve_meet_state_e */
    uint64_t            prompt[2];
    int                 port;               /* of leg 0 */
};


/*
 * The head of the file: pairs that have met, and wrong pairs; of Mooncake's
 * ids, and of SGLang's rooms.
 */

typedef struct {
    struct {
        _Atomic uint64_t  met;
        _Atomic uint64_t  corrupt;
    } of[2];
} kve_meet_counts_t;

#define KVE_MEET_HEAD  (sizeof(kve_meet_counts_t) / sizeof(kve_meet_t) + 1)


static void
kve_meet_open(kve_engine_t *e)
{
    void   *p;
    char    name[1024];
    size_t  size;

    if (e->meetings) {
        return;
    }

    size = (KVE_MEET_HEAD + KVE_MEETINGS) * sizeof(kve_meet_t);
    e->meetings_fd = -1;

    if (e->opt.kv_transfers) {
        snprintf(name, sizeof(name), "%s.meetings", e->opt.kv_transfers);
        e->meetings_fd = open(name, O_RDWR|O_CREAT, 0600);

        if (e->meetings_fd < 0 || ftruncate(e->meetings_fd, (off_t) size) != 0)
        {
            abort();
        }
    }

    p = mmap(NULL, size, PROT_READ|PROT_WRITE, e->meetings_fd < 0
             ? MAP_PRIVATE|MAP_ANONYMOUS : MAP_SHARED, e->meetings_fd, 0);

    if (p == MAP_FAILED) {
        abort();
    }

    e->meetings = p;
}


/* the lock of a process that was killed is released */

static kve_meet_t *
kve_meet_find(kve_engine_t *e, uint64_t number)
{
    int          i;
    kve_meet_t  *m, *take;

    kve_meet_open(e);

    if (e->meetings_fd >= 0) {
        flock(e->meetings_fd, LOCK_EX);
    }

    take = NULL;

    for (i = 0; i < KVE_MEET_NEAR; i++) {
        m = &e->meetings[KVE_MEET_HEAD + (number + i) % KVE_MEETINGS];

        if (m->number == number) {
            take = m;
            break;
        }

        if (take == NULL && (m->state[0] != KVE_MEET_HERE
                             && m->state[1] != KVE_MEET_HERE))
        {
            take = m;
        }
    }

    if (take == NULL) {
        abort();
    }

    if (take->number != number) {
        take->number = number;
        take->state[0] = KVE_MEET_NOBODY;
        take->state[1] = KVE_MEET_NOBODY;
    }

    if (e->meetings_fd >= 0) {
        flock(e->meetings_fd, LOCK_UN);
    }

    return take;
}


static void
kve_meet_count(kve_job_t *job, int corrupt)
{
    int                 i;
    kve_engine_t       *e;
    kve_meet_counts_t  *counts;

    e = job->server->engine;
    counts = (void *) e->meetings;
    i = (e->opt.disaggregation != NULL);

    atomic_fetch_add(corrupt ? &counts->of[i].corrupt : &counts->of[i].met, 1);
}


static void
kve_meet_corrupt(kve_job_t *job)
{
    if (!job->corrupt) {
        job->corrupt = 1;
        job->server->counters.corrupt++;
        kve_meet_count(job, 1);
    }
}


static void
kve_meet_come(kve_job_t *job, int leg, uint64_t number)
{
    kve_server_t  *s;
    kve_meet_t    *m;

    s = job->server;
    m = kve_meet_find(s->engine, number ? number : 1);

    job->leg = leg;

    if (leg == 0) {
        s->counters.prefills++;

    } else {
        s->counters.pulls++;
    }

    if (m->state[leg] != KVE_MEET_NOBODY) {
        kve_meet_corrupt(job);
        return;
    }

    job->meet = m;

    m->prompt[leg] = XXH3_64bits_withSeed(job->parsed.prompts[0].data,
                                           job->parsed.prompts[0].len,
                                           job->parsed.root);
    if (leg == 0) {
        m->port = s->port;
    }

    m->state[leg] = KVE_MEET_HERE;
}


static const char *
kve_meet_sglang(kve_job_t *job)
{
    const char   *mode;
    const cJSON  *room;

    mode = job->server->engine->opt.disaggregation;
    room = kve_json_get(job->parsed.body, "bootstrap_room");

    if (!cJSON_IsNumber(room)
        || !kve_json_str(job->parsed.body, "bootstrap_host")
        || !cJSON_IsNumber(kve_json_get(job->parsed.body, "bootstrap_port")))
    {
        return "Disaggregated request received without bootstrap room id";
    }

    if (strcmp(mode, "prefill") == 0) {
        job->parsed.max_tokens = 1;
    }

    kve_meet_come(job, strcmp(mode, "prefill") != 0,
                  (uint64_t) room->valuedouble);

    return NULL;
}


const char *
kve_meet_start(kve_job_t *job)
{
    int           leg;
    char          name[64];
    const char   *id, *engine;
    const cJSON  *params;

    if (job->server->engine->opt.disaggregation) {
        return kve_meet_sglang(job);
    }

    params = kve_json_get(job->parsed.body, "kv_transfer_params");
    id = cJSON_IsObject(params) ? kve_json_str(params, "transfer_id") : NULL;

    if (id == NULL) {
        return NULL;
    }

    leg = !kve_json_true(params, "do_remote_decode", 0);

    if (leg == 0 && (job->parsed.stream || job->parsed.max_tokens != 1
                      || job->parsed.min_tokens > 1
                      || kve_json_get(job->parsed.body, "stream_options")))
    {
        return "a prefill is one token, in one piece";
    }

    kve_meet_come(job, leg, XXH3_64bits(id, strlen(id)));

    if (leg && job->meet) {
        engine = kve_json_str(params, "remote_engine_id");
        snprintf(name, sizeof(name), "%s", engine ? engine : "");

        job->meet_port = strrchr(name, ':') ? atoi(strrchr(name, ':') + 1) : 0;

        if (!kve_json_str(params, "remote_bootstrap_addr")) {
            kve_meet_corrupt(job);
        }
    }

    return NULL;
}


int
kve_meet_waits(kve_job_t *job)
{
    kve_meet_t  *m;

    m = job->meet;

    if (m == NULL) {
        return 0;
    }

    if (job->leg == 0) {
        return m->state[1] != KVE_MEET_HERE;
    }

    if (m->state[0] != KVE_MEET_COMPUTED) {
        return 1;
    }

    if (m->prompt[0] != m->prompt[1]
        || (job->meet_port && job->meet_port != m->port))
    {
        kve_meet_corrupt(job);
    }

    kve_meet_count(job, 0);
    job->given = !job->corrupt;

    return 0;
}


void
kve_meet_computed(kve_job_t *job)
{
    if (job->meet && job->leg == 0) {
        job->meet->state[0] = KVE_MEET_COMPUTED;
    }
}


void
kve_meet_end(kve_job_t *job)
{
    if (job->meet && job->meet->state[job->leg] == KVE_MEET_HERE) {
        job->meet->state[job->leg] = KVE_MEET_GONE;
    }

    job->meet = NULL;
}
