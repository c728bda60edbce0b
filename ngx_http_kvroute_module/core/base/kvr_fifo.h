
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_FIFO_H_INCLUDED_
#define _KVR_FIFO_H_INCLUDED_


/*
 * A ring in shared memory, by which all processes of a host hand records to the
 * one that sends them.
 *
 * A record is a few words, in as many slots of a cache line as it takes.  A
 * writer reserves them by moving head, fills them, and gives each its number,
 * the first one last.  The reader takes a record when all its slots have their
 * numbers.  Nobody waits: if there is no room the record is dropped and
 * counted.  Slots are free again when the reader moves tail past them.
 *
 * A writer that is killed leaves slots without numbers.  The reader passes one
 * slot at a time if it is told to, up to the next first slot of a record.  A
 * writer that was only stopped may come back and write to slots that are
 * another's by then.  A record has a check for that: what was mixed is dropped.
 */


#include "core/base/kvr_core.h"


#define KVR_FIFO_SLOTS  16384      /* a power of two: 1 MB */
#define KVR_FIFO_WORDS  7          /* of a slot, beside its number */

/* words of the longest record: a half of a thousandth of the ring */
#define KVR_FIFO_MAX    520


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t        number;      /* place + 1, twice; 1 more: first */
    _Atomic uint64_t        word[KVR_FIFO_WORDS];
} kvr_fifo_slot_t;


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t        head;        /* places reserved, ever */
    _Atomic uint64_t        dropped;     /* records, for want of room */

    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t        tail;        /* places read */

    kvr_fifo_slot_t        slot[KVR_FIFO_SLOTS];
} kvr_fifo_t;


/* a part of a record */
typedef struct {
    const uint64_t         *word;
    uint32_t                n;
} kvr_fifo_part_t;


/*
 * Puts a record that comes in parts, any of which may be empty: 1 to
 * KVR_FIFO_MAX words in all.  Returns 0 if it was dropped.
 */
int kvr_fifo_put(kvr_fifo_t *ring, const kvr_fifo_part_t *part,
    uint32_t parts);

/*
 * Reads the record at a place, and moves the place to the next one.  There is
 * room for KVR_FIFO_MAX words.  Returns how many it has; 0: no record
 * begins there, and the place was moved by a slot; KVR_AGAIN: it is not written
 * yet; KVR_DECLINED: nothing is there.  skip: does not wait for what is not
 * written, but moves on by a slot, and returns KVR_ERROR.
 */
int kvr_fifo_get(kvr_fifo_t *ring, uint64_t *place,
    uint64_t *words, int skip);


#endif /* _KVR_FIFO_H_INCLUDED_ */
