
/*
 * Copyright (C) kvroute contributors
 */


#include "core/queue/kvr_queue_heap.h"


#define KVR_QUEUE_RETRIES   16
#define KVR_QUEUE_RETRY_MAX 60       /* s */
#define KVR_QUEUE_RATE_MS   10000    /* time constant of the rate */


static kvr_queue_key_t kvr_queue_key(kvr_queue_shared_t *shared,
    kvr_queue_item_t *item);
static kvr_queue_item_t *kvr_queue_head(kvr_queue_t *q,
    kvr_queue_shared_t *shared, unsigned class, kvr_queue_key_t *key);
static kvr_queue_row_t *kvr_queue_row(kvr_queue_shared_t *shared, uint32_t i,
    uint64_t now);
static void kvr_queue_enter(kvr_queue_shared_t *shared,
    kvr_queue_item_t *item);
static int kvr_queue_before(kvr_queue_key_t a, kvr_queue_key_t b);
static int kvr_queue_others(kvr_queue_shared_t *shared, uint32_t row,
    unsigned class, kvr_queue_key_t key, uint64_t now);
static void kvr_queue_charge(kvr_queue_shared_t *shared,
    kvr_queue_item_t *item, uint64_t now);


uint8_t
kvr_queue_tenant(kvr_queue_shared_t *shared, uint64_t hash, uint64_t now)
{
    unsigned             i, k;
    uint64_t             old;
    kvr_queue_tenant_t  *t;

    hash |= 1;

    for (i = 0; i < KVR_QUEUE_TENANTS - 1; i++) {
        k = (unsigned) kvr_reduce(hash, KVR_QUEUE_TENANTS - 1) + i;
        k %= KVR_QUEUE_TENANTS - 1;
        t = &shared->tenant[k];

        old = kvr_get(&t->hash);

        if (old == hash) {
            kvr_set(&t->used, now);
            return (uint8_t) k;
        }

        if (old && (int64_t) (now - kvr_get(&t->used)) < KVR_QUEUE_IDLE) {
            continue;
        }

        if (atomic_compare_exchange_strong(&t->hash, &old, hash)
            || old == hash)
        {
            kvr_set(&t->used, now);
            return (uint8_t) k;
        }
    }

    return KVR_QUEUE_TENANTS - 1;
}


void
kvr_queue_item(kvr_queue_item_t *item, uint64_t now, unsigned class,
    uint8_t tenant, uint32_t weight, uint64_t work, uint32_t deadline)
{
    uint64_t  wait;

    wait = deadline ? deadline : work / KVR_QUEUE_AGING;
    wait = kvr_min(wait, INT32_MAX / 2);

    memset(item, 0, sizeof(kvr_queue_item_t));

    item->class = (uint8_t) kvr_min(class, KVR_QUEUE_CLASSES - 1);
    item->tenant = tenant;
    item->weight = kvr_max(weight, 1);
    item->work = work;
    item->charge = work;
    item->arrival = (uint32_t) now;
    item->due = (uint32_t) (now + wait);
}


void
kvr_queue_insert(kvr_queue_t *q, kvr_queue_shared_t *shared,
    kvr_queue_item_t *item)
{
    kvr_queue_item_t  **heap;

    heap = &q->heap[item->class][item->tenant];

    if (*heap == NULL) {
        kvr_queue_enter(shared, item);
    }

    item->child = NULL;
    item->next = NULL;
    item->prev = NULL;
    item->waiting = 1;

    *heap = kvr_heap_meld(*heap, item);

    q->tenants[item->class] |= 1ULL << item->tenant;
    q->of[item->class][item->tenant]++;
    q->depth[item->class]++;
    q->bytes += item->bytes;
    q->n++;
}


void
kvr_queue_remove(kvr_queue_t *q, kvr_queue_item_t *item)
{
    kvr_queue_item_t   *sub;
    kvr_queue_item_t  **heap;

    if (!item->waiting) {
        return;
    }

    heap = &q->heap[item->class][item->tenant];
    sub = kvr_heap_pairs(item->child);

    if (item->prev == NULL) {
        *heap = sub;

    } else {
        if (item->prev->child == item) {
            item->prev->child = item->next;

        } else {
            item->prev->next = item->next;
        }

        if (item->next) {
            item->next->prev = item->prev;
        }

        *heap = kvr_heap_meld(*heap, sub);
    }

    if (*heap == NULL) {
        q->tenants[item->class] &= ~(1ULL << item->tenant);
    }

    item->waiting = 0;

    q->of[item->class][item->tenant]--;
    q->depth[item->class]--;
    q->bytes -= item->bytes;
    q->n--;
}


kvr_queue_item_t *
kvr_queue_first(kvr_queue_t *q, kvr_queue_shared_t *shared,
    kvr_queue_key_t *key)
{
    unsigned           class;
    kvr_queue_item_t  *first;

    first = NULL;

    for (class = 0; class < KVR_QUEUE_CLASSES && first == NULL; class++) {
        first = kvr_queue_head(q, shared, class, key);
    }

    return first;
}


/* Returns the first of a class, or NULL; sets *key to its key or 0. */
static kvr_queue_item_t *
kvr_queue_head(kvr_queue_t *q, kvr_queue_shared_t *shared, unsigned class,
    kvr_queue_key_t *key)
{
    uint64_t           set;
    kvr_queue_key_t    k;
    kvr_queue_item_t  *item, *first;

    first = NULL;
    *key = 0;

    for (set = q->tenants[class]; set; set &= set - 1) {
        item = q->heap[class][__builtin_ctzll(set)];
        k = kvr_queue_key(shared, item);

        if (first == NULL || kvr_queue_before(k, *key)) {
            first = item;
            *key = k;
        }
    }

    return first;
}


uint32_t
kvr_queue_near(kvr_queue_item_t *item, uint64_t now,
    kvr_queue_item_t **near, uint32_t n)
{
    uint32_t           i, k;
    kvr_queue_item_t  *next;

    n = kvr_heap_before(item, item->due + kvr_queue_pass(item, now), near, n);

    for (i = 1; i < n; i++) {
        next = near[i];

        for (k = i; k > 1 && (int32_t) (next->due - near[k - 1]->due) < 0; k--)
        {
            near[k] = near[k - 1];
        }

        near[k] = next;
    }

    return n;
}


kvr_queue_item_t *
kvr_queue_last(kvr_queue_t *q, unsigned class)
{
    unsigned           c;
    uint64_t           set;
    kvr_queue_item_t  *item, *last;

    for (c = KVR_QUEUE_CLASSES; c-- > class + 1; /* void */ ) {
        last = NULL;

        /* a cheap guess: the last due of the tenants' heads */

        for (set = q->tenants[c]; set; set &= set - 1) {
            item = q->heap[c][__builtin_ctzll(set)];

            while (item->child) {
                item = item->child;
            }

            if (last == NULL || (int32_t) (item->due - last->due) > 0) {
                last = item;
            }
        }

        if (last) {
            return last;
        }
    }

    return NULL;
}


kvr_queue_item_t *
kvr_queue_rival(kvr_queue_t *q, kvr_queue_item_t *item)
{
    double             n, most;
    unsigned           t;
    uint64_t           set;
    kvr_queue_item_t  *head, *rival;

    rival = NULL;
    most = (double) (q->of[item->class][item->tenant] + 1) / item->weight;

    for (set = q->tenants[item->class]; set; set &= set - 1) {
        t = (unsigned) __builtin_ctzll(set);

        head = q->heap[item->class][t];
        n = (double) q->of[item->class][t] / head->weight;

        if (t != item->tenant && n > most) {
            most = n;
            rival = head;
        }
    }

    while (rival && rival->child) {
        rival = rival->child;
    }

    return rival;
}


void
kvr_queue_publish(kvr_queue_shared_t *shared, uint32_t row, kvr_queue_t *q,
    uint64_t now)
{
    unsigned          class, changed;
    uint32_t          rows;
    kvr_queue_key_t   key;
    kvr_queue_row_t  *r;

    r = &shared->row[row];
    changed = 0;

    rows = kvr_get(&shared->rows);

    while (rows <= row
           && !atomic_compare_exchange_weak(&shared->rows, &rows, row + 1))
    {
        /* void */
    }

    for (class = 0; class < KVR_QUEUE_CLASSES; class++) {
        (void) kvr_queue_head(q, shared, class, &key);

        if (kvr_get(&r->depth[class]) != q->depth[class]
            || kvr_get(&r->key[class]) != key)
        {
            kvr_set(&r->key[class], key);
            atomic_store_explicit(&r->depth[class], q->depth[class],
                                  memory_order_release);
            changed = 1;
        }
    }

    kvr_set(&r->bytes, q->bytes);
    atomic_store_explicit(&r->seen, now, memory_order_release);

    /* processes that have compared the rows before must do so again */

    if (changed) {
        atomic_fetch_add(&shared->sequence, 1);
    }
}


int
kvr_queue_admit(kvr_queue_shared_t *shared, uint32_t row, kvr_queue_t *q,
    kvr_queue_item_t *item, uint64_t now, kvr_queue_room_pt room, void *data)
{
    unsigned           i, mine;
    uint64_t           sequence;
    kvr_queue_key_t    key, k;
    kvr_queue_item_t  *first;

    mine = item->waiting;

    /* a process that was busy for long is not stuck */

    if (q->n) {
        kvr_set(&shared->row[row].seen, now);
    }

    if (!mine && q->heap[item->class][item->tenant] == NULL) {
        kvr_queue_enter(shared, item);
    }

    for (i = 0; i < KVR_QUEUE_RETRIES; i++) {

        sequence = atomic_load(&shared->sequence);

        key = kvr_queue_key(shared, mine ? q->heap[item->class][item->tenant]
                                        : item);

        if (!mine) {
            first = kvr_queue_first(q, shared, &k);

            if (first
                && (first->class < item->class
                    || (first->class == item->class
                        && !kvr_queue_before(key, k))))
            {
                return KVR_DECLINED;
            }
        }

        if (kvr_queue_others(shared, row, item->class, key, now)
            || !room(data, item))
        {
            return KVR_DECLINED;
        }

        if (atomic_compare_exchange_strong(&shared->sequence, &sequence,
                                           sequence + 1))
        {
            kvr_queue_remove(q, item);
            kvr_queue_charge(shared, item, now);

            if (mine) {
                kvr_queue_publish(shared, row, q, now);
            }

            return KVR_OK;
        }

        (void) room(data, NULL);
    }

    return KVR_DECLINED;
}


uint32_t
kvr_queue_depth(kvr_queue_shared_t *shared, unsigned class, uint64_t now)
{
    unsigned          c;
    uint32_t          i, n;
    kvr_queue_row_t  *r;

    for (i = 0, n = 0; i < kvr_get(&shared->rows); i++) {
        r = kvr_queue_row(shared, i, now);

        for (c = 0; r && c <= class && c < KVR_QUEUE_CLASSES; c++) {
            n += kvr_get(&r->depth[c]);
        }
    }

    return n;
}


/* Returns the row of a process, or NULL if it has exited or is stuck. */
static kvr_queue_row_t *
kvr_queue_row(kvr_queue_shared_t *shared, uint32_t i, uint64_t now)
{
    kvr_queue_row_t  *r;

    r = &shared->row[i];

    /* another process's clock can be ahead */

    return (int64_t) (now - kvr_get(&r->seen)) > KVR_QUEUE_STALE ? NULL : r;
}


int
kvr_queue_long(kvr_queue_shared_t *shared, uint32_t peers, uint64_t now)
{
    int       more;
    uint32_t  depth;
    uint64_t  gap, share;

    depth = kvr_queue_depth(shared, KVR_QUEUE_CLASSES - 1, now);
    more = depth > peers;
    share = kvr_get(&shared->share);

    if (!more && share == 0) {
        kvr_set(&shared->looked, now);
        return 0;
    }

    gap = kvr_max((int64_t) (now - kvr_get(&shared->looked)), 0);
    gap = kvr_min(gap, UINT32_MAX);

    share = (share * KVR_QUEUE_LONG + (more ? 1000000 * gap : 0))
            / (KVR_QUEUE_LONG + gap);

    /* not for requests of the same ms: fractions would be lost */

    if (gap) {
        kvr_set(&shared->looked, now);
        kvr_set(&shared->share, share);
    }

    return depth > KVR_QUEUE_DEEP * peers || (more && share > 500000);
}


int
kvr_queue_want(kvr_queue_shared_t *shared, unsigned class, uint64_t now)
{
    uint32_t  all, upto, wanted;

    all = kvr_queue_depth(shared, KVR_QUEUE_CLASSES - 1, now);
    upto = kvr_queue_depth(shared, class, now);
    wanted = kvr_get(&shared->wanted[class]);

    if (all <= upto || wanted >= all - upto) {
        return KVR_DECLINED;
    }

    kvr_add(&shared->wanted[class], 1);

    return KVR_OK;
}


int
kvr_queue_take(kvr_queue_shared_t *shared, unsigned class)
{
    uint32_t  wanted;

    wanted = kvr_get(&shared->wanted[class]);

    while (wanted) {
        if (atomic_compare_exchange_weak(&shared->wanted[class], &wanted,
                                         wanted - 1))
        {
            return KVR_OK;
        }
    }

    return KVR_DECLINED;
}


uint64_t
kvr_queue_bytes(kvr_queue_shared_t *shared, uint64_t now)
{
    uint32_t          i;
    uint64_t          n;
    kvr_queue_row_t  *r;

    for (i = 0, n = 0; i < kvr_get(&shared->rows); i++) {
        r = kvr_queue_row(shared, i, now);
        n += r ? kvr_get(&r->bytes) : 0;
    }

    return n;
}


uint64_t
kvr_queue_rate(kvr_queue_shared_t *shared, uint64_t now)
{
    uint64_t  gap;

    gap = kvr_max((int64_t) (now - kvr_get(&shared->last)), 0);

    return kvr_get(&shared->rate) * KVR_QUEUE_RATE_MS
           / (KVR_QUEUE_RATE_MS + kvr_min(gap, UINT32_MAX));
}


uint32_t
kvr_queue_retry_after(kvr_queue_shared_t *shared, uint64_t now)
{
    uint64_t  rate, s;

    rate = kvr_max(kvr_queue_rate(shared, now), 1);

    s = 1000ULL * kvr_queue_depth(shared, KVR_QUEUE_CLASSES - 1, now) / rate;
    s = kvr_max(s, 1);

    return (uint32_t) kvr_min(s, KVR_QUEUE_RETRY_MAX);
}


/* A tenant that had no waiting requests has no credit: sets its turn. */
static void
kvr_queue_enter(kvr_queue_shared_t *shared, kvr_queue_item_t *item)
{
    uint64_t           turn, now;
    _Atomic uint64_t  *t;

    t = &shared->tenant[item->tenant].turn[item->class];

    now = kvr_get(&shared->turn[item->class]);
    turn = kvr_get(t);

    while (turn < now
           && !atomic_compare_exchange_weak(t, &turn, now))
    {
        /* void */
    }
}


static kvr_queue_key_t
kvr_queue_key(kvr_queue_shared_t *shared, kvr_queue_item_t *item)
{
    uint64_t  key;

    key = kvr_get(&shared->tenant[item->tenant].turn[item->class]);

    return key << 32 | item->due;
}


static int
kvr_queue_before(kvr_queue_key_t a, kvr_queue_key_t b)
{
    int32_t  d;

    d = (int32_t) ((uint32_t) (a >> 32) - (uint32_t) (b >> 32));

    return d ? d < 0 : (int32_t) ((uint32_t) a - (uint32_t) b) < 0;
}


/* Tells whether a waiting request of another process comes first. */
static int
kvr_queue_others(kvr_queue_shared_t *shared, uint32_t row, unsigned class,
    kvr_queue_key_t key, uint64_t now)
{
    unsigned          c;
    uint32_t          i;
    kvr_queue_row_t  *r;

    for (i = 0; i < kvr_get(&shared->rows); i++) {
        r = i == row ? NULL : kvr_queue_row(shared, i, now);

        for (c = 0; r && c <= class; c++) {

            if (atomic_load_explicit(&r->depth[c], memory_order_acquire)
                && (c < class || kvr_queue_before(kvr_get(&r->key[c]), key)))
            {
                return 1;
            }
        }
    }

    return 0;
}


/* Charges an admission to the tenant, and updates the rate. */
static void
kvr_queue_charge(kvr_queue_shared_t *shared, kvr_queue_item_t *item,
    uint64_t now)
{
    uint64_t             turn, was, step, last, rate, gap;
    kvr_queue_tenant_t  *t;

    t = &shared->tenant[item->tenant];

    step = item->charge / item->weight / KVR_QUEUE_UNIT;
    step = kvr_max(step, 1);
    step = kvr_min(step, INT32_MAX / 16);

    turn = kvr_add(&t->turn[item->class], step);

    was = kvr_get(&shared->turn[item->class]);

    while (turn > was
           && !atomic_compare_exchange_weak(&shared->turn[item->class], &was,
                                            turn))
    {
        /* void */
    }

    last = kvr_get(&shared->last);
    kvr_set(&shared->last, now);

    gap = kvr_max((int64_t) (now - last), 0);
    gap = kvr_min(gap, UINT32_MAX);
    rate = kvr_get(&shared->rate);

    /* old admissions fade, each one adds its share, in 1/1000 per second */

    rate = rate * KVR_QUEUE_RATE_MS / (KVR_QUEUE_RATE_MS + gap)
           + 1000000 / KVR_QUEUE_RATE_MS;

    kvr_set(&shared->rate, rate);
}
