
/*
 * Copyright (C) kvroute contributors
 */


#include "core/learn/kvr_retention.h"


#define KVR_RETENTION_FULL  64       /* a class with this many is halved */


static int32_t kvr_retention_worth(const kvr_retention_sum_t *sum,
    uint32_t class);
static int32_t kvr_retention_best(const kvr_retention_sum_t *sum, uint32_t *at);
static uint32_t kvr_retention_class(uint32_t age);
static uint32_t kvr_retention_age(uint32_t class);


static inline int32_t
kvr_retention_delivered(uint32_t x)
{
    return (int32_t) (x & 0xff);
}


static inline int32_t
kvr_retention_lost(uint32_t x)
{
    return (int32_t) (x >> 8);
}


void
kvr_retention_note(kvr_retention_t *h, uint32_t age, int delivered)
{
    uint32_t           x;
    _Atomic uint16_t  *seen;

    seen = &h->seen[kvr_retention_class(age)];

    x = kvr_get(seen);

    if (kvr_retention_delivered(x) + kvr_retention_lost(x)
        >= KVR_RETENTION_FULL) {
        x = x >> 1 & 0x7f7f;
    }

    kvr_set(seen, (uint16_t) (x + (delivered ? 1 : 1U << 8)));
}


uint32_t
kvr_retention_get(const kvr_retention_t *h)
{
    kvr_retention_sum_t  own;

    memset(&own, 0, sizeof(kvr_retention_sum_t));
    kvr_retention_add(&own, h);

    return kvr_retention_all(&own);
}


uint32_t
kvr_retention_all(const kvr_retention_sum_t *sum)
{
    int32_t   best;
    uint32_t  at;

    best = kvr_retention_best(sum, &at);

    /* the peer delivered nothing, or lost so little that it may be chance */

    if (best == 0
        || best - kvr_retention_worth(sum, KVR_RETENTION_CLASSES)
           < KVR_RETENTION_ENOUGH)
    {
        return 0;
    }

    return kvr_retention_age(at);
}


void
kvr_retention_add(kvr_retention_sum_t *sum, const kvr_retention_t *h)
{
    uint32_t  i, x;

    for (i = 0; i < KVR_RETENTION_CLASSES; i++) {
        x = kvr_get(&h->seen[i]);
        sum->worth[i] += kvr_retention_delivered(x) - kvr_retention_lost(x);
    }
}


uint32_t
kvr_retention_among(const kvr_retention_t *h, const kvr_retention_sum_t *sum)
{
    int32_t              best;
    uint32_t             age, at;
    kvr_retention_sum_t  own;

    memset(&own, 0, sizeof(kvr_retention_sum_t));
    kvr_retention_add(&own, h);

    age = kvr_retention_all(sum);
    best = kvr_retention_best(&own, &at);

    if (age == 0
        || best - kvr_retention_worth(&own, kvr_retention_class(age))
           >= KVR_RETENTION_ENOUGH)
    {
        return kvr_retention_all(&own);
    }

    return age;
}


int
kvr_retention_beyond(const kvr_retention_sum_t *sum, uint32_t age)
{
    int32_t   worth;
    uint32_t  i;

    for (i = kvr_retention_class(age) + 1, worth = 0;
         i < KVR_RETENTION_CLASSES;
         i++)
    {
        worth += sum->worth[i];

        if (worth >= KVR_RETENTION_ENOUGH) {
            return 1;
        }
    }

    return 0;
}


/* Returns the blocks delivered less those lost in the classes below. */
static int32_t
kvr_retention_worth(const kvr_retention_sum_t *sum, uint32_t class)
{
    int32_t   worth;
    uint32_t  i;

    for (i = 0, worth = 0; i < class; i++) {
        worth += sum->worth[i];
    }

    return worth;
}


/*
 * Finds the class where the retention explains most observations: the classes
 * before it have the most blocks delivered less blocks lost.  Of several such
 * classes it is the last.  Returns that number.
 */
static int32_t
kvr_retention_best(const kvr_retention_sum_t *sum, uint32_t *at)
{
    int32_t   worth, best;
    uint32_t  i;

    worth = 0;
    best = 0;
    *at = 0;

    for (i = 0; i < KVR_RETENTION_CLASSES; i++) {
        worth += sum->worth[i];

        if (worth >= best) {
            best = worth;
            *at = i + 1;
        }
    }

    return best;
}


/* Returns the class of an age.  Those of one doubling are equally wide. */
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


/* Returns the lowest age of a class. */
static uint32_t
kvr_retention_age(uint32_t class)
{
    uint32_t  log;

    log = KVR_RETENTION_FIRST + class / 4;

    return (4 + class % 4) << (log - 2);
}
