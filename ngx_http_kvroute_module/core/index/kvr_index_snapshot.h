
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_INDEX_SNAPSHOT_H_INCLUDED_
#define _KVR_INDEX_SNAPSHOT_H_INCLUDED_


/*
 * Lines of the index as records in a file.
 *
 *     head 1     holders, 0 .. 8, and KVR_INDEX_SNAPSHOT_...
 *     key 8      of the line
 *     touched 4
 *     holder 6   peer 2, stamp 4; as many as the head says
 *     mask 8, masked 4           if the head says so
 *     peer 2, expires 4, generation 4    instead, of a session
 *
 * Words are in the machine's order.  A record has no place, so it fits a table
 * of any size.  Stamps refer to the clocks at the time of writing, so the
 * reader first sets the clocks to their values after the last line was
 * written.
 *
 * Processes insert and evict while lines are written.  A line is read as in a
 * lookup: it is used only if key and ids are the same afterwards.  So its
 * holders belong to its block.  A line that changes is left out, and one that
 * moves can be left out or written twice.  A missing line costs a miss.  Lines
 * are independent, so their different times do not matter.
 */


#include "core/index/kvr_index.h"


/* bytes of the longest record */
#define KVR_INDEX_SNAPSHOT_LINE  (1 + 8 + 4 + KVR_INDEX_HOLDERS * 6 + 12)

/* bits of the head */
#define KVR_INDEX_SNAPSHOT_HOLDERS  0x0f
#define KVR_INDEX_SNAPSHOT_MASK     0x10
#define KVR_INDEX_SNAPSHOT_MARK     0x20    /* kvr_index_tag.h */
#define KVR_INDEX_SNAPSHOT_SESSION  0x40


/*
 * Writes the records of count lines from line "first" on, as far as they exist
 * and hold anything.  p has room for count * KVR_INDEX_SNAPSHOT_LINE bytes.
 * Returns the end of what was written.
 */
uint8_t *kvr_index_snapshot_write(kvr_index_t *ix, uint64_t first,
    uint64_t count, uint8_t *p);

/* Returns the length of the record at p; 0: none, or cut short. */
size_t kvr_index_snapshot_length(const uint8_t *p, size_t len);

/*
 * Puts the line of a record into a table that no other process uses yet, with
 * those of its holders that are in the set and still count.  peers: the limit
 * of peers of the writing table: masks are left out if one bit stood for
 * several peers there and stands for one here.  now: s, for sessions.  Returns
 * 1, or 0 if nothing is left of the line.
 */
unsigned kvr_index_snapshot_read(kvr_index_t *ix, const uint8_t *p,
    kvr_set_t set, uint32_t peers, uint32_t now);


static inline uint8_t *
kvr_index_snapshot_put(uint8_t *p, const void *word, size_t len)
{
    memcpy(p, word, len);

    return p + len;
}


static inline const uint8_t *
kvr_index_snapshot_get(const uint8_t *p, void *word, size_t len)
{
    memcpy(word, p, len);

    return p + len;
}


#endif /* _KVR_INDEX_SNAPSHOT_H_INCLUDED_ */
