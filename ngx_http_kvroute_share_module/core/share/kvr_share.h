
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SHARE_H_INCLUDED_
#define _KVR_SHARE_H_INCLUDED_


/*
 * Hosts that route as one: each publishes its index updates and its load to the
 * others.
 *
 * All hosts write batches to one stream, and each host reads all of it.  No
 * request waits for it: a decision uses the host's own index and load table.
 * The core knows neither the stream nor its store.
 *
 *     publish   a worker puts a record into the ring of its host
 *     frame     the host's owner makes a batch of the records in the ring
 *     apply     it applies a batch of another host to its own zone
 *     sum       the loads of other hosts are added up
 *     tick      silent hosts are removed
 *
 * Ownership.  One process of a host is the owner: it alone frames and
 * applies.  The caller replaces an owner that has died.  The next owner finds
 * everything it needs in shared memory: how far the ring was sent, the number
 * of the batch under way, and the position in the stream.
 *
 * Exactly once.  A batch has a number.  End and number are stored before it is
 * sent, tail and acked after the store has confirmed it.  If number and acked
 * differ, that batch is sent again, with the same number and the same records;
 * hosts that have read it skip it.  A gap in the numbers is a lost batch,
 * which is counted and costs some cache misses.
 *
 * An owner that was stopped for long may get the confirmation of an old batch
 * while another owner works.  So a confirmation counts only for the batch that
 * this process framed last, and all stores are compare-and-swap.
 *
 * Load.  Each host publishes its whole load, never a difference.  The load of
 * a host that is silent for the lease no longer counts.  The sum of the others
 * is a row of the load table (kvr_share_row()), which decisions read like the
 * rows of the workers.
 *
 * Late loads.  A stale load is worse than none: every host would pick the peer
 * that was idle seconds ago.  Clocks are not compared, so the age of a report
 * is unknown.  But each host measures how long its own batches take to
 * return.  If that is more than KVR_SHARE_OLD, the host ignores loads and
 * publishes that it is late, so its own loads are ignored.  Late index updates
 * are still useful.
 *
 * Hot prefixes.  Each host counts the prefixes of all hosts (kvr_hot.h): one
 * of eight hosts alone would never see enough requests to replicate a prefix.
 *
 * Help for a new host.  A host that has never read the stream asks for help
 * for some seconds.  The host whose turn it is publishes all lines of its
 * index, a part with each batch; if nothing comes, the next host does.  Only
 * hosts that asked use these lines.  A batch that is sent again has no further
 * lines, and the next one continues behind its last line.
 *
 * Names.  If a peer's slot gets another name, reports of other hosts about it
 * are forgotten, and older records in the ring about it are not sent.
 *
 * now is in ms, of a clock that all processes of this host share.
 */


#include "core/hot/kvr_hot.h"
#include "core/base/kvr_fifo.h"
#include "core/share/kvr_share_batch.h"
#include "core/share/kvr_share_index.h"
#include "core/state/kvr_hooks.h"


#define KVR_SHARE_HOSTS    32            /* other hosts, at most */
#define KVR_SHARE_FORGET   60000         /* ms until a silent host is removed */
#define KVR_SHARE_BEAT     1000          /* ms between two complete loads */
#define KVR_SHARE_OLD      1000          /* ms; older loads do not count */
#define KVR_SHARE_FLOORS   10000         /* ms between two floors of a peer */
#define KVR_SHARE_WANTS    5000          /* ms during which a new host asks */
#define KVR_SHARE_TURN     500           /* ms until the next host helps */
#define KVR_SHARE_HELPS    1024          /* batches of help, at most */
#define KVR_SHARE_SLOTS    (2 * KVR_PEERS)


/* reasons to ignore a batch: kvr_share_batch.h */
#define KVR_SHARE_IGNORED  6


/* counters of a host */
typedef struct {
    kvr_united_t          united;
    _Atomic uint64_t      hosts;     /* other hosts */
    _Atomic uint64_t      waiting;   /* bytes of the ring to be sent */
    _Atomic uint64_t      sent;      /* index updates */
    _Atomic uint64_t      applied;
    _Atomic uint64_t      batches_sent;
    _Atomic uint64_t      batches_applied;
    _Atomic uint64_t      bytes_sent;
    _Atomic uint64_t      bytes_received;
    _Atomic uint64_t      echoes;    /* own batches received */
    _Atomic uint64_t      echo_ms;   /* total time that this took */
    _Atomic uint64_t      lag_ms;    /* time of the last one */
    _Atomic uint64_t      late;      /* 1: loads are too old to count */
    _Atomic uint64_t      dropped;   /* records, because the ring was full */
    _Atomic uint64_t      lost;      /* records of killed writers */
    _Atomic uint64_t      gaps;      /* missing batches of others */
    _Atomic uint64_t      repeated;  /* batches received twice */
    _Atomic uint64_t      ignored[KVR_SHARE_IGNORED];  /* batches */
    _Atomic uint64_t      unknown;   /* records of unknown peers */
    _Atomic uint64_t      reconnects;
    _Atomic uint64_t      refused;   /* commands refused by the store */
    _Atomic uint64_t      joined;    /* index entries received as a new host */
} kvr_share_stats_t;


/* another host */
typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t      id;            /* 0: free */
    _Atomic uint64_t      number;        /* of its last batch */
    _Atomic uint64_t      heard;         /* ms, of its last batch */
    _Atomic uint64_t      alive;
    _Atomic uint64_t      late;          /* its loads do not count */
    _Atomic uint64_t      updates;       /* applied */
    _Atomic uint64_t      gaps;
    _Atomic uint64_t      want;          /* ms, when it first asked for help */
    _Atomic uint64_t      name[KVR_SHARE_NAME / 8];
    _Atomic uint64_t      load[KVR_PEERS];
    _Atomic uint64_t      context[KVR_PEERS];
} kvr_share_host_t;


typedef struct {
    uint64_t              id;            /* of this host; not 0 */

    _Atomic uint64_t      number;        /* of the last batch framed */
    _Atomic uint64_t      acked;         /* of the last batch confirmed */
    _Atomic uint64_t      end;           /* place in the ring behind it */

    /* position in the stream: words defined by the reader */

    _Atomic uint64_t      read[2];

    /*
     * Help for a new host: the number of the next batch, from 1 (0: none), its
     * first line of the index, and the line behind it.
     */

    _Atomic uint64_t      helping;
    _Atomic uint64_t      line;
    _Atomic uint64_t      line_end;

    /* batch being applied: digest of host and number, records applied */

    _Atomic uint64_t      current;
    _Atomic uint64_t      done;

    _Atomic uint64_t      wants;         /* ms; asks for help until; 0: no */
    _Atomic uint64_t      helped;        /* ms, of the last help of others */

    _Atomic uint64_t      echoed;        /* ms, of its last batch received */

    /* a batch whose return is measured: its number, or 0; ms, when framed */

    _Atomic uint64_t      timed;
    _Atomic uint64_t      since;

    _Atomic uint64_t      foreign_name[KVR_SHARE_NAME / 8];

    _Atomic uint64_t      floored[KVR_PEERS];  /* ms, by another host */

    /*
     * Generation of the name of a peer that the above refers to; 0: none yet.
     * Records in the ring before "renamed" are about an earlier name.
     */

    _Atomic uint64_t      generation[KVR_PEERS];
    _Atomic uint64_t      renamed[KVR_PEERS];

    kvr_share_stats_t     stats;
    kvr_share_host_t      host[KVR_SHARE_HOSTS];
    kvr_fifo_t            ring;
} kvr_share_t;


/* digests of the peers' names, as in batches, and a hash table of them */
typedef struct {
    uint64_t              made;          /* ms + 1 */
    uint32_t              named;         /* of kvr_registry_t, then */
    uint64_t              digest[KVR_PEERS];         /* 0: no name */
    uint16_t              slot[KVR_SHARE_SLOTS];     /* peer + 1 */
} kvr_share_names_t;


/* state of the owner, in its own memory, zeroed at first */
typedef struct {
    kvr_share_names_t     names;
    uint64_t              beat;          /* ms, of the last complete load */

    /* the last batch framed, and the places of its records in the ring */

    uint64_t              number;
    uint64_t              from;
    uint64_t              end;

    unsigned              begun:1;       /* a complete load was published */
    uint64_t              load[KVR_PEERS];     /* as published last */
    uint64_t              context[KVR_PEERS];
    uint64_t              word[KVR_FIFO_MAX];
} kvr_share_owner_t;


/* a host and its zone */
typedef struct {
    const kvr_zone_t     *zone;
    kvr_share_t          *share;
    kvr_share_key_t       key;
    uint64_t              lease;         /* ms */
    uint8_t               name[KVR_SHARE_NAME];
} kvr_share_self_t;


/*
 * Returns the time since then; another process may have written a later time.
 */
static inline uint64_t
kvr_share_since(uint64_t then, uint64_t now)
{
    return now > then ? now - then : 0;
}


/* Makes a word of the load table; too large a value becomes the maximum. */
static inline uint64_t
kvr_share_word(uint64_t active, uint64_t pending)
{
    active = kvr_min(active, (1ULL << (64 - KVR_LOAD_BYTES_BITS)) - 1);
    pending = kvr_min(pending, KVR_LOAD_BYTES_MASK);

    return active << KVR_LOAD_BYTES_BITS | pending;
}


/* Initializes zeroed memory; id is random and not 0. */
void kvr_share_init(kvr_share_t *s, uint64_t id);

/*
 * Removes silent hosts and old names, and sums up the load of the others.
 * Must be called several times within a lease.
 */
void kvr_share_tick(const kvr_share_self_t *self, kvr_share_owner_t *o,
    uint64_t now);

/* Sums up the load that other hosts have published for these peers. */
void kvr_share_sum(const kvr_share_self_t *self, kvr_set_t set);

/* Updates stats.late; returns whether it has changed. */
int kvr_share_late(kvr_share_t *s, uint64_t now);


/* _publish: hooks of workers (kvr_hooks.h); data is a kvr_share_t */

void kvr_share_publish_update(const kvr_zone_t *zone, void *data,
    const uint64_t *chain, uint32_t n, const kvr_index_undo_t *undo);
void kvr_share_publish_reply(const kvr_zone_t *zone, void *data,
    const uint64_t *value, uint32_t first, uint32_t n, uint32_t units,
    uint32_t peer, uint32_t behind);
void kvr_share_publish_undo(const kvr_zone_t *zone, void *data,
    const uint64_t *chain, uint32_t n, const kvr_index_undo_t *undo);
void kvr_share_publish_hot(const kvr_zone_t *zone, void *data,
    const kvr_hot_keys_t *keys, uint32_t peer);
void kvr_share_publish_bind(const kvr_zone_t *zone, void *data, uint64_t key,
    uint32_t peer, uint32_t seconds, uint32_t now);
void kvr_share_publish_floor(const kvr_zone_t *zone, void *data, uint32_t peer,
    uint64_t clock);


/* _hooks: these hooks, and the counters */
extern const kvr_hooks_t  kvr_share_hooks;


/* _frame: the owner's batches */

/* Returns whether there is a record to publish, or a heartbeat is due. */
int kvr_share_due(const kvr_share_self_t *self, kvr_share_owner_t *o,
    uint64_t now);

/*
 * Makes the next batch in buf, of KVR_SHARE_BATCH bytes and aligned to words,
 * or the last one again if it was not confirmed.  Returns its length; 0:
 * another process is the owner.  seconds: the clock of sessions.
 */
size_t kvr_share_frame(const kvr_share_self_t *self, kvr_share_owner_t *o,
    void *buf, unsigned flags, uint64_t now, uint32_t seconds);

/* The store has confirmed the last batch framed. */
void kvr_share_acked(const kvr_share_self_t *self, kvr_share_owner_t *o);


/*
 * _apply: applies a batch to the zone.  If it does not return KVR_SHARE_OK, the
 * batch was ignored and counted.  seconds: the clock of sessions.
 */
kvr_share_e kvr_share_apply(const kvr_share_self_t *self, kvr_share_owner_t *o,
    const uint8_t *data, size_t len, uint64_t now, uint32_t seconds);


/*
 * _names: updates the digests if a name has changed, and once a second.
 * Forgets the entries of an earlier name of a peer.
 */
void kvr_share_names(const kvr_share_self_t *self, kvr_share_names_t *names,
    uint64_t now);

/* Returns the slot of a peer here, or KVR_PEERS. */
uint32_t kvr_share_named(const kvr_share_names_t *names, uint64_t digest);


/* _help */

/* This host is new: asks the others for help. */
void kvr_share_help_want(kvr_share_t *s, uint64_t now);

/* Returns whether this host helps another one now. */
int kvr_share_help_due(const kvr_share_self_t *self, uint64_t now);

/*
 * Fills a batch with lines of the index; returns flags of the batch.  again:
 * the batch was framed before.  seconds: the clock of sessions.
 */
unsigned kvr_share_help_frame(const kvr_share_self_t *self,
    kvr_share_owner_t *o, kvr_share_writer_t *w, int again, uint32_t seconds);

/* The store has confirmed that batch. */
void kvr_share_help_acked(const kvr_share_self_t *self);

/* Applies a record; peer: slots here, by the places in the batch. */
void kvr_share_help_take(const kvr_share_self_t *self,
    const kvr_share_record_t *r, const uint16_t *peer, uint32_t npeers);


#endif /* _KVR_SHARE_H_INCLUDED_ */
