
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ROUTE_H_INCLUDED_
#define _KVR_ROUTE_H_INCLUDED_


/*
 * The sequence of a request at its peers, without nginx:
 *
 *     candidate     what a peer is to the request, put before the policy
 *     admission     whether a peer has room for a request that waits
 *     reservation   what the request counts for at its peer
 *     attempt       from the pick to the end of the response
 *     capacity      what the cache of a peer is taken to hold
 *     hooks         what extensions are told of it
 */


#include "core/route/kvr_admission.h"
#include "core/route/kvr_attempt.h"
#include "core/route/kvr_candidate.h"
#include "core/route/kvr_capacity.h"
#include "core/state/kvr_hooks.h"


#endif /* _KVR_ROUTE_H_INCLUDED_ */
