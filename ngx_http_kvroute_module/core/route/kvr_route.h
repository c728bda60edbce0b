
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_ROUTE_H_INCLUDED_
#define _KVR_ROUTE_H_INCLUDED_


/*
 * The course of a request from the pick to the end, without nginx:
 *
 *     candidate     what the policy gets to know about a peer
 *     admission     whether a peer has room for a waiting request
 *     reservation   the load that a request adds to its peer
 *     attempt       from the pick to the end of the response
 *     capacity      the assumed size of a peer's cache
 *     hooks         calls of extensions
 */


#include "core/route/kvr_admission.h"
#include "core/route/kvr_attempt.h"
#include "core/route/kvr_candidate.h"
#include "core/route/kvr_capacity.h"
#include "core/state/kvr_hooks.h"


#endif /* _KVR_ROUTE_H_INCLUDED_ */
