
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ZONE_SNAPSHOT_H_INCLUDED_
#define _KVR_ZONE_SNAPSHOT_H_INCLUDED_


/*
 * A zone as a file, so that a new zone can begin with what an old one knew.
 *
 *     head    which format, whose secret
 *     lines   of the index, one after the other (kvr_index_snapshot.h)
 *     peers   by number: their names and clocks
 *     tail    the time, lengths, a digest of all before it
 *
 * It has what peers hold, where sessions are bound, capacities, and when
 * engines were started.  It has no counters, no load, no receipts, and neither
 * a prompt nor the secret: all keys are values of chains that were hashed by
 * the secret, so they match nothing in a zone that has another one.
 *
 * It is written in slices of KVR_ZONE_SNAPSHOT_LINES lines while the zone is in
 * use.  Peers come last: their clocks are then after all stamps.  A number that
 * was given to another peer meanwhile has that peer's floor, so that what was
 * written for the one before does not count.  At worst a peer is credited with
 * a block that it has lost: some prefill.  It never makes one prompt pass for
 * another, as that is decided by the key alone.
 *
 * The digest is keyed, but XXH3 is no MAC.  It finds what was cut short,
 * damaged or made by others by mistake.  Who can write the file on purpose can
 * make requests go to other peers than the best, and nothing more: the reader
 * believes no length and no number.
 */


#include "core/index/kvr_index_snapshot.h"
#include "core/state/kvr_zone.h"

#define XXH_INLINE_ALL
#include <xxhash.h>


/*
 * To be raised when the file, or what chains are made of, becomes another:
 * t/unit/prompt/test_prompt_pinned.c pins the latter.
 */
#define KVR_ZONE_SNAPSHOT_FORMAT  4

/* lines in a slice, and bytes that a slice takes at most */
#define KVR_ZONE_SNAPSHOT_LINES   2048
#define KVR_ZONE_SNAPSHOT_SLICE                                               \
    (KVR_ZONE_SNAPSHOT_LINES * KVR_INDEX_SNAPSHOT_LINE)

/* s; an older one is not believed */
#define KVR_ZONE_SNAPSHOT_AGE     3600


typedef enum {
    KVR_ZONE_SNAPSHOT_OK = 0,
    KVR_ZONE_SNAPSHOT_FOREIGN,       /* no snapshot */
    KVR_ZONE_SNAPSHOT_VERSION,
    KVR_ZONE_SNAPSHOT_UNIT,
    KVR_ZONE_SNAPSHOT_KEY,
    KVR_ZONE_SNAPSHOT_LENGTH,
    KVR_ZONE_SNAPSHOT_DAMAGED,
    KVR_ZONE_SNAPSHOT_OLD,
    KVR_ZONE_SNAPSHOT_RESULTS
} kvr_zone_snapshot_e;


/* a snapshot that is being written */
typedef struct {
    const kvr_zone_t  *zone;
    const uint8_t     *secret;       /* KVR_SECRET_LEN bytes */
    uint64_t           line;         /* the next one */
    uint64_t           bytes;        /* of lines so far */
    unsigned           begun:1;
    unsigned           done:1;
    XXH3_state_t       digest;
} kvr_zone_snapshot_t;


typedef struct {
    uint64_t           lines;        /* taken over */
    uint64_t           age;          /* s */
    uint32_t           peers;
} kvr_zone_snapshot_read_t;


/* zone and secret stay as they are until it is done */
void kvr_zone_snapshot_begin(kvr_zone_snapshot_t *s, const kvr_zone_t *zone,
    const uint8_t *secret);

/*
 * The next bytes of the file, to buf, which has KVR_ZONE_SNAPSHOT_SLICE.
 * Returns their number, which may be 0; after the last ones s->done is 1.
 * now: s since 1970.
 */
size_t kvr_zone_snapshot_next(kvr_zone_snapshot_t *s, uint64_t now,
    uint8_t *buf);

/* whether a file that begins so is a snapshot, of whatever version */
int kvr_zone_snapshot_is(const uint8_t *p, size_t len);

/*
 * Fills a zone that is new, and that nobody else uses yet, from a whole file.
 * All of the file is checked before the zone is touched.  What does not fit, or
 * counts no more, is left out.  now: s since 1970.
 */
kvr_zone_snapshot_e kvr_zone_snapshot_read(const kvr_zone_t *zone,
    const uint8_t *secret, const uint8_t *p, size_t len, uint64_t now,
    kvr_zone_snapshot_read_t *r);

/* why it was not read, as the end of a sentence */
const char *kvr_zone_snapshot_why(kvr_zone_snapshot_e result);


#endif /* _KVR_ZONE_SNAPSHOT_H_INCLUDED_ */
