
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SHARE_BATCH_H_INCLUDED_
#define _KVR_SHARE_BATCH_H_INCLUDED_


/*
 * A batch: records that a host publishes at a time.  It consists of words of 64
 * bits in the machine's byte order, which the first word shows.
 *
 *     magic
 *     check        keyed digest of everything behind it
 *     version 1, flags 1, peers 2, words of the batch 4
 *     fingerprint  of the key and of everything else that must be equal
 *     host         id of the host
 *     number       of the batch, from 1, without gaps
 *     name         32 bytes, for people
 *     records      type 1, peer 2, 0 1, words that follow 4; these words
 *     peers        a keyed digest of the name of each peer in records
 *
 * Peers are named by digest, because each host has its own slots.  A record has
 * the place of its peer in the list.
 *
 * The reader trusts nothing: it checks the whole batch before it returns the
 * first record.  XXH3 is not a MAC, so a writer who has the key can forge
 * batches; without the key a batch is ignored.
 */


#include "core/hash/kvr_block.h"
#include "core/base/kvr_set.h"


#define KVR_SHARE_VERSION  5

#define KVR_SHARE_NAME     32            /* bytes of a host's name, at most */

/* flags */
#define KVR_SHARE_BYE      1             /* the last one of this host */
#define KVR_SHARE_WANT     2             /* it is new and asks for help */
#define KVR_SHARE_HELP     4             /* it helps a new host */
#define KVR_SHARE_HELPED   8             /* the last batch of that */
#define KVR_SHARE_LATE     16            /* its loads are old */

/* words of a record behind the first one, and values of an update, at most */
#define KVR_SHARE_WORDS    515
#define KVR_SHARE_VALUES   512

/* bytes of a batch that is written, and that is read, at most */
#define KVR_SHARE_BATCH    (96 * 1024)
#define KVR_SHARE_MAX      (256 * 1024)

/* entries of a chain, and units of an update, at most */
#define KVR_SHARE_ENTRIES  (1U << 20)
#define KVR_SHARE_UNITS    (1U << 17)


typedef enum {
    KVR_SHARE_UPDATE = 1,   /* units 4, from 4; first 4, behind 4;
                               values */
    KVR_SHARE_UNDO,         /* units 4, first 4; values */
    KVR_SHARE_BIND,         /* key 8; seconds 4, moved 4 */
    KVR_SHARE_FLOOR,        /* units 8: older entries are lost */
    KVR_SHARE_LOAD,         /* a word of kvr_load_t 8; of its context 8; units
                               since its floor 8 */
    KVR_SHARE_KNOWN,        /* for a new host, of any peers, repeated: key 8;
                               age 4, peer 2, marked 1, 0 1 */
    KVR_SHARE_HOT,          /* keys 8 */
    KVR_SHARE_TYPES
} kvr_share_type_e;


/* results for a batch; those from NONE on are reasons to ignore it */
typedef enum {
    KVR_SHARE_OK = 0,
    KVR_SHARE_ECHO,         /* an own batch */
    KVR_SHARE_REPEATED,     /* read before */
    KVR_SHARE_NONE,         /* not a batch */
    KVR_SHARE_OTHER,        /* another version */
    KVR_SHARE_FOREIGN,      /* another key or version of prompts */
    KVR_SHARE_LENGTH,       /* wrong lengths */
    KVR_SHARE_DAMAGED,
    KVR_SHARE_CROWDED,      /* no room for another host */
    KVR_SHARE_RESULTS
} kvr_share_e;


/* must be equal on all hosts */
typedef struct {
    const uint8_t     *secret;           /* KVR_SECRET_LEN bytes */
    uint64_t           fingerprint;
} kvr_share_key_t;


/* a batch being written, in the caller's memory of KVR_SHARE_BATCH bytes */
typedef struct {
    uint64_t          *word;
    const uint64_t    *digest;           /* by slot of the peer; 0: none */
    uint32_t           n;                /* words so far */
    uint32_t           max;              /* words, without the list of peers */
    uint32_t           npeers;
    uint16_t           peer[KVR_PEERS];  /* place in the batch + 1, by slot */
    uint16_t           placed[KVR_PEERS];  /* slot, by place */
} kvr_share_writer_t;


/* a batch being read */
typedef struct {
    const uint8_t     *p;                /* the next record */
    const uint8_t     *end;
    const uint8_t     *peers;
    uint64_t           host;
    uint64_t           number;
    uint32_t           npeers;
    uint32_t           flags;
    uint8_t            name[KVR_SHARE_NAME];
} kvr_share_reader_t;


typedef struct {
    uint32_t           type;
    uint32_t           peer;             /* place in the batch */
    uint32_t           n;                /* words */
    const uint64_t    *word;             /* in the batch */
} kvr_share_record_t;


#define kvr_share_head(type, peer, n)                                         \
    ((uint64_t) (type) | (uint64_t) (peer) << 8 | (uint64_t) (n) << 32)

/* the second word of an entry of KVR_SHARE_KNOWN */
#define kvr_share_known(age, peer, marked)                                    \
    kvr_share_pair(age, (uint32_t) (peer) | (uint32_t) (marked) << 16)

/* two halves of a word, the lower one first */
#define kvr_share_pair(a, b)   ((uint64_t) (a) | (uint64_t) (b) << 32)
#define kvr_share_lower(w)     ((uint32_t) (w))
#define kvr_share_upper(w)     ((uint32_t) ((w) >> 32))


/* Makes the key of a zone.  secret: that of the zone. */
void kvr_share_batch_key(kvr_share_key_t *key, const uint8_t *secret,
    uint32_t format);

/* Returns the digest of a peer's name. */
uint64_t kvr_share_batch_peer(const kvr_share_key_t *key, const uint8_t *name,
    size_t len);

/*
 * Begins a batch of at most size bytes.  Records name peers by their slots
 * here; those of a peer without a digest are left out.  finish() returns the
 * length.
 */
void kvr_share_batch_begin(kvr_share_writer_t *w, void *buf, size_t size,
    const uint64_t *digest);

/* Returns the place of a peer + 1; 0: it has no digest, or there is no room. */
uint32_t kvr_share_batch_place(kvr_share_writer_t *w, uint32_t peer);

/*
 * Accepts a record of n words written at &w->word[w->n], where one further word
 * must be free.  Its first word is its head, with the peer's slot.
 */
void kvr_share_batch_accept(kvr_share_writer_t *w, uint32_t n);

/* Writes a record of n words with its head; returns 0 if there is no room. */
int kvr_share_batch_put(kvr_share_writer_t *w, const uint64_t *words,
    uint32_t n);

/* The same for KVR_SHARE_KNOWN, whose entries have peers of their own. */
void kvr_share_batch_known(kvr_share_writer_t *w, uint64_t *words, uint32_t n);

size_t kvr_share_batch_finish(kvr_share_writer_t *w,
    const kvr_share_key_t *key, uint64_t host, uint64_t number,
    const uint8_t name[KVR_SHARE_NAME], unsigned flags);

/*
 * Checks a batch, which must be aligned to words and must not move while its
 * records are read.  After KVR_SHARE_OK records can be read.  Host and name are
 * also set for KVR_SHARE_FOREIGN.  The name has printable characters only, and
 * zeros behind them.
 */
kvr_share_e kvr_share_batch_open(kvr_share_reader_t *r,
    const kvr_share_key_t *key, const uint8_t *data, size_t len);

/* Reads the next record; returns 0 if there is none.  Skips unknown types. */
int kvr_share_batch_next(kvr_share_reader_t *r, kvr_share_record_t *record);

/* Returns the digest of a peer of the batch. */
uint64_t kvr_share_batch_digest(const kvr_share_reader_t *r, uint32_t peer);

#endif /* _KVR_SHARE_BATCH_H_INCLUDED_ */
