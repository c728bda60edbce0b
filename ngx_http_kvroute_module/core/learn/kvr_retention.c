
/*
 * Copyright (C) kvroute contributors
 */


#include "core/learn/kvr_retention.h"


#define KVR_RETENTION_FULL  64       /* observations of a class: then halved */

#define kvr_retention_delivered(x)  ((int32_t) ((x) & 0xffff))
#define kvr_retention_lost(x)     ((int32_t) ((x) >> 16))


static int32_t kvr_retention_worth(const kvr_retention_t *h, uint32_t class);
static int32_t kvr_retention_best(const kvr_retention_t *h, uint32_t *at);
static uint32_t kvr_retention_class(uint32_t age);
static uint32_t kvr_retention_age(uint32_t class);


void
kvr_retention_note(kvr_retention_t *h, uint32_t age, int delivered)
{
    uint32_t           x;
    _Atomic uint32_t  *seen;

    seen = &h->seen[kvr_retention_class(age)];

    x = kvr_get(seen);

    if (kvr_retention_delivered(x) + kvr_retention_lost(x)
        >= KVR_RETENTION_FULL) {
        x = x >> 1 & 0x7fff7fff;
    }

    kvr_set(seen, x + (delivered ? 1 : 1U << 16));
}


uint32_t
kvr_retention_get(const kvr_retention_t *h)
{
    int32_t   best;
    uint32_t  at;

    best = kvr_retention_best(h, &at);

    /* nothing was delivered, or the few losses may be chance */

    if (best == 0
        || best - kvr_retention_worth(h, KVR_RETENTION_CLASSES)
           < KVR_RETENTION_ENOUGH)
    {
        return 0;
    }

    return kvr_retention_age(at);
}


/* 512 peers at KVR_RETENTION_FULL each do not run over */
void
kvr_retention_add(kvr_retention_t *sum, const kvr_retention_t *h)
{
    uint32_t  i;

    for (i = 0; i < KVR_RETENTION_CLASSES; i++) {
        kvr_set(&sum->seen[i], kvr_get(&sum->seen[i]) + kvr_get(&h->seen[i]));
    }
}


uint32_t
kvr_retention_among(const kvr_retention_t *h, const kvr_retention_t *sum)
{
    int32_t   best;
    uint32_t  age, at;

    age = kvr_retention_get(sum);
    best = kvr_retention_best(h, &at);

    if (age == 0
        || best - kvr_retention_worth(h, kvr_retention_class(age))
           >= KVR_RETENTION_ENOUGH)
    {
        return kvr_retention_get(h);
    }

    return age;
}


/* what was delivered before a class, less what was lost */
static int32_t
kvr_retention_worth(const kvr_retention_t *h, uint32_t class)
{
    int32_t   sum;
    uint32_t  i, x;

    sum = 0;

    for (i = 0; i < class; i++) {
        x = kvr_get(&h->seen[i]);
        sum += kvr_retention_delivered(x) - kvr_retention_lost(x);
    }

    return sum;
}


/*
 * The class at which to divide: below it are, as far as can be, those that were
 * delivered, from it on those that were lost.  Of equal ones the last.
 */
static int32_t
kvr_retention_best(const kvr_retention_t *h, uint32_t *at)
{
    int32_t   sum, best;
    uint32_t  i, x;

    sum = 0;
    best = 0;
    *at = 0;

    for (i = 0; i < KVR_RETENTION_CLASSES; i++) {
        x = kvr_get(&h->seen[i]);
        sum += kvr_retention_delivered(x) - kvr_retention_lost(x);

        if (sum >= best) {
            best = sum;
            *at = i + 1;
        }
    }

    return best;
}


/* four to a doubling, in even steps within it */
static uint32_t
kvr_retention_class(uint32_t age)
{
    uint32_t  log, class;

    if (age < (1U << KVR_RETENTION_FIRST)) {
        return 0;
    }

    log = 31 - (uint32_t) __builtin_clz(age);

    class = (log - KVR_RETENTION_FIRST) * 4 + (age >> (log - 2) & 3);

    return kvr_min(class, KVR_RETENTION_CLASSES - 1);
}


/* where a class begins */
static uint32_t
kvr_retention_age(uint32_t class)
{
    uint32_t  log;

    log = KVR_RETENTION_FIRST + class / 4;

    return (4 + class % 4) << (log - 2);
}
