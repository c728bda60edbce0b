
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_TEXT_H_INCLUDED_
#define _KVR_TEXT_H_INCLUDED_


/*
 * The hot loops over the bytes of a body, built for several instruction sets.
 * All of them compute the same digests, and the best one for the processor is
 * used.
 *
 * Canonical text is JSON with the fewest escapes: "\n" and "\"" stay as they
 * are in the body; only spellings that differ between clients are rewritten
 * ("\u00e9", "\/").  Decoding every escape would cost five times as much on
 * program code.
 */


#include "core/text/kvr_json.h"
#include "core/hash/kvr_block.h"


struct kvr_text_ops_s {
    const char     *name;

    kvr_digest_pt   digest;

    /* puts the canonical text of a string whose opening quote was consumed */
    int           (*string)(kvr_json_t *j, kvr_block_t *b);

    /* skips a string whose opening quote was consumed */
    int           (*skip_string)(kvr_json_t *j);

    /* skips the object or array that is next */
    int           (*skip_container)(kvr_json_t *j);

    /*
     * Moves through a container to the next string that begins with one of a
     * few letters or with a backslash.  It can stop at another string, too.
     * *depth is the number of open brackets, 0 before the first one.
     * KVR_DECLINED: the container has ended.
     */
    int           (*find_string)(kvr_json_t *j, size_t *depth,
                                 const char *first);

    /* puts the object or array that is next without white space */
    int           (*raw_container)(kvr_json_t *j, kvr_block_t *b);
};


extern const kvr_text_ops_t  kvr_text_ops_base;
#if (__x86_64__)
extern const kvr_text_ops_t  kvr_text_ops_avx2;
#endif

/* Returns the best kernel for this processor. */
const kvr_text_ops_t *kvr_text_ops(void);

/* Returns the n-th kernel that runs here, best first, or NULL; for tests. */
const kvr_text_ops_t *kvr_text_ops_nth(unsigned n);

/* Puts any value without white space outside strings. */
int kvr_text_raw(kvr_json_t *j, kvr_block_t *b);


#endif /* _KVR_TEXT_H_INCLUDED_ */
