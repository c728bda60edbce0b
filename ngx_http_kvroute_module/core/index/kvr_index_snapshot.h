
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
 * Words are as the machine has them.  A record has no place: it goes into a
 * table of any size.  Stamps are of the clocks of the time of writing, so the
 * reader sets the clocks first, to what they were when the last line had been
 * written.
 *
 * Processes teach and evict while lines are written.  A line is taken as a
 * look-up takes it: only if key and ids are the same after it was read.  So
 * its holders are holders of that block; a line that changes is left out, and
 * one that moves may be left out or come twice.  What is left out costs a
 * miss.  Lines do not depend on each other, so it does not matter that they
 * are of different moments.
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
 * Writes the records of count lines, from the line numbered first on, as far
 * as there are such lines and they hold anything.  There is room for count
 * times KVR_INDEX_SNAPSHOT_LINE bytes.  Returns the end of what was written.
 */
uint8_t *kvr_index_snapshot_write(kvr_index_t *ix, uint64_t first,
    uint64_t count, uint8_t *p);

/* the length of the record that begins a text; 0: it is none, or cut short */
size_t kvr_index_snapshot_length(const uint8_t *p, size_t len);

/*
 * Puts the line of a record whose length is known into a table that nobody
 * else uses yet, with those of its holders that are in the set and still count.
 * peers: how many the table that wrote it had room for: where a bit of a mask
 * stood for several and is to stand for one, masks are left out.  now: s, for
 * sessions.  Returns 1, or 0 if nothing is left of it.
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
