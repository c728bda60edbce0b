
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_AGAIN_H_INCLUDED_
#define _KVR_AGAIN_H_INCLUDED_


/*
 * The body of a request that continues an answer: the client's, and behind its
 * prompt the text that the client has been given, with so many tokens fewer to
 * produce.
 */


#include "core/continue/kvr_answer.h"


/* bytes that the body grows by beside the text, at most */
#define KVR_AGAIN_MORE  160


typedef struct {
    kvr_splice_t       edits;
    uint8_t            digits[5][20];
    size_t             numbers;
    size_t             end;      /* offset of the root's closing brace */
    uint32_t           most;     /* tokens that engines produce for who does
                                    not say, 0: any number */
    unsigned           limit:1;  /* there is nothing left to produce */
} kvr_again_t;


/*
 * Finds out whether an answer to a body may be continued with what was given of
 * it.  KVR_ANSWER_WHOLE: it may, and kvr_again_put() writes the body; or limit
 * is set.  most is set before.
 */
kvr_answer_cut_e kvr_again_read(kvr_again_t *b, const kvr_answer_t *a,
    const uint8_t *p, size_t len);

/* writes KVR_AGAIN_MORE bytes more than body and text have, at most */
void kvr_again_put(const kvr_again_t *b, const uint8_t *p, size_t len,
    kvr_splice_put_pt put, void *data);


#endif /* _KVR_AGAIN_H_INCLUDED_ */
