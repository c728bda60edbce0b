
/*
 * Copyright (C) kvroute contributors
 */


#include "core/state/kvr_tally.h"


#define KVR_TALLY_NONE  ((uint32_t) -1)

#define KVR_TALLY_WORDS  (sizeof(kvr_tally_counts_t) / sizeof(uint64_t))


static uint32_t kvr_tally_claim(kvr_tally_t *tally,
    const kvr_tally_owner_t *owner, uint64_t key, uint64_t now);
static uint32_t kvr_tally_free(const kvr_tally_t *tally, kvr_tally_kind_e kind,
    uint64_t now);
static void kvr_tally_add(kvr_tally_counts_t *dst,
    const kvr_tally_counts_t *src);
static void kvr_tally_clear(kvr_tally_counts_t *counts);


/* Returns the key of a name in an upstream: even, and not 0. */
static uint64_t
kvr_tally_key(const kvr_tally_owner_t *owner)
{
    uint64_t  key;

    key = kvr_mix(owner->hash, owner->upstream + 1) & ~UINT64_C(1);

    return key ? key : 2;
}


void
kvr_tally_take(kvr_tally_t *tally, const kvr_tally_owner_t *owner,
    const kvr_tally_counts_t *counts, int claim, uint64_t now)
{
    uint32_t            n;
    uint64_t            key;
    kvr_tally_entry_t  *e;

    if (owner->upstream >= KVR_TALLY_UPSTREAMS) {
        return;
    }

    n = KVR_TALLY_NONE;

    if (owner->len) {
        key = kvr_tally_key(owner);

        for (n = 0; n < KVR_TALLY_ENTRIES; n++) {
            if (kvr_get(&tally->key[owner->kind][n]) == key) {
                break;
            }
        }

        if (n == KVR_TALLY_ENTRIES) {
            n = claim ? kvr_tally_claim(tally, owner, key, now)
                      : KVR_TALLY_NONE;
        }
    }

    if (n == KVR_TALLY_NONE) {
        kvr_tally_add(&tally->other[owner->kind][owner->upstream], counts);
        return;
    }

    e = &tally->entry[owner->kind][n];

    kvr_set(&e->last, now);
    kvr_tally_add(&e->counts, counts);
}


static uint32_t
kvr_tally_claim(kvr_tally_t *tally, const kvr_tally_owner_t *owner,
    uint64_t key, uint64_t now)
{
    size_t              i, len;
    uint32_t            n, upstream;
    uint64_t            old;
    const uint8_t      *p;
    kvr_tally_entry_t  *e;

    n = kvr_tally_free(tally, owner->kind, now);

    if (n == KVR_TALLY_NONE) {
        return n;
    }

    old = kvr_get(&tally->key[owner->kind][n]);

    if (!atomic_compare_exchange_strong(&tally->key[owner->kind][n], &old,
                                        now << 1 | 1))
    {
        return KVR_TALLY_NONE;
    }

    e = &tally->entry[owner->kind][n];
    upstream = kvr_get(&e->upstream);

    if (old && upstream < KVR_TALLY_UPSTREAMS) {
        kvr_tally_add(&tally->other[owner->kind][upstream], &e->counts);
    }

    kvr_tally_clear(&e->counts);

    len = kvr_min(owner->len, KVR_TALLY_NAME_LEN);

    for (i = 0, p = owner->name; i < len; i++) {
        kvr_set(&e->name[i],
                (uint8_t) (p[i] >= ' ' && p[i] < 0x7f ? p[i] : '?'));
    }

    kvr_set(&e->len, (uint32_t) len);
    kvr_set(&e->upstream, owner->upstream);
    kvr_set(&e->last, now);

    atomic_store_explicit(&tally->key[owner->kind][n], key,
                          memory_order_release);

    return n;
}


/* Returns a free entry, or the one that is idle for longest. */
static uint32_t
kvr_tally_free(const kvr_tally_t *tally, kvr_tally_kind_e kind, uint64_t now)
{
    uint32_t  i, n;
    uint64_t  key, last, oldest;

    n = KVR_TALLY_NONE;
    oldest = now;

    for (i = 0; i < KVR_TALLY_ENTRIES; i++) {
        key = kvr_get(&tally->key[kind][i]);

        if (key == 0) {
            return i;
        }

        if (key & 1) {
            if ((key >> 1) + KVR_TALLY_CLAIM <= now) {
                return i;
            }

            continue;
        }

        last = kvr_get(&tally->entry[kind][i].last);

        if (last + KVR_TALLY_IDLE <= now && last < oldest) {
            n = i;
            oldest = last;
        }
    }

    return n;
}


int
kvr_tally_get(const kvr_tally_t *tally, kvr_tally_kind_e kind, uint32_t n,
    uint32_t upstream, kvr_tally_view_t *view)
{
    size_t                    i;
    uint64_t                  key;
    const kvr_tally_entry_t  *e;

    e = &tally->entry[kind][n];

    key = atomic_load_explicit(&tally->key[kind][n], memory_order_acquire);

    if (key == 0 || key & 1 || kvr_get(&e->upstream) != upstream) {
        return 0;
    }

    view->len = kvr_min(kvr_get(&e->len), KVR_TALLY_NAME_LEN);

    for (i = 0; i < view->len; i++) {
        view->name[i] = (char) kvr_get(&e->name[i]);
    }

    kvr_tally_clear(&view->counts);
    kvr_tally_add(&view->counts, &e->counts);

    atomic_thread_fence(memory_order_acquire);

    return kvr_get(&tally->key[kind][n]) == key;
}


uint32_t
kvr_tally_list(const kvr_tally_t *tally, kvr_tally_kind_e kind,
    uint32_t upstream, kvr_tally_view_t view[KVR_TALLY_ENTRIES + 1])
{
    uint32_t                   i, k, n;
    const kvr_tally_counts_t  *other;

    n = 0;

    for (i = 0; i < KVR_TALLY_ENTRIES; i++) {

        if (!kvr_tally_get(tally, kind, i, upstream, &view[n])) {
            continue;
        }

        for (k = 0; k < n; k++) {
            if (view[k].len == view[n].len
                && memcmp(view[k].name, view[n].name, view[n].len) == 0)
            {
                break;
            }
        }

        if (k < n) {
            kvr_tally_add(&view[k].counts, &view[n].counts);

        } else {
            n++;
        }
    }

    other = &tally->other[kind][upstream];

    if (kvr_get(&other->requests) || kvr_get(&other->rejects)) {
        view[n].len = 0;
        kvr_tally_clear(&view[n].counts);
        kvr_tally_add(&view[n].counts, other);
        n++;
    }

    return n;
}


void
kvr_tally_reset(kvr_tally_t *tally)
{
    uint32_t  i, kind;

    for (kind = 0; kind < KVR_TALLY_KINDS; kind++) {

        for (i = 0; i < KVR_TALLY_ENTRIES; i++) {
            kvr_tally_clear(&tally->entry[kind][i].counts);
        }

        for (i = 0; i < KVR_TALLY_UPSTREAMS; i++) {
            kvr_tally_clear(&tally->other[kind][i]);
        }
    }
}


void
kvr_tally_forget(kvr_tally_t *tally, uint32_t upstream)
{
    uint32_t  i, kind;

    for (kind = 0; kind < KVR_TALLY_KINDS; kind++) {

        for (i = 0; i < KVR_TALLY_ENTRIES; i++) {
            if (kvr_get(&tally->entry[kind][i].upstream) == upstream
                && !(kvr_get(&tally->key[kind][i]) & 1))
            {
                kvr_set(&tally->key[kind][i], 0);
            }
        }

        kvr_tally_clear(&tally->other[kind][upstream]);
    }
}


static void
kvr_tally_add(kvr_tally_counts_t *dst, const kvr_tally_counts_t *src)
{
    size_t                   i;
    uint64_t                 n;
    _Atomic uint64_t        *d;
    const _Atomic uint64_t  *s;

    d = (_Atomic uint64_t *) dst;
    s = (const _Atomic uint64_t *) src;

#pragma GCC unroll 12
    for (i = 0; i < KVR_TALLY_WORDS; i++) {
        n = kvr_get(&s[i]);

        if (n) {
            kvr_add(&d[i], n);
        }
    }
}


static void
kvr_tally_clear(kvr_tally_counts_t *counts)
{
    size_t             i;
    _Atomic uint64_t  *p;

    p = (_Atomic uint64_t *) counts;

    for (i = 0; i < KVR_TALLY_WORDS; i++) {
        kvr_set(&p[i], 0);
    }
}
