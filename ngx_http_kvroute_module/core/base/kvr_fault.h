
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_FAULT_H_INCLUDED_
#define _KVR_FAULT_H_INCLUDED_


#include "core/base/kvr_core.h"


/*
 * Why a probe, a health check or a connection to a store failed.  Kept in
 * shared memory, and reported by its name.
 */

typedef enum {
    KVR_FAULT_NONE = 0,
    KVR_FAULT_REFUSED,           /* the connection */
    KVR_FAULT_UNREACHABLE,       /* no connection, for another reason */
    KVR_FAULT_TIMEOUT,
    KVR_FAULT_CLOSED,            /* closed without an answer */
    KVR_FAULT_TLS,               /* the handshake */
    KVR_FAULT_EXPIRED,           /* the certificate */
    KVR_FAULT_UNTRUSTED,         /* likewise */
    KVR_FAULT_OTHER_HOST,        /* the certificate is for another one */
    KVR_FAULT_NOT_HTTP,
    KVR_FAULT_NO_METRICS,        /* no usable values */
    KVR_FAULT_LOADING,           /* the model */
    KVR_FAULT_UNRESOLVED,        /* the name */
    KVR_FAULT_PASSWORD,          /* of the store */
    KVR_FAULT_REJECTED,          /* by the store: a command */
    KVR_FAULT_400,
    KVR_FAULT_401,
    KVR_FAULT_403,
    KVR_FAULT_404,
    KVR_FAULT_429,
    KVR_FAULT_503,
    KVR_FAULT_4XX,               /* any other */
    KVR_FAULT_5XX,               /* any other */
    KVR_FAULT_STATUS,            /* any other */
    KVR_FAULT_MAX
} kvr_fault_e;


/* Returns the name for the status; NULL: none, or no such number. */
const char *kvr_fault_name(uint32_t fault);

/* Returns the fault that an HTTP status means. */
kvr_fault_e kvr_fault_status(uint32_t status);


#endif /* _KVR_FAULT_H_INCLUDED_ */
