
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ZONE_SNAPSHOT_H_INCLUDED_
#define _KVR_ZONE_SNAPSHOT_H_INCLUDED_


/*
 * A zone as a file, so that a new zone can start with what an old one knew.
 *
 *     head    format, digest of the secret
 *     lines   of the index, one after the other (kvr_index_snapshot.h)
 *     peers   by slot: their names and clocks
 *     tail    the time, lengths, a digest of all before it
 *
 * It has what peers hold, bindings of sessions, capacities, and start times of
 * engines.  It has no counters, load or receipts, and neither prompts nor the
 * secret: keys are hashes under the secret, so they match nothing in a zone
 * with another one.
 *
 * It is written in slices of KVR_ZONE_SNAPSHOT_LINES lines while the zone is
 * in use.  Peers are written last, so their clocks are after all stamps.  A
 * slot that was reused meanwhile has the new peer's floor, so what was written
 * of the old peer does not count.  At worst a peer is credited with a block
 * that it has lost, which costs some prefill.  One prompt never passes for
 * another, as only keys decide that.
 *
 * The digest is keyed, but XXH3 is no MAC.  It detects files that are
 * truncated, damaged or of another zone.  A person who can write the file on
 * purpose can direct requests to worse peers, and nothing more: the reader
 * checks each length and number.
 */


#include "core/index/kvr_index_snapshot.h"
#include "core/state/kvr_zone.h"

#define XXH_INLINE_ALL
#include <xxhash.h>


/*
 * Raise it when the format of the file or the meaning of chains changes:
 * t/unit/prompt/test_prompt_pinned.c pins the latter.
 */
#define KVR_ZONE_SNAPSHOT_FORMAT  5

/* lines of a slice, and its size in bytes */
#define KVR_ZONE_SNAPSHOT_LINES   2048
#define KVR_ZONE_SNAPSHOT_SLICE                                               \
    (KVR_ZONE_SNAPSHOT_LINES * KVR_INDEX_SNAPSHOT_LINE)

/* s; an older file is refused */
#define KVR_ZONE_SNAPSHOT_AGE     3600


typedef enum {
    KVR_ZONE_SNAPSHOT_OK = 0,
    KVR_ZONE_SNAPSHOT_FOREIGN,       /* no snapshot */
    KVR_ZONE_SNAPSHOT_VERSION,
    KVR_ZONE_SNAPSHOT_KEY,
    KVR_ZONE_SNAPSHOT_LENGTH,
    KVR_ZONE_SNAPSHOT_DAMAGED,
    KVR_ZONE_SNAPSHOT_OLD,
    KVR_ZONE_SNAPSHOT_RESULTS
} kvr_zone_snapshot_e;


/* state of writing */
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
    uint64_t           lines;        /* lines that were read */
    uint64_t           age;          /* s */
    uint32_t           peers;
} kvr_zone_snapshot_read_t;


/* Begins; zone and secret must stay until it is done. */
void kvr_zone_snapshot_begin(kvr_zone_snapshot_t *s, const kvr_zone_t *zone,
    const uint8_t *secret);

/*
 * Writes the next bytes of the file to buf, which has KVR_ZONE_SNAPSHOT_SLICE.
 * Returns their number, which can be 0; s->done is 1 after the last ones.
 * now: s since 1970.
 */
size_t kvr_zone_snapshot_next(kvr_zone_snapshot_t *s, uint64_t now,
    uint8_t *buf);

/* Tells whether a file starts like a snapshot, of any version. */
int kvr_zone_snapshot_is(const uint8_t *p, size_t len);

/*
 * Fills a new zone, which no other process uses yet, from a whole file.  The
 * file is checked before the zone is changed.  Entries that do not fit, or no
 * longer count, are left out.  now: s since 1970.
 */
kvr_zone_snapshot_e kvr_zone_snapshot_read(const kvr_zone_t *zone,
    const uint8_t *secret, const uint8_t *p, size_t len, uint64_t now,
    kvr_zone_snapshot_read_t *r);

/* Returns why it was not read, as the end of a sentence. */
const char *kvr_zone_snapshot_why(kvr_zone_snapshot_e result);


#endif /* _KVR_ZONE_SNAPSHOT_H_INCLUDED_ */
