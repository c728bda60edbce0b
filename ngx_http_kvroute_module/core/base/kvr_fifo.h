
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_FIFO_H_INCLUDED_
#define _KVR_FIFO_H_INCLUDED_


/*
 * A ring in shared memory: all processes of a host put records, one process
 * gets them.
 *
 * A record is a few words, in as many slots of a cache line as it needs.  The
 * writer reserves the slots by moving head, fills them and then sets the number
 * of each, the first one last.  The reader takes a record when all its slots
 * have their numbers.  No process waits: without room, a record is dropped
 * and counted.  The reader frees slots by moving tail.
 *
 * A writer that is killed leaves slots without numbers.  After KVR_FIFO_STUCK
 * the reader skips them, slot by slot, up to the next first slot of a record.
 * A writer that was only stopped can resume and write to slots that belong to
 * another record by then.  Each record has a checksum, so the reader drops such
 * a mixture.
 */


#include "core/base/kvr_core.h"


#define KVR_FIFO_SLOTS  16384      /* a power of two: 1 MB */
#define KVR_FIFO_WORDS  7          /* of a slot, without its number */

/* words of the longest record: 1/2000 of the ring */
#define KVR_FIFO_MAX    520

#define KVR_FIFO_STUCK  100        /* ms until a writer counts as dead */
#define KVR_FIFO_SKIP   UINT64_MAX /* a time: no writer is waited for */


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t        number;      /* 2 * (place + 1), first: plus 1 */
    _Atomic uint64_t        word[KVR_FIFO_WORDS];
} kvr_fifo_slot_t;


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t        head;        /* places reserved so far */
    _Atomic uint64_t        dropped;     /* records, the ring was full */

    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t        tail;        /* places read so far */
    _Atomic uint64_t        stuck;       /* unwritten place, + 1, */
    _Atomic uint64_t        since;       /* since this time, ms */

    kvr_fifo_slot_t        slot[KVR_FIFO_SLOTS];
} kvr_fifo_t;


/* a part of a record */
typedef struct {
    const uint64_t         *word;
    uint32_t                n;
} kvr_fifo_part_t;


/*
 * Puts a record of 1 to KVR_FIFO_MAX words in several parts, which can be
 * empty.  Returns 0 if it was dropped.
 */
int kvr_fifo_put(kvr_fifo_t *ring, const kvr_fifo_part_t *part,
    uint32_t parts);

/*
 * Reads the record at a place into words[KVR_FIFO_MAX] and moves the place to
 * the next record.  Returns its length.  0: no record begins here; the place
 * was moved by a slot.  KVR_ERROR: likewise, and a record is lost.  KVR_AGAIN:
 * the record is not complete yet.  KVR_DECLINED: the ring has no more.
 */
int kvr_fifo_get(kvr_fifo_t *ring, uint64_t *place, uint64_t *words,
    uint64_t now);


#endif /* _KVR_FIFO_H_INCLUDED_ */
