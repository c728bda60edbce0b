
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_HOME_H_INCLUDED_
#define _KVR_HOME_H_INCLUDED_


/*
 * Homes: hosts that cannot tell each other what they taught which peer still
 * send a beginning to the same peers.
 *
 * Each of several routers sees a part of the requests only, so it does not know
 * where the others have sent what begins like this one.  But all of them can
 * reckon the same thing: a distance of each peer from the beginning, by the
 * beginning's key and the peer's name.  The nearest peer is the beginning's home
 * (rendezvous hashing: Thaler and Ravishankar, 1998; by weights as Schindelhauer
 * and Schomaker have it, 2005: -ln(u) / weight, u being the hash in (0, 1)).  A
 * peer that goes takes only its own beginnings with it, and one that comes takes
 * from each other its share.
 *
 * A home gets a credit: so much of what it is not known to hold counts as held,
 * since another host may have sent it there.  That is a part of the cost, so a
 * home that is busy, or a peer that is known to hold more, changes the pick as
 * ever.  The next nearest gets half of it, or a hot beginning would go anywhere
 * when its home is busy, and to another peer from each host.
 *
 * The key is a value of the prompt's chain, which depends on the request and the
 * zone's secret alone; names are the peers' addresses.  So hosts with one
 * key_file and one list of servers agree.  Which value it is, is told by the
 * crowd (kvr_sketch.h): hosts that see the same traffic see the same crowd.
 *
 * Found by simulation: bench/sim (--hosts), docs/hosts.md.
 */


#include "core/policy/kvr_ring.h"


/* the credit of the first home, and of the second as a share of that */
#define KVR_HOME_CREDIT  0.8
#define KVR_HOME_SECOND  0.5


typedef struct {
    uint64_t                key;     /* of the beginning, or the session */
    double                  credit;  /* 0 .. 1, the first home's; 0: none */
    const kvr_ring_peer_t  *peer;    /* by place */
} kvr_home_t;


/*
 * How far a peer is from a key, by the digest of its name and its weight (from
 * 1): -ln(1 - u) / weight, for a u in [0, 1) that is the hash of both.  It is the series of artanh(u / (2 - u)) up to its
 * third term, which is half of that: exact to 1 in 1000 up to u = 0.6, growing
 * with u beyond, and the least of several u is small.
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
