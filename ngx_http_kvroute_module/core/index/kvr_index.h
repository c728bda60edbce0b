
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_INDEX_H_INCLUDED_
#define _KVR_INDEX_H_INCLUDED_


/*
 * Knows which peer has which block of which prompt cached, as far as nginx can
 * tell.
 *
 * The index is a table of 64-byte lines in memory that many processes share.
 * A line stands for one value of a chain.  It names up to eight peers that
 * hold the block, each with a stamp of that peer's clock, and the rest by a
 * mask without stamps.  The mask is a word.  With more than 64 peers a bit
 * stands for all peers with the same number modulo 64: a line has no room for
 * more, and a block with more than eight holders belongs to a hot prefix.  A
 * peer that a mask names wrongly costs what any wrong guess does: the request
 * computes the prefix there, and then the peer holds it.  A mask does not
 * count for a peer that has computed less than the prefix since its start, and
 * a miss on it does not prove that the peer lost anything (kvr_attempt.h).
 *
 * A peer's clock counts the units (see kvr_chain.h) that it had to compute.
 * What it computed longer ago than its cache is large has been evicted:
 *
 *     held  <=>  stamp > floor  and  clock - stamp < capacity
 *
 * So eviction needs no work, a restart is "floor = clock", and the capacity
 * can change at any time.  If the engine reports what it stores, inserts move
 * the clock in advance, and reports move it only by what exceeds that.  A
 * stamp is the clock less the depth within the prompt, so the tail of a prompt
 * is evicted before its head, as in engines.  For the same reason a deep block
 * that is held proves those before it, and a lost line in between costs
 * nothing.
 *
 * Concurrency.  There are no locks.  A process claims a line for another block
 * by changing its key, by compare and swap, to a number below 2^32, the table's
 * clock; it stores the new key last.  If it is killed in between, the sweep
 * frees the claim when it is too old.  The sweep passes over the table as it is
 * written.
 *
 * A reader uses a line's holders only if key and ids are the same after
 * reading them.  A writer gives a slot to another holder by zeroing its stamp,
 * changing ids, and storing the new stamp.  Another writer can overtake it at
 * any point: claim its line for another block, or give its slot away.  Then
 * either a compare and swap fails (ids contains some bits of the key for
 * that), or the stamp falls to a holder that the block was inserted for as
 * well.  In each case the writer finally sees that the key has changed and
 * takes its stamp back. There remain windows of a few instructions: a writer
 * that is overtaken and killed in one of them can leave a peer with a block
 * that it never had.  That is a wrong guess, and costs one request some
 * prefill.
 */


#include "core/index/kvr_index_table.h"


/* what one attempt inserted: to undo or to publish it */
typedef struct {
    uint32_t           clock;        /* the peer's, as in a stamp */
    uint32_t           matched;      /* units held before */
    uint32_t           first;        /* entries before it were not written */
    uint32_t           moved;        /* units by which the clock moved */
    uint16_t           peer;
    uint8_t            valid;
} kvr_index_undo_t;


/*
 * Returns the size of a table in bytes: 66 a line and 64 a peer, with 1 ..
 * KVR_PEERS peers; and the reverse, the largest number of lines for a size, 0
 * if there is no room for any.
 */
size_t kvr_index_size(uint64_t nlines, uint32_t max_peers);
uint64_t kvr_index_lines(size_t size, uint32_t max_peers);

/* Sets up an empty table in zeroed memory, aligned to KVR_CACHE_LINE. */
void kvr_index_init(kvr_index_t *ix, uint64_t nlines, uint32_t max_peers);

/* Starts or restarts a peer: forgets all that it held, in O(1). */
void kvr_index_flush(kvr_index_t *ix, unsigned peer);

/* Forgets what was inserted for a peer before its clock had this value. */
void kvr_index_floor(kvr_index_t *ix, unsigned peer, uint64_t clock);

/* Returns a peer's clock in units. */
uint64_t kvr_index_clock(kvr_index_t *ix, unsigned peer);

/*
 * Tells whether the engine reports what it stores, and its reports keep up
 * with the inserts: the part of the clock that they have not confirmed is at
 * most a quarter of the capacity, or the units expected of requests in flight.
 */
int kvr_index_heard(kvr_index_t *ix, unsigned peer, uint64_t expected);

/*
 * Sets a peer's capacity in units, clamped to 1 .. KVR_INDEX_CAPACITY_MAX.  If
 * the source is exact, hits age the other blocks as in the engine's LRU; an
 * assumed capacity should be large.
 */
void kvr_index_capacity(kvr_index_t *ix, unsigned peer, uint64_t units,
    kvr_index_source_e source);

/* Updates and returns the word that kvr_index_turnover() reads. */
uint64_t kvr_index_turnover_update(kvr_index_t *ix, unsigned peer,
    uint32_t time);

/*
 * Sets matched[peer] of each peer of the set to the number of leading units of
 * the prompt that it holds.  chain[] has n entries.  Returns the maximum.  The
 * result is never too high.  It is too low if more than a few lines in a row
 * were lost, or, one time in 128, if the last line of a peer's part was lost:
 * another line of its bucket can have the same tag (kvr_index_lookup.c).
 */
uint32_t kvr_index_lookup(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    kvr_set_t set, uint32_t *matched);

/*
 * Returns how many leading units of a prompt were inserted for a peer since its
 * floor, whether or not they still count, and sets *age to the age of the
 * deepest in units.  The first matched units are known to count.  0: none, or
 * the age is unknown.
 */
uint32_t kvr_index_inserted(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    unsigned peer, uint32_t matched, uint32_t *age);

/*
 * Returns how many of the units of kvr_index_inserted() were inserted by a
 * prompt, not only by a reply.  A reply is at most the last "most" entries.
 * The engine may not have kept it, or its template may write it differently.
 * If a reply is left out, *age becomes the age of the deepest unit before it.
 */
uint32_t kvr_index_prompted(kvr_index_t *ix, const uint64_t *chain,
    uint32_t inserted, unsigned peer, uint32_t most, uint32_t *age);

/*
 * Inserts a prompt that a peer is about to compute.  The peer already holds
 * the first "matched" of its units.
 */
void kvr_index_insert(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    uint32_t units, unsigned peer, uint32_t matched, kvr_index_undo_t *undo);

/*
 * The same, but entries that were inserted a short while ago are not written
 * again, except for the last ones.  Not for an insert that can still be undone.
 */
void kvr_index_refresh(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    uint32_t units, unsigned peer, uint32_t matched, kvr_index_undo_t *undo);

/*
 * Inserts the entries first .. first + n - 1, which the peer has computed.
 * behind: by how many units the clock is ahead of the peer.  Inserts move the
 * clock when a request is sent, and the peer computes or uses other prompts
 * after this one.
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
 * Sets *age to the age of a peer's block, in units.  Returns 0 if it is not
 * known.
 */
int kvr_index_age(kvr_index_t *ix, uint64_t value, unsigned peer,
    uint32_t *age);

/*
 * Returns the ages of a prompt's blocks, from the deepest on.  The age of a
 * block is that of its youngest copy at any peer, evicted or not, in parts of
 * what that peer can hold: KVR_INDEX_WHOLE is all of it.  A block is at least
 * as young as those behind it.  The first "known" entries are in the index.
 * The result is the number of ages, at most KVR_INDEX_REUSES.
 */
#define KVR_INDEX_WHOLE   1024
#define KVR_INDEX_REUSES  16

typedef struct {
    uint32_t           age;
    uint32_t           depth;        /* units up to the deepest block */
    uint32_t           units;        /* with this age, up to there */
} kvr_index_reuse_t;

uint32_t kvr_index_reuse(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    uint32_t known, kvr_index_reuse_t *reuse);

/*
 * Applies an update of another host.  value[] begins with those of the entries
 * from..first - 1, which the peer held before, that kvr_index_published()
 * names.  n new values follow, from entry "first" on, as in
 * kvr_index_extend().
 */
void kvr_index_update(kvr_index_t *ix, const uint64_t *value, uint32_t from,
    uint32_t first, uint32_t n, uint32_t units, unsigned peer,
    uint32_t behind);

/* Returns the units by which the peer's clock has moved since an insert. */
uint32_t kvr_index_undo_age(kvr_index_t *ix, const kvr_index_undo_t *undo);

/* Removes the stamps that an insert has left: the peer did not compute it. */
void kvr_index_undo(kvr_index_t *ix, const uint64_t *chain, uint32_t n,
    const kvr_index_undo_t *undo);

/* Returns the peers of a set that hold a key, which stands for a model. */
kvr_set_t kvr_index_holds(kvr_index_t *ix, uint64_t key, kvr_set_t set);

/* Makes the peer a holder of a key, as if it had computed it now. */
void kvr_index_note(kvr_index_t *ix, uint64_t key, unsigned peer);

/*
 * Sessions: a key is bound to a peer until a time in seconds, whatever the
 * peer computes meanwhile.  Only a table full of much younger lines drops it
 * earlier. The peer's generation is kept with it: if its slot is reused for
 * another peer, the binding is void.  A generation is not 0.
 */

/* Returns the peer and sets its generation; KVR_PEERS if there is none. */
uint32_t kvr_index_bound(kvr_index_t *ix, uint64_t key, uint32_t now,
    uint32_t *generation);

/* Binds a session, moves it, or extends its time. */
void kvr_index_bind(kvr_index_t *ix, uint64_t key, unsigned peer,
    uint32_t generation, uint32_t expires);

/* Estimates the share of lines in use, 0 .. 1, from a sample. */
double kvr_index_fill(kvr_index_t *ix, uint64_t seed);


/*
 * When a prompt is used again, hosts publish only its last entry, since a deep
 * block proves those before it, and each 12th one.  A prompt that branches off
 * elsewhere then misses at most 11 entries.  In a table that has lost the
 * others, the gaps are small enough for a lookup.  The entries by which
 * kvr_index_refresh() detects recent inserts are not published.
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
 * Returns how soon unused blocks of a peer are evicted: 60 / (60 + t), where t
 * is the time in seconds in which it computes as much as it can hold, measured
 * over the last one to two minutes; 0 if it rests.  now: ms of a clock that all
 * share.  The value is updated once a second, if needed, in steps of 1/64, so
 * that nearly idle peers are equal.
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
