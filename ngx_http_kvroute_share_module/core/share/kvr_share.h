
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SHARE_H_INCLUDED_
#define _KVR_SHARE_H_INCLUDED_


/*
 * Hosts that route as one: each tells the others what its decisions teach, and
 * what it has in flight.
 *
 * All that hosts tell goes to one stream, in batches, and each host reads all
 * of it.  Nothing is asked on a request's way: a decision is made of what the
 * host's own index and load table hold.  The core knows neither the stream nor
 * its store.
 *
 *     tell      a worker puts a record into the ring of its host
 *     frame     the host's owner makes a batch of what is in the ring
 *     apply     it takes what a batch of another host says to its own zone
 *     sum       what others have in flight is put together
 *     tick      hosts that are silent are no more
 *
 * Ownership.  One process of a host is the owner: it alone frames and applies.
 * Who is the owner is a word in shared memory; an owner that has died, or that
 * has done nothing for KVR_SHARE_SILENT, is replaced.  All that the next one
 * needs is there as well: how far the ring was sent, the number of the batch
 * under way, and what was read last.
 *
 * Once.  A batch has a number; end and number are stored before it is sent,
 * tail and acked after the store has said that it has it.  Whoever finds number
 * and acked apart sends that batch again, with the same number and the same
 * records: who has read it leaves it out.  A hole in the numbers is a batch
 * that was lost, and counted.  It costs a miss, once.
 *
 * An owner that was stopped for long may come back when another is at work, with
 * an answer to a batch of before.  So it counts only for the batch that this
 * process has framed last, and all that is stored is swapped for what it was
 * then.
 *
 * Load.  Each host tells all that it has in flight, never a difference.  Words
 * of a host that is silent for the lease no longer count.  The sum of the others
 * is a row of the load table (kvr_load_remote()), which decisions read as they
 * read those of the workers.
 *
 * Late.  A load that is seconds old sends all to a peer that was idle then, and
 * is worse than none.  How old what is heard is, nobody can see, as clocks are
 * not compared.  But a host sees how long its own batches take to come back:
 * that is its way to the stream, and from it.  If they take longer than
 * KVR_SHARE_OLD it takes no loads, and says so, and nobody takes its own.
 * Lessons are worth something though they are late.
 *
 * Popular.  Each host counts the beginnings of all (kvr_hot.h): by an eighth
 * of the requests none would be worth computing at a further peer.
 *
 * Help.  A host that has never read the stream says so for some seconds.  One of
 * the others tells all lines of its index, a part with each batch: the one whose
 * turn it is, or the next one if nothing comes.  Only who wants it takes it.  A
 * batch that is sent again has no line that it did not have before, and the next
 * one goes on where it ended.
 *
 * Names.  A peer's number may get another name.  What hosts have said of it is
 * forgotten then, and what workers have said of it is not told any more.
 *
 * No clocks of two hosts are compared.  now: ms, of a clock that all processes
 * of this host share.
 */


#include "core/hot/kvr_hot.h"
#include "core/base/kvr_fifo.h"
#include "core/share/kvr_share_batch.h"
#include "core/share/kvr_share_index.h"
#include "core/state/kvr_hooks.h"


#define KVR_SHARE_HOSTS    32            /* others, at most */
#define KVR_SHARE_SILENT   1000          /* ms */
#define KVR_SHARE_FORGET   60000         /* ms; then a silent host is no more */
#define KVR_SHARE_BEAT     1000          /* ms; all of the load is told */
#define KVR_SHARE_OLD      1000          /* ms; older loads do not count */
#define KVR_SHARE_STUCK    100           /* ms; a writer must have been killed */
#define KVR_SHARE_FLOORS   10000         /* ms between two of them, of a peer */
#define KVR_SHARE_WANTS    5000          /* ms; then a new host wants no more */
#define KVR_SHARE_TURN     500           /* ms; then it is the next one's turn */
#define KVR_SHARE_HELPS    1024          /* batches of help, at most */
#define KVR_SHARE_SLOTS    (2 * KVR_PEERS)


/* reasons to ignore a batch: kvr_share_batch.h */
#define KVR_SHARE_IGNORED  6


/* what hosts told each other, as one of them counts it */
typedef struct {
    kvr_united_t          united;
    _Atomic uint64_t      hosts;     /* others that are heard of */
    _Atomic uint64_t      waiting;   /* bytes of the ring that are not sent */
    _Atomic uint64_t      sent;      /* lessons */
    _Atomic uint64_t      applied;
    _Atomic uint64_t      batches_sent;
    _Atomic uint64_t      batches_applied;
    _Atomic uint64_t      bytes_sent;
    _Atomic uint64_t      bytes_received;
    _Atomic uint64_t      echoes;    /* own batches that came back */
    _Atomic uint64_t      echo_ms;   /* what that took, together */
    _Atomic uint64_t      lag_ms;    /* of the last one */
    _Atomic uint64_t      late;      /* 1: loads are too old to count */
    _Atomic uint64_t      dropped;   /* records, for want of room */
    _Atomic uint64_t      lost;      /* records that nobody finished */
    _Atomic uint64_t      gaps;      /* batches of others that never came */
    _Atomic uint64_t      repeated;  /* batches that had been read before */
    _Atomic uint64_t      ignored[KVR_SHARE_IGNORED];  /* batches */
    _Atomic uint64_t      unknown;   /* records of peers that are not here */
    _Atomic uint64_t      reconnects;
    _Atomic uint64_t      refused;   /* commands that the store refused */
    _Atomic uint64_t      joined;    /* entries that a new host was told of */
} kvr_share_stats_t;


/* another host */
typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t      id;            /* 0: free */
    _Atomic uint64_t      number;        /* of its last batch */
    _Atomic uint64_t      heard;         /* ms */
    _Atomic uint64_t      alive;
    _Atomic uint64_t      late;          /* what it tells is */
    _Atomic uint64_t      lessons;       /* applied */
    _Atomic uint64_t      gaps;
    _Atomic uint64_t      want;          /* ms; it first asked for help */
    _Atomic uint64_t      name[KVR_SHARE_NAME / 8];
    _Atomic uint64_t      load[KVR_PEERS];
    _Atomic uint64_t      context[KVR_PEERS];
} kvr_share_host_t;


typedef struct {
    uint64_t              id;            /* of this host; not 0 */

    _Atomic uint64_t      owner;         /* kvr_load_owner_t, or 0 */
    _Atomic uint64_t      beat;          /* ms, when it last did something */
    _Atomic uint64_t      wanted;        /* by this process; or 0 */

    _Atomic uint64_t      number;        /* of the last batch that was framed */
    _Atomic uint64_t      acked;         /* of the last one that is there */
    _Atomic uint64_t      end;           /* place in the ring behind it */

    /* how far the stream was read, in words of who reads it */

    _Atomic uint64_t      read[2];

    /*
     * The batch of help that is next, from 1; 0: none.  It begins with this line
     * of the index; and the line behind the batch under way.
     */

    _Atomic uint64_t      helping;
    _Atomic uint64_t      line;
    _Atomic uint64_t      told;

    /* of a batch under way: host and number, records that are done */

    _Atomic uint64_t      current;
    _Atomic uint64_t      done;

    _Atomic uint64_t      wants;         /* ms; help until then; 0: none */
    _Atomic uint64_t      helped;        /* ms; another host has told of it */

    _Atomic uint64_t      echoed;        /* ms; an own batch has come back */

    /* a batch that is to come back: its number, or 0; ms, when it was made */

    _Atomic uint64_t      timed;
    _Atomic uint64_t      since;

    _Atomic uint64_t      strange;       /* a host that hashes otherwise */
    _Atomic uint64_t      strange_name[KVR_SHARE_NAME / 8];

    _Atomic uint64_t      floored[KVR_PEERS];  /* ms, by another's word */

    /*
     * Of the name of a peer that all of this is of; 0: none yet.  What is in the
     * ring before this place is of an earlier one.
     */

    _Atomic uint64_t      generation[KVR_PEERS];
    _Atomic uint64_t      renamed[KVR_PEERS];

    kvr_share_stats_t     stats;
    kvr_share_host_t      host[KVR_SHARE_HOSTS];
    kvr_fifo_t            ring;
} kvr_share_t;


/* how peers are called in batches: the digest of each, and whose one is */
typedef struct {
    uint64_t              made;          /* ms, and 1 */
    uint32_t              named;         /* kvr_registry_t, then */
    uint64_t              digest[KVR_PEERS];         /* 0: no name */
    uint16_t              slot[KVR_SHARE_SLOTS];     /* number, and 1 */
} kvr_share_names_t;


/* what the owner keeps for itself; zeroed at first */
typedef struct {
    kvr_share_names_t     names;
    uint64_t              stuck;         /* place, and 1, that is not written */
    uint64_t              since;         /* ms */
    uint64_t              beat;          /* ms, when all was last told */

    /* the batch that was framed last, and its records: places in the ring */

    uint64_t              number;
    uint64_t              from;
    uint64_t              end;

    unsigned              told:1;        /* anything was */
    uint64_t              load[KVR_PEERS];     /* as told last */
    uint64_t              context[KVR_PEERS];
    uint64_t              word[KVR_FIFO_MAX];
} kvr_share_owner_t;


/* who tells, and of which zone */
typedef struct {
    const kvr_zone_t     *zone;
    kvr_share_t          *share;
    kvr_share_key_t       key;
    uint64_t              lease;         /* ms */
    uint8_t               name[KVR_SHARE_NAME];
} kvr_share_self_t;


/* another process may have written a time that is later than this one's */
static inline uint64_t
kvr_share_since(uint64_t then, uint64_t now)
{
    return now > then ? now - then : 0;
}


/* in zeroed memory; id is random and not 0 */
void kvr_share_init(kvr_share_t *s, uint64_t id);

/*
 * Whether this process is the owner, or has become it: *taken is 1 then.
 * alive() is asked for another owner.  To be called before each act.
 */
int kvr_share_own(kvr_share_t *s, kvr_load_owner_t self, uint64_t now,
    kvr_load_alive_pt alive, void *data, int *taken);

/* whether another process waits for an owner to give it up */
int kvr_share_wanted(kvr_share_t *s, kvr_load_owner_t self);

/* whether it is the owner still: it may have been stopped for long */
int kvr_share_owns(kvr_share_t *s, kvr_load_owner_t self);

/* it is not any more */
void kvr_share_disown(kvr_share_t *s, kvr_load_owner_t self);

/*
 * Forgets hosts that are silent and names that are no more, and sums up the load
 * of the others.  To be called some times within a lease.
 */
void kvr_share_tick(const kvr_share_self_t *self, kvr_share_owner_t *o,
    uint64_t now);

/* sums up what others have told of these peers: anew, so nothing is kept */
void kvr_share_sum(const kvr_share_self_t *self, kvr_set_t set);

/* whether what comes is old, to stats.late; returns whether that has changed */
int kvr_share_late(kvr_share_t *s, uint64_t now);


/* _tell: what workers report; hooks (kvr_hooks.h), with a kvr_share_t as data */

void kvr_share_tell_lesson(const kvr_zone_t *zone, void *data,
    const uint64_t *chain, uint32_t n, const kvr_index_undo_t *undo);
void kvr_share_tell_extend(const kvr_zone_t *zone, void *data,
    const uint64_t *value, uint32_t first, uint32_t n, uint32_t units,
    uint32_t peer, uint32_t behind);
void kvr_share_tell_void(const kvr_zone_t *zone, void *data,
    const uint64_t *chain, uint32_t n, const kvr_index_undo_t *undo);
void kvr_share_tell_hot(const kvr_zone_t *zone, void *data,
    const kvr_hot_keys_t *keys, uint32_t peer);
void kvr_share_tell_bind(const kvr_zone_t *zone, void *data, uint64_t key,
    uint32_t peer, uint32_t seconds, uint32_t now);
void kvr_share_tell_floor(const kvr_zone_t *zone, void *data, uint32_t peer,
    uint64_t clock);


/* _hooks: these, and rows of kvr_share_stats_t */
extern const kvr_hooks_t  kvr_share_hooks;


/* _frame: the owner's batches */

/* whether there is anything to be told, or it is time for a heartbeat */
int kvr_share_due(const kvr_share_self_t *self, kvr_share_owner_t *o,
    uint64_t now);

/*
 * Makes the next batch in buf, of KVR_SHARE_BATCH bytes and aligned to words;
 * or, if the last one was not acked, that one again.  Returns its length; 0:
 * another process is the owner.  seconds: of the clock of sessions.
 */
size_t kvr_share_frame(const kvr_share_self_t *self, kvr_share_owner_t *o,
    void *buf, unsigned flags, uint64_t now, uint32_t seconds);

/* the store has the batch that was framed last */
void kvr_share_acked(const kvr_share_self_t *self, kvr_share_owner_t *o);


/*
 * _apply: takes a batch to the zone.  What is not KVR_SHARE_OK was left out,
 * and counted.  seconds: of the clock of sessions.
 */
kvr_share_e kvr_share_apply(const kvr_share_self_t *self, kvr_share_owner_t *o,
    const uint8_t *data, size_t len, uint64_t now, uint32_t seconds);


/*
 * _names: makes them anew if any has changed, and now and then.  What is known of
 * an earlier name of a number is forgotten.
 */
void kvr_share_names(const kvr_share_self_t *self, kvr_share_names_t *names,
    uint64_t now);

/* the number of a peer here, or KVR_PEERS */
uint32_t kvr_share_named(const kvr_share_names_t *names, uint64_t digest);


/* _help */

/* this host is new, and wants to be told what others know */
void kvr_share_help_want(kvr_share_t *s, uint64_t now);

/* whether it is this host's turn to tell another, or it is at it */
int kvr_share_help_due(const kvr_share_self_t *self, uint64_t now);

/*
 * Fills a batch with what this host knows; returns flags of the batch.  again:
 * it was framed before.  seconds as below.
 */
unsigned kvr_share_help_frame(const kvr_share_self_t *self,
    kvr_share_owner_t *o, kvr_share_writer_t *w, int again, uint32_t seconds);

/* the store has that batch */
void kvr_share_help_acked(const kvr_share_self_t *self);

/* takes what is in a record, by the numbers of peers here */
void kvr_share_help_take(const kvr_share_self_t *self,
    const kvr_share_record_t *r, const uint16_t *peer, uint32_t npeers);


#endif /* _KVR_SHARE_H_INCLUDED_ */
