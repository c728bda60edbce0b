
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_TEXT_H_INCLUDED_
#define _KVR_TEXT_H_INCLUDED_


/*
 * The hot loops over body bytes, in builds for several instruction sets of
 * which the best is chosen once at run time: all give the same digests.
 *
 * Canonical text is JSON's minimally escaped form: "\n", "\"" and the like
 * stay as they stand in the body, only spellings that clients differ in are
 * rewritten ("\u00e9", "\/").  Decoding every escape would cost five times as
 * much on program code.
 */


#include "core/text/kvr_json.h"
#include "core/hash/kvr_block.h"


struct kvr_text_ops_s {
    const char     *name;

    kvr_digest_pt   digest;

    /* the opening quote was consumed; puts the canonical text to the stream */
    int           (*string)(kvr_json_t *j, kvr_block_t *b);

    /* the opening quote was consumed */
    int           (*skip_string)(kvr_json_t *j);

    /* at "{" or "["; b is not used */
    int           (*skip_container)(kvr_json_t *j);

    /* inside of one, at a key or an item: up to its end */
    int           (*skip_rest)(kvr_json_t *j);

    /*
     * In a container of which *depth brackets are open, 0 at its first one:
     * stops at the next string that begins with one of a few letters or with a
     * backslash, maybe at another one.  KVR_DECLINED: the container has ended.
     */
    int           (*find_string)(kvr_json_t *j, size_t *depth,
                                 const char *first);

    /* at "{" or "["; puts it without insignificant white space */
    int           (*raw_container)(kvr_json_t *j, kvr_block_t *b);
};


extern const kvr_text_ops_t  kvr_text_ops_base;
#if (__x86_64__)
extern const kvr_text_ops_t  kvr_text_ops_avx2;
#endif

/* the best kernel of this processor */
const kvr_text_ops_t *kvr_text_ops(void);

/* the n-th kernel that runs here, best first, or NULL; for tests */
const kvr_text_ops_t *kvr_text_ops_nth(unsigned n);

/* puts any value without insignificant white space */
int kvr_text_raw(kvr_json_t *j, kvr_block_t *b);


#endif /* _KVR_TEXT_H_INCLUDED_ */
