
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _ORACLE_H_INCLUDED_
#define _ORACLE_H_INCLUDED_


/*
 * What kvr_prompt_read() must find, worked out slowly and by other means: the
 * body parsed by cJSON, the canonical text built as kvr_message.h says, in
 * full, and cut in blocks hashed by the installed XXH3.
 *
 * Where the reader differs from cJSON by design, in what it takes for JSON:
 *
 *   reader only
 *     NUMBER      what starts like one and has no other characters than those
 *                 of numbers
 *     SURROGATE   lone halves of surrogate pairs, as Python takes them
 *     ESCAPE      "\x" in a text that is hashed or skipped: it stays as it is
 *     UNREAD      a string that is skipped may have any "\u"
 *     CONTAINER   a value that is skipped, or hashed as it stands, has its
 *                 brackets counted and no more: commas, literals, nesting
 *                 beyond cJSON's 1000
 *
 *   cJSON only
 *     NOT_OBJECT  no API has bodies that are no objects
 *     BOM         at the start
 *     SPACE       control characters as white space
 *     HEX         "\u" without four digits, which it takes for a NUL byte
 *
 *   both, with another text
 *     CONTROL     raw control characters in strings stay raw; engines refuse
 *     NUL         "\u0000" does not end a string
 *
 *   and beyond JSON
 *     DEPTH       arrays and objects more than KVR_WALK_DEPTH deep in what is
 *                 descended into are left out of the canonical text
 *
 * Since the engine checks the body anyway, none of these can do harm but a
 * guess where to send it.  oracle_verify() takes each difference as explained
 * only if it lies where the rule allows it: with all that was explained
 * replaced by plain JSON, cJSON must take the body.
 */


#include "util.h"
#include "core/prompt/kvr_endpoint.h"


typedef enum {
    ORACLE_NUMBER = 0,
    ORACLE_SURROGATE,
    ORACLE_ESCAPE,
    ORACLE_UNREAD,
    ORACLE_CONTAINER,
    ORACLE_NOT_OBJECT,
    ORACLE_BOM,
    ORACLE_SPACE,
    ORACLE_HEX,
    ORACLE_CONTROL,
    ORACLE_NUL,
    ORACLE_DEPTH,
    ORACLE_EXPLANATIONS
} oracle_explanation_e;


typedef struct {
    unsigned           bodies;
    unsigned           accepted;      /* by both */
    unsigned           rejected;      /* by both */
    unsigned           explained[ORACLE_EXPLANATIONS];
} oracle_stats_t;


/* what a reading gives, by the reader or by the oracle */

#define ORACLE_MAX_CHAIN  4096

typedef struct {
    int                rc;
    kvr_prompt_t       pr;
    uint64_t           chain[ORACLE_MAX_CHAIN];
} oracle_result_t;


/* salt, path and unit; secret and memory are given here */
void oracle_read(oracle_result_t *res, const kvr_prompt_conf_t *conf,
    const uint8_t *body, size_t len, util_cut_e cut, size_t n);

/* fails unless they are equal */
void oracle_same(const oracle_result_t *a, const oracle_result_t *b,
    const char *what);

/* fails unless a reading of this body in one piece is as it must be */
void oracle_verify(const oracle_result_t *res, const kvr_prompt_conf_t *conf,
    const uint8_t *body, size_t len, oracle_stats_t *stats);

#endif /* _ORACLE_H_INCLUDED_ */
