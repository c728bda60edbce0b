
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_INDEX_H_INCLUDED_
#define _KVR_INDEX_H_INCLUDED_


/*
 * Which peer holds which block of which prompt, as far as we know.
 *
 * A table of 64-byte lines in memory that many processes share.  A line stands
 * for one value of a chain and names up to eight peers that hold it, each with
 * a stamp of that peer's clock, and beyond those a mask of peers without one.
 * The mask is a word.  Of more than 64 peers a bit stands for all with the same
 * number modulo 64: a line has no room for more, and what more than eight hold
 * is a prefix that much of the traffic has.  One that is named so and never had
 * the prefix costs what any wrong guess does: the request that goes there
 * computes it, and then the peer holds it.  A peer that has not computed as much
 * as the prefix is long since its start is not taken for one that holds it; and
 * that it did not is no proof that it lost anything (kvr_attempt.h).
 *
 * The peer's clock counts the units (see kvr_chain.h) that it had to compute;
 * what it computed longer ago than its cache is large it has forgotten:
 *
 *     held  <=>  stamp > floor  and  clock - stamp < capacity
 *
 * So nothing has to be done for eviction, a restart is "floor = clock", and
 * the capacity may change at any time.  Where the engine tells what it stores,
 * inserts move the clock in advance, and reports only by what they exceed
 * that.  stamp = clock - depth within the prompt, so that the tail of a prompt is forgotten before its head, as in the
 * engines.  For the same reason a deep block that is held proves those before
 * it, and a line lost in between costs nothing.
 *
 * Concurrency.  No locks.  A line is claimed for another block by changing its
 * key, by compare and swap, to a number below 2^32, the table's clock; the new
 * key is stored last.  A claim whose process was killed is taken from it when
 * it has become too old, by the sweep, which passes over the table as it is
 * written to.
 *
 * A reader takes a line's holders for good only if key and ids are the same
 * after it has read them.  A slot is given to another holder by zeroing its
 * stamp, changing ids, storing the new stamp.  A writer may be overtaken at any
 * point: its line claimed for another block, its slot given away.  Then either
 * a compare and swap fails (ids has some bits of the key in it for that), or
 * the stamp falls to a holder that the block was inserted for as well, and in
 * any case the writer sees in the end that the key has changed and takes back
 * what it did.  What remains are windows of a few instructions, in which it
 * must be overtaken and killed as well, for a peer to be credited with a block
 * that it never had: a wrong guess, which costs one request some prefill.
 */


#include "core/index/kvr_index_table.h"


/* what one attempt inserted, so that it can be undone, or told */
typedef struct {
    uint32_t           clock;        /* the peer's, as in a stamp */
    uint32_t           matched;      /* units known before */
    uint32_t           first;        /* entries before that were left as is */
    uint32_t           moved;        /* units, by which the clock went on */
    uint16_t           peer;
    uint8_t            valid;
} kvr_index_undo_t;


/*
 * The size of a table in bytes, 66 a line and 64 a peer, of which there may be
 * 1 .. KVR_PEERS; and the reverse, the largest number of lines for a size, 0 if
 * there is no room for any.
 */
size_t kvr_index_size(uint64_t nlines, uint32_t max_peers);
uint64_t kvr_index_lines(size_t size, uint32_t max_peers);

/* sets up an empty table in zeroed memory, aligned to KVR_CACHE_LINE */
void kvr_index_init(kvr_index_t *ix, uint64_t nlines, uint32_t max_peers);

/* starts or restarts a peer: whatever it held is forgotten, in O(1) */
void kvr_index_flush(kvr_index_t *ix, unsigned peer);

/* the peer has lost what was inserted before its clock stood here */
void kvr_index_floor(kvr_index_t *ix, unsigned peer, uint64_t clock);

/* where a peer's clock stands, in units */
uint64_t kvr_index_clock(kvr_index_t *ix, unsigned peer);

/*
 * Whether the engine reports what it stores, and confirms inserts: at most a
 * quarter of the capacity, or the units expected of requests in flight, may be
 * unconfirmed.
 */
int kvr_index_heard(kvr_index_t *ix, unsigned peer, uint64_t expected);

/*
 * Sets what a peer's cache holds, in units, 1 .. KVR_INDEX_CAPACITY_MAX (else
 * clamped).  If the source is exact, hits age the other blocks as they do in
 * the engine's LRU; an assumed capacity should be large.
 */
void kvr_index_capacity(kvr_index_t *ix, unsigned peer, uint64_t units,
    kvr_index_source_e source);

/* reckons kvr_index_turnover() anew */
uint64_t kvr_index_turnover_update(kvr_index_t *ix, unsigned peer,
    uint32_t time);

/*
 * For each peer of the set, how many leading units of the prompt it holds, to
 * matched[peer].  chain[] has n entries.  Returns the greatest of them.  Never
 * too much.  Too little where lines were lost: more than a few in a row, or, one
 * time in 128, the line in which a peer's part ended, as another one of its
 * bucket has the same tag (kvr_index_lookup.c, kvr_index_tag.h).
 */
uint32_t kvr_index_lookup(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    kvr_set_t set, uint32_t *matched);

/*
 * How many leading units of a prompt were inserted for a peer since its floor,
 * whether or not they still count; *age is the age of the deepest, in units.
 * The first matched units are known to count.  0: none, or the age is unknown.
 */
uint32_t kvr_index_inserted(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    unsigned peer, uint32_t matched, uint32_t *age);

/*
 * Of the units that kvr_index_inserted() told, how many were inserted by a
 * prompt, not only by a reply. A reply is at most the last "most" entries. An
 * engine may not have kept a reply, or its template may write it in another
 * way. If the reply is left out, *age becomes the age of the deepest unit
 * before it.
 */
uint32_t kvr_index_prompted(kvr_index_t *ix, const uint64_t *chain,
    uint32_t inserted, unsigned peer, uint32_t most, uint32_t *age);

/*
 * A peer is about to compute a prompt of so many units, of which it holds the
 * first matched ones.
 */
void kvr_index_insert(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    uint32_t units, unsigned peer, uint32_t matched, kvr_index_undo_t *undo);

/*
 * The same for a prompt of which the peer has matched units already: entries
 * inserted a short while ago are left as they are, but for the last ones.  Not
 * for units of an insert that may still be undone.
 */
void kvr_index_refresh(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    uint32_t units, unsigned peer, uint32_t matched, kvr_index_undo_t *undo);

/*
 * The peer has gone on to compute what n entries of the chain stand for, from
 * the one numbered first on, in so many units.  behind: units by which the
 * clock is ahead of the peer, since inserts move it when a request is sent, and
 * the peer computes or still uses the prompts of others after this one.
 */
void kvr_index_extend(kvr_index_t *ix, const uint64_t *value, uint32_t first,
    uint32_t n, uint32_t units, unsigned peer, uint32_t behind);

/*
 * Prefetches the tags of n entries, and with lines set also their lines, which
 * the tags locate.  A caller with many updates first calls it for all of them
 * without lines, then with lines.
 */
void kvr_index_prefetch(kvr_index_t *ix, const uint64_t *value, uint32_t n,
    int lines);

/*
 * Applies an update of another host: as kvr_index_extend() for the n values at
 * the end, which begin at entry "first".  Before them value[] has those entries
 * of from..first - 1, which the peer held before, that kvr_index_published()
 * names.
 */
void kvr_index_update(kvr_index_t *ix, const uint64_t *value, uint32_t from,
    uint32_t first, uint32_t n, uint32_t units, unsigned peer,
    uint32_t behind);

/* how many units the peer's clock has gone on by since an insert */
uint32_t kvr_index_undo_age(kvr_index_t *ix, const kvr_index_undo_t *undo);

/* the peer did not compute it: undoes what still has the insert's stamps */
void kvr_index_undo(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    const kvr_index_undo_t *undo);

/* which peers of a set hold what this key stands for: a model, a chunk */
kvr_set_t kvr_index_holds(kvr_index_t *ix, uint64_t key, kvr_set_t set);

/* the peer holds it from now on, for as long as what it computes now */
void kvr_index_note(kvr_index_t *ix, uint64_t key, unsigned peer);

/*
 * Sessions: a key that is bound to a peer until a time, in seconds, whatever
 * the peer computes meanwhile; only a table that is full of much younger lines
 * forgets it before.  The peer's generation is told back, so that a number
 * which was given to another peer binds nobody; a generation is not 0.
 */

/* the peer, and its generation; KVR_PEERS if there is none */
uint32_t kvr_index_bound(kvr_index_t *ix, uint64_t key, uint32_t now,
    uint32_t *generation);

/* binds, binds again, or refreshes */
void kvr_index_bind(kvr_index_t *ix, uint64_t key, unsigned peer,
    uint32_t generation, uint32_t expires);

/* estimates the share of lines in use, 0 .. 1, from a sample of them */
double kvr_index_fill(kvr_index_t *ix, uint64_t seed);


/*
 * The entries that hosts publish when a peer holds them and they are used
 * again: the last one, since a deep block proves those before it, and each
 * 12th.  A prompt that branches off elsewhere is then short of 11 entries at
 * most, and a table that has lost the others has a gap that a lookup passes.
 * The entries by which kvr_index_refresh() sees what was written are not among
 * them.
 */
#define KVR_INDEX_PUBLISHED     12
#define KVR_INDEX_PUBLISHED_AT  9

static inline int
kvr_index_published(uint32_t entry, uint32_t end)
{
    return entry % KVR_INDEX_PUBLISHED == KVR_INDEX_PUBLISHED_AT
           || entry + 1 == end;
}


/*
 * How soon what a peer holds and nobody uses goes for what is new: 60 / (60 +
 * t) where t is in how many seconds it computes as much as it can hold, by what
 * it did in the last one to two minutes. 0 for one that rests. now: ms, of a
 * clock that all share. It is reckoned anew once a second, if it is asked for,
 * and in steps of 1/64: peers that have little to do are to be alike, or one of
 * them would be the best for a second.
 */
static inline float
kvr_index_turnover(kvr_index_t *ix, unsigned peer, uint64_t now)
{
    uint32_t  time;
    uint64_t  word;

    time = (uint32_t) (now >> KVR_INDEX_TIME_SHIFT) & KVR_INDEX_TIME_MASK;
    word = kvr_get(&kvr_index_peer(ix, peer)->turnover);

    if (kvr_unlikely(word >> KVR_INDEX_TIME_AT != time)) {
        word = kvr_index_turnover_update(ix, peer, time);
    }

    return (float) (int32_t) word * (1.0f / KVR_INDEX_TURNED);
}


#endif /* _KVR_INDEX_H_INCLUDED_ */
