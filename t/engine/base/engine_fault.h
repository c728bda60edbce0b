/*
 * The names of faults on demand.
 */

#ifndef KVE_ENGINE_FAULT_H
#define KVE_ENGINE_FAULT_H


#include <cjson/cJSON.h>


typedef enum {
    KVE_FAULT_NONE = 0,
    KVE_FAULT_STATUS,
    KVE_FAULT_CLOSE,                        /* FIN before headers */
    KVE_FAULT_RESET,                        /* RST before headers */
    KVE_FAULT_RESET_HEADERS,
    KVE_FAULT_RESET_STREAM,
    KVE_FAULT_TRUNCATE,
    KVE_FAULT_GARBAGE,                      /* not HTTP */
    KVE_FAULT_GARBAGE_BODY,
    KVE_FAULT_HANG,                         /* never sends headers */
    KVE_FAULT_STALL,
    KVE_FAULT_SLOW,
    KVE_FAULT_ERROR_STREAM,
    KVE_FAULT_CLIENT_ERROR_STREAM,          /* an error with the code 400 */
    KVE_FAULT_BARE_ERROR_STREAM,            /* an error without a code */
    KVE_FAULT_ERROR_BODY,                   /* 200, and an error as JSON */
    KVE_FAULT_EMPTY_STREAM,                 /* 200, and no event */
    KVE_FAULT_INVALID                       /* unknown name */
} kve_fault_e;


/* parses a name, or a name, "=" and a number, which is stored in n */
kve_fault_e kve_fault_parse(const char *s, int *n);


#endif
