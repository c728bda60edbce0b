
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_SHARE_BATCH_H_INCLUDED_
#define _KVR_SHARE_BATCH_H_INCLUDED_


/*
 * A batch: what a host tells the others at a time.  All of it are words of 64
 * bits, in the order of bytes that the machine has; the first one tells it.
 *
 *     magic
 *     check        keyed digest of all behind it
 *     version 1, flags 1, peers 2, words of the batch 4
 *     fingerprint  of the key and of all else that hosts must agree on
 *     host         who tells
 *     number       of the batch, from 1, without a gap
 *     name         32 bytes, for people
 *     records      type 1, peer 2, 0 1, words that follow 4; these words
 *     peers        a keyed digest of the name of each that records tell of
 *
 * Peers are told by digest, as each host has numbers of its own for them.  A
 * record has the place of its peer among them.
 *
 * The reader believes nothing: it walks through all of a batch before the first
 * record is handed out.  XXH3 is no MAC, so whoever can write to the stream and
 * has the key can make up batches; without the key a batch is not read.
 */


#include "core/hash/kvr_block.h"
#include "core/base/kvr_set.h"


#define KVR_SHARE_VERSION  3

#define KVR_SHARE_NAME     32            /* bytes of a host's name, at most */

/* flags */
#define KVR_SHARE_BYE      1             /* the last one of this host */
#define KVR_SHARE_WANT     2             /* it knows little: who has more? */
#define KVR_SHARE_HELP     4             /* it tells all that it knows */
#define KVR_SHARE_HELPED   8             /* and this was the last of it */
#define KVR_SHARE_LATE     16            /* its loads are old */

/* words of a record behind the first one, and values of a lesson, at most */
#define KVR_SHARE_WORDS    515
#define KVR_SHARE_VALUES   512

/* bytes of a batch that is made here, and of one that is read */
#define KVR_SHARE_BATCH    (96 * 1024)
#define KVR_SHARE_MAX      (256 * 1024)

/* no key of what is popular; it fills the last word */
#define KVR_SHARE_NOKEY    UINT32_MAX

/* number of an entry of a chain, and units of a lesson, at most */
#define KVR_SHARE_ENTRIES  (1U << 20)
#define KVR_SHARE_UNITS    (1U << 17)


typedef enum {
    KVR_SHARE_LESSON = 1,   /* units 4, from 4; first 4, behind 4;
                               values */
    KVR_SHARE_VOID,         /* units 4, first 4; values */
    KVR_SHARE_BIND,         /* key 8; seconds 4, moved 4 */
    KVR_SHARE_FLOOR,        /* units 8: what is older is lost */
    KVR_SHARE_LOAD,         /* a word of kvr_load_t 8; that of its context 8;
                               units since its floor 8 */
    KVR_SHARE_KNOWN,        /* of any peers: key 8; age 4, peer 2, marked 1,
                               0 1; as often as there is room */
    KVR_SHARE_HOT,          /* keys 4, KVR_SHARE_NOKEY behind the last one */
    KVR_SHARE_TYPES
} kvr_share_type_e;


/* what became of a batch; all but the first two are reasons to ignore it */
typedef enum {
    KVR_SHARE_OK = 0,
    KVR_SHARE_ECHO,         /* one's own */
    KVR_SHARE_REPEATED,     /* it was read before */
    KVR_SHARE_NONE,         /* it is no batch */
    KVR_SHARE_OTHER,        /* of another version */
    KVR_SHARE_FOREIGN,      /* of another key, block or version of prompts */
    KVR_SHARE_LENGTH,       /* its lengths are wrong */
    KVR_SHARE_DAMAGED,
    KVR_SHARE_CROWDED,      /* of more hosts than there is room for */
    KVR_SHARE_RESULTS
} kvr_share_e;


/* what hosts must have in common */
typedef struct {
    const uint8_t     *secret;           /* KVR_SECRET_LEN bytes */
    uint64_t           fingerprint;
} kvr_share_key_t;


/* a batch that is made: in memory of the caller's, of KVR_SHARE_BATCH bytes */
typedef struct {
    uint64_t          *word;
    const uint64_t    *digest;           /* by number of the peer; 0: none */
    uint32_t           n;                /* words so far */
    uint32_t           max;              /* of them, those of peers left out */
    uint32_t           npeers;
    uint16_t           peer[KVR_PEERS];  /* place in the batch, and 1 */
    uint16_t           told[KVR_PEERS];  /* peer, by place */
} kvr_share_writer_t;


/* one that is read */
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


/* the key of a zone with units of so many bytes; secret: as in the zone */
void kvr_share_batch_key(kvr_share_key_t *key, const uint8_t *secret,
    uint64_t unit, uint32_t format);

/* how a peer is called in batches */
uint64_t kvr_share_batch_peer(const kvr_share_key_t *key, const uint8_t *name,
    size_t len);

/*
 * Begins a batch in so many bytes.  Records are of peers by their numbers here,
 * of which digest[] has the digests; those of a peer without one are left out.
 * finish() returns the length in bytes.
 */
void kvr_share_batch_begin(kvr_share_writer_t *w, void *buf, size_t size,
    const uint64_t *digest);

/* the place of a peer, and 1; 0: it has no digest, or there is no room */
uint32_t kvr_share_batch_place(kvr_share_writer_t *w, uint32_t peer);

/*
 * A record of n words was written at &w->word[w->n], where there is room for it
 * and a word more: its first word is its head, with the peer's number.
 */
void kvr_share_batch_accept(kvr_share_writer_t *w, uint32_t n);

/* words[0] is the head of n - 1 more; returns 0 if there is no room */
int kvr_share_batch_put(kvr_share_writer_t *w, const uint64_t *words,
    uint32_t n);

/* the same with KVR_SHARE_KNOWN, whose entries name their peers themselves */
void kvr_share_batch_known(kvr_share_writer_t *w, uint64_t *words, uint32_t n);

size_t kvr_share_batch_finish(kvr_share_writer_t *w,
    const kvr_share_key_t *key, uint64_t host, uint64_t number,
    const uint8_t name[KVR_SHARE_NAME], unsigned flags);

/*
 * Looks at all of a batch, which must be aligned to words and stay where it is
 * as long as its records are read.  After KVR_SHARE_OK records can be read.  Host and
 * name are set for KVR_SHARE_FOREIGN as well, as somebody may want to know
 * whose it is; name has printable characters only, and zeros behind them.
 */
kvr_share_e kvr_share_batch_open(kvr_share_reader_t *r,
    const kvr_share_key_t *key, const uint8_t *data, size_t len);

/* the next record; 0: there is none.  What has an unknown type is left out. */
int kvr_share_batch_next(kvr_share_reader_t *r, kvr_share_record_t *record);

/* the digest of a peer of the batch */
uint64_t kvr_share_batch_digest(const kvr_share_reader_t *r, uint32_t peer);

#endif /* _KVR_SHARE_BATCH_H_INCLUDED_ */
