
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_HOME_H_INCLUDED_
#define _KVR_HOME_H_INCLUDED_


/*
 * Homes: hosts that do not share their indexes still send a prefix to the same
 * peers.
 *
 * Each of several routers sees only a part of the requests, so it does not
 * know where the others have sent a prefix.  But all of them compute the same
 * distance of each peer from the prefix, by the prefix's key and the peer's
 * name.  The nearest peer is the prefix's home (rendezvous hashing: Thaler and
 * Ravishankar, 1998; with weights as in Schindelhauer and Schomaker, 2005:
 * -ln(u) / weight, where u is the hash in (0, 1)).  A removed peer takes only
 * its own prefixes with it, and a new one takes its share from each of the
 * others.
 *
 * A home gets a credit: this share of the bytes that it is not known to have
 * cached counts as cached, because another host may have sent them there.  The
 * credit is a part of the cost, so a busy home, or a peer that is known to have
 * more cached, changes the pick as usual.  The second nearest peer gets half of
 * the credit: otherwise, with a busy home, each host would send a hot prefix to
 * a different peer.
 *
 * The key is a value of the prompt's chain, which depends only on the request
 * and the zone's secret; names are the peers' addresses.  So hosts with one
 * key_file and one list of servers agree.  The sketch (kvr_sketch.h) selects
 * the value: hosts that see the same traffic select the same one.
 *
 * The values were found by simulation: bench/sim (--hosts), docs/hosts.md.
 */


#include "core/base/kvr_core.h"


/* credit of the first home, and of the second as a share of that */
#define KVR_HOME_CREDIT  0.8
#define KVR_HOME_SECOND  0.5


/* a peer of the list: the hash of its name, and its weight from 1 */
typedef struct {
    uint64_t                hash;
    uint32_t                weight;
} kvr_home_peer_t;


typedef struct {
    uint64_t                key;     /* of the prefix, or the session */
    double                  credit;  /* 0 .. 1, of the first home; 0: none */
    const kvr_home_peer_t  *peer;    /* by the peer's place in the list */
} kvr_home_t;


/*
 * Returns the distance of a peer from a key, by the digest of its name and its
 * weight (from 1).  The distance is -ln(1 - u) / weight, where u in [0, 1) is
 * the hash of key and name.  Only the order of distances matters, so this
 * returns half of the logarithm: artanh(u / (2 - u)), by the first three terms
 * of its series.  They are exact to 1 in 1000 up to u = 0.6.  Beyond that the
 * value still rises, and the least of several u is rarely so large.
 */
static inline double
kvr_home_distance(uint64_t key, uint64_t name, uint32_t weight)
{
    double  u, z, zz;

    u = (double) (int64_t) (kvr_mix(key, name) >> 11) * 0x1p-53;
    z = u / (2 - u);
    zz = z * z;

    return z * (1 + zz * (1.0 / 3 + zz / 5)) / (double) (int32_t) weight;
}


#endif /* _KVR_HOME_H_INCLUDED_ */
