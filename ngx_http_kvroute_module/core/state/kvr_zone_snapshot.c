
/*
 * Copyright (C) kvroute contributors
 */


#include "core/state/kvr_zone_snapshot.h"
#include "core/hash/kvr_block.h"


#define KVR_ZONE_SNAPSHOT_MAGIC  0x70616e736d76726bULL


typedef struct {
    uint64_t           magic;        /* also shows the byte order */
    uint32_t           format;
    uint32_t           unit;         /* bytes */
    uint64_t           key;          /* digest of the secret */
} kvr_zone_snapshot_head_t;


typedef struct {
    uint64_t           clock;
    uint64_t           floor;
    uint64_t           since;
    uint64_t           assumed;
    uint64_t           start;
    uint32_t           capacity;
    uint32_t           generation;
    uint32_t           len;          /* 0: no such peer */
    uint8_t            name[KVR_REGISTRY_NAME_LEN];
    uint32_t           pad;
} kvr_zone_snapshot_peer_t;


typedef struct {
    uint64_t           time;
    uint64_t           clock;
    uint64_t           bytes;        /* of lines */
    uint64_t           peers;        /* behind the lines */
    uint64_t           digest;
} kvr_zone_snapshot_tail_t;


/* no gaps, so that all written bytes are set */

_Static_assert(sizeof(kvr_zone_snapshot_head_t) == 24, "head of a snapshot");
_Static_assert(sizeof(kvr_zone_snapshot_peer_t)
               == 5 * 8 + 4 * 4 + KVR_REGISTRY_NAME_LEN,
               "peer of a snapshot");
_Static_assert(sizeof(kvr_zone_snapshot_tail_t) == 5 * 8, "tail of a snapshot");
_Static_assert(KVR_PEERS * sizeof(kvr_zone_snapshot_peer_t)
               + sizeof(kvr_zone_snapshot_tail_t)
               <= KVR_ZONE_SNAPSHOT_SLICE,
               "slice of a snapshot");


static void kvr_zone_snapshot_head(const kvr_zone_t *zone,
    const uint8_t *secret, kvr_zone_snapshot_head_t *head);
static void kvr_zone_snapshot_peer(const kvr_zone_t *zone, uint32_t i,
    kvr_zone_snapshot_peer_t *p);
static int kvr_zone_snapshot_resume(const kvr_zone_t *zone, uint32_t i,
    const kvr_zone_snapshot_peer_t *p);


void
kvr_zone_snapshot_begin(kvr_zone_snapshot_t *s, const kvr_zone_t *zone,
    const uint8_t *secret)
{
    memset(s, 0, sizeof(kvr_zone_snapshot_t));

    s->zone = zone;
    s->secret = secret;

    (void) XXH3_64bits_reset_withSecret(&s->digest, secret, KVR_SECRET_LEN);
}


size_t
kvr_zone_snapshot_next(kvr_zone_snapshot_t *s, uint64_t now, uint8_t *buf)
{
    size_t                     n;
    uint32_t                   i;
    kvr_zone_snapshot_peer_t   peer;
    kvr_zone_snapshot_tail_t   tail;
    kvr_zone_snapshot_head_t   head;

    if (!s->begun) {
        s->begun = 1;

        kvr_zone_snapshot_head(s->zone, s->secret, &head);

        n = sizeof(head);
        memcpy(buf, &head, n);
        (void) XXH3_64bits_update(&s->digest, buf, n);

        return n;
    }

    if (s->line < s->zone->index->nlines) {
        n = (size_t) (kvr_index_snapshot_write(s->zone->index, s->line,
                                               KVR_ZONE_SNAPSHOT_LINES, buf)
                      - buf);

        s->line += KVR_ZONE_SNAPSHOT_LINES;
        s->bytes += n;
        (void) XXH3_64bits_update(&s->digest, buf, n);

        return n;
    }

    for (i = 0, n = 0; i < s->zone->registry->max_peers; i++) {
        kvr_zone_snapshot_peer(s->zone, i, &peer);

        memcpy(buf + n, &peer, sizeof(peer));
        n += sizeof(peer);
    }

    tail.time = now;
    tail.clock = kvr_get(&s->zone->index->clock);
    tail.bytes = s->bytes;
    tail.peers = i;

    (void) XXH3_64bits_update(&s->digest, buf, n);
    (void) XXH3_64bits_update(&s->digest, &tail,
                              offsetof(kvr_zone_snapshot_tail_t, digest));

    tail.digest = XXH3_64bits_digest(&s->digest);

    memcpy(buf + n, &tail, sizeof(tail));
    s->done = 1;

    return n + sizeof(tail);
}


static void
kvr_zone_snapshot_head(const kvr_zone_t *zone, const uint8_t *secret,
    kvr_zone_snapshot_head_t *head)
{
    static const char  label[] = "kvroute snapshot";

    head->magic = KVR_ZONE_SNAPSHOT_MAGIC;
    head->format = KVR_ZONE_SNAPSHOT_FORMAT;
    head->unit = KVR_BLOCK;
    head->key = XXH3_64bits_withSecret(label, sizeof(label), secret,
                                       KVR_SECRET_LEN);
}


/*
 * Reads a peer.  A slot that is reused meanwhile first gets a length of 0, and
 * its name last.  The name is read before the clocks, so with the new name
 * comes the new floor.
 */
static void
kvr_zone_snapshot_peer(const kvr_zone_t *zone, uint32_t i,
    kvr_zone_snapshot_peer_t *p)
{
    kvr_peer_t        *peer;
    kvr_index_peer_t  *ip;

    peer = &zone->registry->peer[i];
    ip = kvr_index_peer(zone->index, i);

    p->pad = 0;
    p->generation = atomic_load(&peer->generation);
    p->len = atomic_load(&peer->len);

    memcpy(p->name, peer->name, KVR_REGISTRY_NAME_LEN);

    atomic_thread_fence(memory_order_acquire);

    if (atomic_load(&peer->generation) != p->generation
        || atomic_load(&peer->len) != p->len
        || p->len > KVR_REGISTRY_NAME_LEN)
    {
        p->len = 0;
    }

    p->floor = atomic_load(&ip->floor);
    p->since = atomic_load(&ip->since);
    p->clock = atomic_load(&ip->clock);
    p->capacity = kvr_get(&ip->capacity);
    p->assumed = kvr_get(&peer->assumed);
    p->start = kvr_get(&peer->engine.start);
}


int
kvr_zone_snapshot_is(const uint8_t *p, size_t len)
{
    uint64_t  magic;

    if (len < sizeof(magic)) {
        return 0;
    }

    memcpy(&magic, p, sizeof(magic));

    return magic == KVR_ZONE_SNAPSHOT_MAGIC;
}


kvr_zone_snapshot_e
kvr_zone_snapshot_read(const kvr_zone_t *zone, const uint8_t *secret,
    const uint8_t *p, size_t len, uint64_t now, kvr_zone_snapshot_read_t *r)
{
    size_t                     n, all, peers;
    uint32_t                   i;
    kvr_set_t                  set;
    const uint8_t             *last, *line;
    kvr_zone_snapshot_peer_t   peer;
    kvr_zone_snapshot_head_t   head, own;
    kvr_zone_snapshot_tail_t   tail;

    if (!kvr_zone_snapshot_is(p, len)) {
        return KVR_ZONE_SNAPSHOT_FOREIGN;
    }

    if (len < sizeof(head) + sizeof(tail)) {
        return KVR_ZONE_SNAPSHOT_LENGTH;
    }

    all = len - sizeof(head) - sizeof(tail);

    memcpy(&head, p, sizeof(head));
    memcpy(&tail, p + sizeof(head) + all, sizeof(tail));

    peers = (size_t) kvr_min(tail.peers, KVR_PEERS + 1) * sizeof(peer);

    kvr_zone_snapshot_head(zone, secret, &own);

    if (head.format != own.format || head.unit != own.unit) {
        return KVR_ZONE_SNAPSHOT_VERSION;
    }

    if (head.key != own.key) {
        return KVR_ZONE_SNAPSHOT_KEY;
    }

    if (peers > all || tail.bytes != all - peers) {
        return KVR_ZONE_SNAPSHOT_LENGTH;
    }

    if (XXH3_64bits_withSecret(p, len - sizeof(tail.digest), secret,
                               KVR_SECRET_LEN)
        != tail.digest)
    {
        return KVR_ZONE_SNAPSHOT_DAMAGED;
    }

    /* the clock may have been set back a little */

    if (tail.time + KVR_ZONE_SNAPSHOT_AGE < now
        || tail.time > now + KVR_ZONE_SNAPSHOT_AGE)
    {
        return KVR_ZONE_SNAPSHOT_OLD;
    }

    if (tail.peers > KVR_PEERS) {
        return KVR_ZONE_SNAPSHOT_DAMAGED;
    }

    line = p + sizeof(head);
    last = line + tail.bytes;

    for ( /* void */ ; line < last; line += n) {
        n = kvr_index_snapshot_length(line, (size_t) (last - line));

        if (n == 0) {
            return KVR_ZONE_SNAPSHOT_DAMAGED;
        }
    }

    r->lines = 0;
    r->peers = 0;
    r->age = now - kvr_min(tail.time, now);

    set = kvr_set_none();
    kvr_set(&zone->index->clock, tail.clock);
    kvr_set(&zone->index->time, (uint32_t) now);

    for (i = 0; i < zone->registry->max_peers && i < tail.peers; i++) {
        memcpy(&peer, last + i * sizeof(peer), sizeof(peer));

        if (kvr_zone_snapshot_resume(zone, i, &peer)) {
            kvr_set_add(&set, i);
            r->peers++;
        }
    }

    for (line = p + sizeof(head); line < last; line += n) {
        n = kvr_index_snapshot_length(line, (size_t) (last - line));
        r->lines += kvr_index_snapshot_read(zone->index, line, set,
                                            (uint32_t) tail.peers,
                                            (uint32_t) now);
    }

    return KVR_ZONE_SNAPSHOT_OK;
}


/*
 * Restores a peer to its slot.  Its capacity counts as assumed, even if it was
 * reported: the engine will report it again, or has been changed.
 */
static int
kvr_zone_snapshot_resume(const kvr_zone_t *zone, uint32_t i,
    const kvr_zone_snapshot_peer_t *p)
{
    kvr_peer_t        *peer;
    kvr_index_peer_t  *ip;

    if (p->len == 0 || p->len > KVR_REGISTRY_NAME_LEN
        || kvr_registry_find_peer(zone->registry, p->name, p->len)
           != KVR_REGISTRY_NONE)
    {
        return 0;
    }

    peer = &zone->registry->peer[i];
    ip = kvr_index_peer(zone->index, i);

    kvr_set(&ip->clock, p->clock);
    kvr_set(&ip->floor, p->floor);
    kvr_set(&ip->since, p->since);
    kvr_index_capacity(zone->index, i, p->capacity, KVR_INDEX_ASSUMED);

    kvr_set(&peer->assumed, p->assumed);
    kvr_set(&peer->engine.start, p->start);

    /* 0 is never a generation */

    kvr_set(&peer->generation, kvr_max(p->generation, 1));

    peer->address = i;

    memcpy(peer->name, p->name, p->len);
    atomic_store(&peer->len, p->len);

    return 1;
}


const char *
kvr_zone_snapshot_why(kvr_zone_snapshot_e result)
{
    static const char *const  names[] = {
        "it is good",
        "it is not a snapshot of a zone",
        "it was written by another version of the module",
        "its zone had another key",
        "it is truncated",
        "it is damaged",
        "it is older than an hour",
    };

    _Static_assert(kvr_nelts(names) == KVR_ZONE_SNAPSHOT_RESULTS, "names");

    return names[result];
}
