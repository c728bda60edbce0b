
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _ORACLE_NODE_H_INCLUDED_
#define _ORACLE_NODE_H_INCLUDED_


/*
 * Shared by the oracle's files: the values of a body as nodes with their place
 * in the text, from cJSON's tree or read by the looser rules of the reader; see
 * oracle.h.
 */


#include "oracle.h"

#include <cjson/cJSON.h>


typedef struct node_s  node_t;

struct node_s {
    int              kind;       /* first byte, '0' for all numbers */
    const uint8_t   *p;          /* its text */
    size_t           len;

    node_t          *key;
    node_t          *child;
    node_t          *next;
    node_t          *all;        /* to be freed */

    const char      *string;     /* cJSON's value */
    double           number;
    util_buf_t       name;       /* of a key, decoded */

    unsigned         strict:1;   /* from cJSON, not by the reader's rules */
    unsigned         opened:1;   /* its items were read */
    unsigned         text:1;     /* it was hashed as text */
    unsigned         word:1;     /* it was decoded */
};


typedef struct {
    size_t           len;
    unsigned         cut:1;          /* the string is longer */
    uint8_t          data[KVR_PROMPT_MODEL_LEN + 1];
} word_t;


enum {
    SYSTEM = 0, INSTRUCTIONS, TOOLS, TOKEN_IDS, INPUT_IDS, TEXT, TEXT_INPUT,
    INPUTS, INPUT, PROMPT, MESSAGES, SECTIONS
};


typedef struct {
    node_t          *nodes;
    size_t           len;        /* of the body */
    int              error;      /* invalid by the rules of the reader too */
    unsigned        *explained;

    int              system;
    unsigned         media;

    util_buf_t       section[SECTIONS];
    kvr_prompt_shape_e  shape[SECTIONS];
    uint64_t         extra[SECTIONS];
} oracle_t;


/* cJSON's tree, with the places of its nodes in the text */
node_t *node_json(oracle_t *o, const cJSON *json, const uint8_t **p,
    const uint8_t *e);

/* Reads a value as the reader skips one; NULL if it is invalid. */
node_t *node_loose(oracle_t *o, const uint8_t **p, const uint8_t *e);

/* Sets the items of an array or object; 0 if it has none. */
int node_open(oracle_t *o, node_t *v);

/* The same, of a value of this kind that is not too deep. */
int node_opens(oracle_t *o, node_t *v, int kind, unsigned depth);

/* Decodes a string; also checks the slow reference against cJSON. */
void node_string(oracle_t *o, node_t *v, util_buf_t *out, int canonical);

/* Returns whether this is the key of an item. */
int node_is(node_t *item, const char *name);

/* Returns the value of the last key of that name. */
node_t *node_get(node_t *v, const char *name);

/* Reads the first max bytes of a string; none if the value is no string. */
void node_word(oracle_t *o, node_t *v, word_t *w, size_t max);
int word_is(const word_t *w, const char *s);

/* Adds any value without insignificant white space. */
void node_raw(oracle_t *o, node_t *v, util_buf_t *out);

void node_free(oracle_t *o);


/* Returns the digest of a value, as of root values and media; 0 for null. */
uint64_t oracle_digest(oracle_t *o, node_t *v);

/* Adds messages in their canonical form. */
void oracle_content(oracle_t *o, node_t *v, unsigned depth, util_buf_t *out);
void oracle_messages(oracle_t *o, node_t *v, unsigned depth, util_buf_t *out);

/* Computes the expected result for an opened body. */
void oracle_expect(oracle_t *o, node_t *body, const kvr_prompt_conf_t *conf,
    oracle_result_t *res);


static inline int
node_space(unsigned c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}


#endif /* _ORACLE_NODE_H_INCLUDED_ */
