
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _ORACLE_H_INCLUDED_
#define _ORACLE_H_INCLUDED_


/*
 * The expected result of kvr_prompt_read(), computed slowly by other means:
 * cJSON parses the body, the whole canonical text is built as kvr_message.h
 * says, cut into blocks, and hashed by the installed XXH3.
 *
 * The reader accepts other texts as JSON than cJSON does, by design:
 *
 *   reader only
 *     NUMBER      starts like a number and has only characters of numbers
 *     SURROGATE   lone halves of surrogate pairs, as in Python
 *     ESCAPE      "\x" in a text that is hashed or skipped stays unchanged
 *     UNREAD      a skipped string may have any "\u"
 *     CONTAINER   of a value that is skipped or hashed unchanged only brackets
 *                 are counted: commas and literals are not checked, nor is
 *                 nesting beyond cJSON's 1000
 *
 *   cJSON only
 *     NOT_OBJECT  the body of every API is an object
 *     BOM         at the start
 *     SPACE       control characters as white space
 *     HEX         "\u" without four digits is a NUL byte
 *
 *   both, with another text
 *     CONTROL     raw control characters in strings stay raw; engines reject
 *     NUL         "\u0000" does not end a string
 *
 *   and beyond JSON
 *     DEPTH       arrays and objects deeper than KVR_WALK_DEPTH are left out of
 *                 the canonical text
 *
 * The engine checks the body anyway, so a difference can only affect the
 * choice of the server.  oracle_verify() accepts a difference only if a rule
 * allows it: cJSON must accept the body after the explained parts are replaced
 * by plain JSON.
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


/* result of the reader or of the oracle */

#define ORACLE_MAX_CHAIN  4096

typedef struct {
    int                rc;
    kvr_prompt_t       pr;
    uint64_t           chain[ORACLE_MAX_CHAIN];
} oracle_result_t;


/* Reads a body; conf has salt and path. */
void oracle_read(oracle_result_t *res, const kvr_prompt_conf_t *conf,
    const uint8_t *body, size_t len, util_cut_e cut, size_t n);

/* Fails unless both are equal. */
void oracle_same(const oracle_result_t *a, const oracle_result_t *b,
    const char *what);

/* Fails unless this result of the body in one piece is right. */
void oracle_verify(const oracle_result_t *res, const kvr_prompt_conf_t *conf,
    const uint8_t *body, size_t len, oracle_stats_t *stats);

#endif /* _ORACLE_H_INCLUDED_ */
