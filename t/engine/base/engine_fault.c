#include <stdlib.h>
#include <string.h>

#include "base/engine_fault.h"


/*
 * A fault is a name, or a name, "=" and a number: a status, the tokens that
 * are sent before it, or milliseconds.
 */

typedef struct {
    const char   *name;
    kve_fault_e   fault;
    int           n;
} kve_fault_name_t;


static const kve_fault_name_t  kve_fault_names[] = {
    { "none", KVE_FAULT_NONE, 0 },
    { "status", KVE_FAULT_STATUS, 500 },
    { "close-before-headers", KVE_FAULT_CLOSE, 0 },
    { "reset-before-headers", KVE_FAULT_RESET, 0 },
    { "reset-after-headers", KVE_FAULT_RESET_HEADERS, 0 },
    { "reset-mid-stream", KVE_FAULT_RESET_STREAM, 3 },
    { "truncate", KVE_FAULT_TRUNCATE, 3 },
    { "garbage", KVE_FAULT_GARBAGE, 0 },
    { "garbage-body", KVE_FAULT_GARBAGE_BODY, 0 },
    { "hang", KVE_FAULT_HANG, 0 },
    { "stall", KVE_FAULT_STALL, 3 },
    { "slow", KVE_FAULT_SLOW, 100 },
    { "error-in-stream", KVE_FAULT_ERROR_STREAM, 3 },
    { "client-error-in-stream", KVE_FAULT_CLIENT_ERROR_STREAM, 3 },
    { "bare-error-in-stream", KVE_FAULT_BARE_ERROR_STREAM, 3 },
    { "error-in-body", KVE_FAULT_ERROR_BODY, 0 },
    { "empty-stream", KVE_FAULT_EMPTY_STREAM, 0 },
    { NULL, KVE_FAULT_INVALID, 0 }
};


kve_fault_e
kve_fault_parse(const char *s, int *n)
{
    size_t                   len;
    const char              *eq;
    const kve_fault_name_t  *f;

    eq = strchr(s, '=');
    len = eq ? (size_t) (eq - s) : strlen(s);

    for (f = kve_fault_names; f->name; f++) {
        if (strlen(f->name) == len && strncmp(f->name, s, len) == 0) {
            break;
        }
    }

    *n = eq ? atoi(eq + 1) : f->n;

    if (f->fault == KVE_FAULT_STATUS && (*n < 200 || *n > 599)) {
        return KVE_FAULT_INVALID;
    }

    return f->fault;
}
