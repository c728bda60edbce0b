
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_TAG_H_INCLUDED_
#define _KVR_TAG_H_INCLUDED_


/*
 * Each line has a tag of two bytes, behind the lines.  The tags of a bucket are
 * one word, and all tags a 32nd of the table.  So a lookup usually reads only a
 * few lines of a prompt, and an insert reads only the line that it replaces.
 *
 *     tag, 9 bits     of the line's key
 *     mark, 1 bit     a holder of this block may not hold the next ones
 *     epoch, 6 bits   time of the last use, in coarse steps of the table's
 *                     clock
 *
 * A free line has 0.  The line's own words decide: a wrong tag, left by an
 * overtaken or killed process, makes a line invisible or read in vain until the
 * sweep corrects it.  So all accesses are relaxed.
 */


#include "core/index/kvr_index_table.h"


#define KVR_TAG_ONES    0x0001000100010001ULL  /* one in each of a word */

#define KVR_TAG_KEY     7            /* the tag's lowest bit */
#define KVR_TAG_KEYS    0x1ffULL
#define KVR_TAG_MARK    0x40
#define KVR_TAG_EPOCH   0x3f

/* epochs by which another process's clock may lag */
#define KVR_TAG_SLACK   4

/* the sweep limits ages to this many epochs; it returns before 32 */
#define KVR_TAG_OLD     24

/* an epoch is at most a quarter of the table, in units */
#define KVR_TAG_SHIFT       10       /* but 1024 at least */
#define KVR_TAG_SHIFT_MAX   26


typedef union {
    _Atomic uint64_t   word;
    _Atomic uint16_t   way[KVR_INDEX_WAYS];
} kvr_tag_t;

_Static_assert(sizeof(kvr_tag_t) == sizeof(uint64_t), "tags of a bucket");


static inline kvr_tag_t *
kvr_tag_bucket(kvr_index_t *ix, uint64_t bucket)
{
    return (kvr_tag_t *) (void *) &ix->line[ix->nlines] + bucket;
}


static inline _Atomic uint16_t *
kvr_tag_line(kvr_index_t *ix, kvr_index_line_t *line)
{
    return (_Atomic uint16_t *) (void *) kvr_tag_bucket(ix, 0)
           + (line - ix->line);
}


static inline unsigned
kvr_tag_key(uint64_t key)
{
    return key >> 1 & KVR_TAG_KEYS;
}


/* Returns the epoch of a time of the table's clock. */
static inline unsigned
kvr_tag_epoch(kvr_index_t *ix, uint32_t touched)
{
    return touched >> ix->epoch & KVR_TAG_EPOCH;
}


/* Returns bit 9 of each way with a tag; exact, as no carry leaves its way. */
static inline uint64_t
kvr_tag_match(uint64_t word, unsigned tag)
{
    uint64_t  ones, differ;

    ones = KVR_TAG_ONES;

    /* keeps the multiplication: gcc would make many shifts of it */

    __asm__("" : "+r" (ones));

    differ = (word >> KVR_TAG_KEY & KVR_TAG_KEYS * KVR_TAG_ONES)
             ^ tag * ones;

    differ += KVR_TAG_KEYS * KVR_TAG_ONES;

    return ~differ & (KVR_TAG_KEYS + 1) * KVR_TAG_ONES;
}


/* Returns the lowest of these ways. */
static inline unsigned
kvr_tag_way(uint64_t match)
{
    return (unsigned) __builtin_ctzll(match) / 16;
}


/* Tells whether any of them is marked. */
static inline unsigned
kvr_tag_marked(uint64_t word, uint64_t match)
{
    return (word & match >> 3) != 0;
}


/* Returns the epochs since a line's last use, plus the slack. */
static inline unsigned
kvr_tag_age(uint16_t tag, unsigned epoch)
{
    return (epoch + KVR_TAG_SLACK - tag) & KVR_TAG_EPOCH;
}


/* Returns the way for a new line: a free one or the oldest. */
static inline unsigned
kvr_tag_victim(uint64_t word, unsigned epoch)
{
    uint64_t  free, ages, a, b;

    /* the lowest bit is exact */

    free = (word - KVR_TAG_ONES) & ~word & 0x8000 * KVR_TAG_ONES;

    if (free) {
        return kvr_tag_way(free);
    }

    ages = (epoch + KVR_TAG_SLACK + KVR_TAG_EPOCH + 1) * KVR_TAG_ONES
           - (word & KVR_TAG_EPOCH * KVR_TAG_ONES);
    ages &= KVR_TAG_EPOCH * KVR_TAG_ONES;

    /* maximum of four, with their way below */

    ages = ages << 2 | 0x0003000200010000ULL;

    a = kvr_max(ages & 0xffff, ages >> 16 & 0xffff);
    b = kvr_max(ages >> 32 & 0xffff, ages >> 48);

    return kvr_max(a, b) & 3;
}


static inline void
kvr_tag_change(_Atomic uint16_t *tag, uint16_t old, uint16_t new)
{
    (void) atomic_compare_exchange_strong_explicit(tag, &old, new,
                                                   memory_order_relaxed,
                                                   memory_order_relaxed);
}


/* Notes a use in this epoch. */
static inline void
kvr_tag_touch(_Atomic uint16_t *tag, unsigned epoch)
{
    uint16_t  h;

    h = kvr_get(tag);

    if (kvr_unlikely((h ^ epoch) & KVR_TAG_EPOCH)) {
        kvr_tag_change(tag, h, (uint16_t) ((h & ~KVR_TAG_EPOCH) | epoch));
    }
}


/* Limits the ages of a bucket, as epochs wrap. */
static inline void
kvr_tag_renew(kvr_tag_t *tags, unsigned epoch)
{
    uint64_t  word, new, ages, old;

    word = kvr_get(&tags->word);

    ages = (epoch + KVR_TAG_SLACK + KVR_TAG_EPOCH + 1) * KVR_TAG_ONES
           - (word & KVR_TAG_EPOCH * KVR_TAG_ONES);
    ages &= KVR_TAG_EPOCH * KVR_TAG_ONES;

    /* bit 6 of those that are too old, and then only of those in use */

    old = ages + (KVR_TAG_EPOCH - KVR_TAG_SLACK - KVR_TAG_OLD)
                 * KVR_TAG_ONES;
    old &= (((word & 0x7fff * KVR_TAG_ONES) + 0x7fff * KVR_TAG_ONES) | word)
           >> 9 & (KVR_TAG_EPOCH + 1) * KVR_TAG_ONES;

    if (kvr_likely(old == 0)) {
        return;
    }

    /* all six bits of these */

    old = old - (old >> 6);
    new = (word & ~old)
          | (((epoch - KVR_TAG_OLD) & KVR_TAG_EPOCH) * KVR_TAG_ONES & old);

    (void) atomic_compare_exchange_strong_explicit(&tags->word, &word, new,
                                                   memory_order_relaxed,
                                                   memory_order_relaxed);
}


/* Marks a line, so that lookups read it. */
static inline void
kvr_tag_mark(_Atomic uint16_t *tag)
{
    if (!(kvr_get(tag) & KVR_TAG_MARK)) {
        (void) atomic_fetch_or(tag, KVR_TAG_MARK);
    }
}


#endif /* _KVR_TAG_H_INCLUDED_ */
