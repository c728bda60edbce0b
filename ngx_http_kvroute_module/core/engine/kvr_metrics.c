
/*
 * Copyright (C) kvroute contributors
 */


#include "core/engine/kvr_metrics_text.h"


static void kvr_metrics_line(kvr_metrics_reader_t *r, char *line);
static int kvr_metrics_series(kvr_metrics_reader_t *r, uint32_t engine,
    const char *name, size_t len, const char *labels, double value);
static void kvr_metrics_config(kvr_metrics_reader_t *r, const char *labels);
static void kvr_metrics_adapters(kvr_metrics_reader_t *r,
    const kvr_dialect_t *dialect, const char *labels, double value);
static void kvr_metrics_adapter(kvr_metrics_t *m, uint64_t lora);
static void kvr_metrics_load(void *data, unsigned leaf, kvr_push_e what,
    const uint8_t *p, size_t len, uint64_t number);
static void kvr_metrics_add(kvr_metrics_reader_t *r, kvr_series_e series,
    double value);
static void kvr_metrics_named(kvr_metrics_reader_t *r, const kvr_dialect_t *d,
    double rank);
static int kvr_metrics_take(const kvr_metrics_sums_t *s, kvr_series_e series,
    kvr_series_e other, double *value);
static void kvr_metrics_total(const kvr_metrics_sums_t *s, uint8_t mode,
    kvr_metrics_t *m);
static uint64_t kvr_metrics_count(double value);


void
kvr_metrics_init(kvr_metrics_reader_t *r)
{
    memset(r, 0, offsetof(kvr_metrics_reader_t, line));

    r->newest = -1;
    kvr_push_init(&r->json, 0);

    /* find the dialect that is in JSON */

    while (kvr_dialect(r->dialect)->json == NULL) {
        r->dialect++;
    }
}


void
kvr_metrics_read(kvr_metrics_reader_t *r, const uint8_t *data, size_t len)
{
    size_t          n;
    const uint8_t  *p, *end;

    for (end = data + len; r->mode == 0 && data < end; data++) {
        if (*data > ' ') {
            r->mode = (*data == '{' || *data == '[') ? 'j' : 'p';
            break;
        }
    }

    if (r->mode == 'j') {
        (void) kvr_push_feed(&r->json, kvr_dialect(r->dialect)->json, data,
                             (size_t) (end - data), kvr_metrics_load, r);
        return;
    }

    while (data < end) {
        p = memchr(data, '\n', (size_t) (end - data));
        n = (size_t) ((p ? p : end) - data);

        if (r->drop || n > KVR_METRICS_LINE - r->len) {
            r->drop = 1;

        } else {
            memcpy(r->line + r->len, data, n);
            r->len += (uint32_t) n;
        }

        if (p == NULL) {
            return;
        }

        if (!r->drop) {
            r->line[r->len] = '\0';
            kvr_metrics_line(r, r->line);
        }

        r->drop = 0;
        r->len = 0;
        data += n + 1;
    }
}


/* Reads a line: name{labels} value [time]. */
static void
kvr_metrics_line(kvr_metrics_reader_t *r, char *line)
{
    char                 *p, *name, *labels;
    size_t                len, n;
    double                value;
    uint32_t              engine;
    unsigned              i, quoted;
    const kvr_dialect_t  *d;

    for (p = line; *p == ' '; p++) { /* void */ }

    if (*p == '#' || *p == '\0') {
        return;
    }

    name = p;
    p += strcspn(p, "{ \t");
    len = (size_t) (p - name);

    labels = NULL;

    if (*p == '{') {
        labels = ++p;
        quoted = 0;

        for ( /* void */ ; *p && (quoted || *p != '}'); p++) {
            if (*p == '\\' && p[1]) {
                p++;

            } else if (*p == '"') {
                quoted = !quoted;
            }
        }

        if (*p == '\0') {
            return;
        }

        *p++ = '\0';
    }

    if (!kvr_metrics_text_number(p, &value)) {
        return;
    }

    if (kvr_metrics_series(r, KVR_DIALECT_AUTO, name, len, labels, value)) {
        return;
    }

    for (engine = 1; (d = kvr_dialect(engine)) != NULL; engine++) {

        for (i = 0; i < KVR_DIALECT_NAMES && d->prefixes[i]; i++) {
            n = strlen(d->prefixes[i]);

            if (len > n + 1 && memcmp(name, d->prefixes[i], n) == 0
                && (name[n] == ':' || name[n] == '_')
                && kvr_metrics_series(r, engine, name + n + 1, len - n - 1,
                                      labels, value))
            {
                return;
            }
        }
    }
}


/* Adds a value; returns 1 if the engine has a series of that name. */
static int
kvr_metrics_series(kvr_metrics_reader_t *r, uint32_t engine, const char *name,
    size_t len, const char *labels, double value)
{
    int                          found;
    size_t                       n;
    unsigned                     i;
    const char                  *label;
    const kvr_dialect_t         *d;
    const kvr_dialect_series_t  *s;

    d = kvr_dialect(engine);
    found = 0;

    for (s = d->series; s->name; s++) {

        if (strlen(s->name) != len || memcmp(s->name, name, len) != 0) {
            continue;
        }

        found = 1;

        if (engine != KVR_DIALECT_AUTO) {
            r->m.engine = engine;
        }

        for (i = 0; i < KVR_DIALECT_NAMES && d->repeats[i]; i++) {
            if (kvr_metrics_text_label_number(labels, d->repeats[i]) > 0) {
                return 1;
            }
        }

        label = d->rank ? kvr_metrics_text_label(labels, d->rank, &n) : NULL;

        kvr_metrics_named(r, d, label && n && *label >= '0' && *label <= '9'
                                ? kvr_metrics_text_label_number(labels, d->rank)
                                : -1);

        if (s->label) {
            label = kvr_metrics_text_label(labels, s->label, &n);

            if (label == NULL || strlen(s->value) != n
                || memcmp(label, s->value, n) != 0)
            {
                continue;
            }
        }

        switch (s->series) {

        case KVR_SERIES_NOTHING:
            break;

        case KVR_SERIES_CONFIG:
            kvr_metrics_config(r, labels);
            break;

        case KVR_SERIES_LORA:
            kvr_metrics_adapters(r, d, labels, value);
            break;

        default:
            kvr_metrics_add(r, s->series, value);
        }
    }

    return found;
}


static void
kvr_metrics_config(kvr_metrics_reader_t *r, const char *labels)
{
    double       blocks, size;
    size_t       len;
    const char  *label;

    label = kvr_metrics_text_label(labels, "enable_prefix_caching", &len);

    if (label && len == 5 && memcmp(label, "False", 5) == 0) {
        kvr_metrics_add(r, KVR_SERIES_NO_CACHE, 1);
    }

    /* for hybrid models this is not num_gpu_blocks * block_size */

    blocks = kvr_metrics_text_label_number(labels, "kv_cache_size_tokens");

    if (blocks <= 0) {
        blocks = kvr_metrics_text_label_number(labels, "num_gpu_blocks");
        size = kvr_metrics_text_label_number(labels, "block_size");

        blocks *= size;
    }

    if (blocks > 0) {
        kvr_metrics_add(r, KVR_SERIES_TOKENS, blocks);
    }
}


/*
 * Reads a set of adapters.  The metrics keep old sets; a value is the time of
 * its set, and the latest one is used.
 */
static void
kvr_metrics_adapters(kvr_metrics_reader_t *r, const kvr_dialect_t *dialect,
    const char *labels, double value)
{
    double       max;
    size_t       len, n;
    unsigned     i;
    const char  *p;

    if (value <= r->newest) {
        return;
    }

    r->newest = value;
    r->m.loras = 0;
    r->m.set |= KVR_METRICS_LORA;

    max = kvr_metrics_text_label_number(labels, dialect->max_adapters);
    r->m.max_loras = (max > 0 && max < 1e6) ? (uint32_t) max : 0;

    for (i = 0; i < KVR_DIALECT_NAMES && dialect->adapters[i]; i++) {

        p = kvr_metrics_text_label(labels, dialect->adapters[i], &len);

        while (p && len) {

            n = 0;

            while (n < len && p[n] != ',') {
                n++;
            }

            if (n) {
                kvr_metrics_adapter(&r->m, kvr_metrics_lora(p, n));
            }

            n += (n < len);
            p += n;
            len -= n;
        }
    }
}


/* Adds an adapter; it can be both running and waiting. */
static void
kvr_metrics_adapter(kvr_metrics_t *m, uint64_t lora)
{
    unsigned  i;

    for (i = 0; i < m->loras; i++) {
        if (m->lora[i] == lora) {
            return;
        }
    }

    if (i < KVR_METRICS_LORAS) {
        m->lora[m->loras++] = lora;
    }
}


uint64_t
kvr_metrics_lora(const void *name, size_t len)
{
    uint64_t        h;
    const uint8_t  *p;

    h = 0xcbf29ce484222325ULL;

    for (p = name; len; len--) {
        h = (h ^ *p++) * 0x100000001b3ULL;
    }

    return h ? h : 1;
}


static void
kvr_metrics_load(void *data, unsigned leaf, kvr_push_e what,
    const uint8_t *p, size_t len, uint64_t number)
{
    kvr_metrics_reader_t *r = data;

    (void) p;
    (void) len;

    if (leaf == 0 || what != KVR_PUSH_VALUE) {
        return;
    }

    if (leaf - 1 == KVR_SERIES_RANK) {
        kvr_metrics_named(r, kvr_dialect(r->dialect), (double) number);
        return;
    }

    r->m.engine = r->dialect;
    kvr_metrics_add(r, (kvr_series_e) (leaf - 1), (double) number);
}


/*
 * Sets the rank of the next values; negative: none.  The sums of a rank are at
 * its number modulo KVR_METRICS_RANKS, so that they can stay there when a lower
 * first rank appears.
 */
static void
kvr_metrics_named(kvr_metrics_reader_t *r, const kvr_dialect_t *d, double rank)
{
    uint32_t  n, first;

    r->rank = 0;

    if (!(rank >= 0 && rank < KVR_METRICS_NAMES)) {
        return;
    }

    n = (uint32_t) rank;
    first = d->nodes ? n : 0;

    if (r->ranks && r->first >= first + KVR_METRICS_RANKS) {
        memset(r->each, 0, sizeof(r->each));
        r->ranks = 0;
    }

    if (r->ranks == 0) {
        r->first = first;
    }

    for ( /* void */ ; r->first > first; r->ranks++) {
        r->first--;
        memset(&r->each[r->first % KVR_METRICS_RANKS], 0,
               sizeof(kvr_metrics_sums_t));
    }

    r->ranks = kvr_min(r->ranks, KVR_METRICS_RANKS);

    if (n - r->first < KVR_METRICS_RANKS) {
        r->rank = n % KVR_METRICS_RANKS + 1;
        r->ranks = kvr_max(r->ranks, n - r->first + 1);
    }
}


static void
kvr_metrics_add(kvr_metrics_reader_t *r, kvr_series_e series, double value)
{
    r->all.sum[series] += value;
    r->all.count[series]++;

    if (r->rank) {
        r->each[r->rank - 1].sum[series] += value;
        r->each[r->rank - 1].count[series]++;
    }
}


static int
kvr_metrics_take(const kvr_metrics_sums_t *s, kvr_series_e series,
    kvr_series_e other, double *value)
{
    if (s->count[series] == 0) {
        series = other;
    }

    *value = s->sum[series];

    return s->count[series] != 0;
}


/* Converts a sum, which can be too large for an integer. */
static uint64_t
kvr_metrics_count(double value)
{
    return (uint64_t) kvr_min(value, 1e18);
}


void
kvr_metrics_end(kvr_metrics_reader_t *r)
{
    if (r->mode == 'p' && !r->drop && r->len) {
        r->line[r->len] = '\0';
        kvr_metrics_line(r, r->line);
        r->len = 0;
    }

    kvr_metrics_total(&r->all, r->mode, &r->m);
}


void
kvr_metrics_rank(const kvr_metrics_reader_t *r, uint32_t rank,
    kvr_metrics_t *m)
{
    uint32_t  common;

    common = r->m.set & (KVR_METRICS_START|KVR_METRICS_LORA
                         |KVR_METRICS_NO_CACHE);

    *m = r->m;
    m->set = 0;

    kvr_metrics_total(&r->each[(r->first + rank) % KVR_METRICS_RANKS], r->mode,
                      m);

    if (!(m->set & KVR_METRICS_START)) {
        m->start = r->m.start;
    }

    m->set |= common;
}


static void
kvr_metrics_total(const kvr_metrics_sums_t *s, uint8_t mode, kvr_metrics_t *m)
{
    double  v;

    if (kvr_metrics_take(s, KVR_SERIES_RUNNING, KVR_SERIES_RUNNING, &v)
        && v < 1e9)
    {
        m->set |= KVR_METRICS_RUNNING;
        m->running = (uint32_t) v;
    }

    if (kvr_metrics_take(s, KVR_SERIES_WAITING_ROOM, KVR_SERIES_WAITING, &v)
        && v < 1e9)
    {
        m->set |= KVR_METRICS_WAITING;
        m->waiting = (uint32_t) v;
    }

    if (kvr_metrics_take(s, KVR_SERIES_KV, KVR_SERIES_KV_OLD, &v)) {
        v /= s->count[s->count[KVR_SERIES_KV] ? KVR_SERIES_KV
                                              : KVR_SERIES_KV_OLD];
        if (v <= 1.001) {
            m->set |= KVR_METRICS_KV;
            m->kv = v;
        }
    }

    if (kvr_metrics_take(s, KVR_SERIES_HITS, KVR_SERIES_HITS_OLD, &v)) {
        m->set |= KVR_METRICS_HITS;
        m->hits = kvr_metrics_count(v);
    }

    if (kvr_metrics_take(s, KVR_SERIES_QUERIES, KVR_SERIES_QUERIES_OLD, &v)) {
        m->set |= KVR_METRICS_QUERIES;
        m->queries = kvr_metrics_count(v);

    } else if (s->count[KVR_SERIES_COMPUTED] && m->set & KVR_METRICS_HITS) {
        m->set |= KVR_METRICS_QUERIES;
        m->queries = m->hits
                     + kvr_metrics_count(s->sum[KVR_SERIES_COMPUTED]);
    }

    if (s->count[KVR_SERIES_PREEMPTIONS]) {
        m->set |= KVR_METRICS_PREEMPTIONS;
        m->preemptions = kvr_metrics_count(s->sum[KVR_SERIES_PREEMPTIONS]);
    }

    v = s->sum[KVR_SERIES_START];

    if (v > 0 && v < 1e12) {
        m->set |= KVR_METRICS_START;
        m->start = v / s->count[KVR_SERIES_START];
    }

    v = s->sum[KVR_SERIES_TOKENS];

    if (v == 0 && mode == 'p') {
        v = s->sum[KVR_SERIES_BLOCKS] * s->sum[KVR_SERIES_BLOCK_SIZE];

        if (s->count[KVR_SERIES_BLOCK_SIZE] > 1) {
            v /= s->count[KVR_SERIES_BLOCK_SIZE];
        }
    }

    if (v >= 1 && v < 1e15) {
        m->set |= KVR_METRICS_CAPACITY;
        m->capacity = (uint64_t) v;

        if (mode == 'j' && s->sum[KVR_SERIES_BLOCKS] <= v
            && s->count[KVR_SERIES_BLOCKS])
        {
            m->set |= KVR_METRICS_KV;
            m->kv = s->sum[KVR_SERIES_BLOCKS] / v;
        }
    }

    if (s->count[KVR_SERIES_NO_CACHE]) {
        m->set |= KVR_METRICS_NO_CACHE;
    }
}
