
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_AGAIN_H_INCLUDED_
#define _KVR_AGAIN_H_INCLUDED_


/*
 * The body of a request that continues an answer: the client's body, with the
 * text that the client has received appended to its prompt, and its limit of
 * tokens reduced by those of that text.
 */


#include "core/continue/kvr_answer.h"


/* most bytes that the body grows by in addition to the text */
#define KVR_AGAIN_MORE  160


typedef struct {
    kvr_splice_t       edits;
    uint8_t            digits[5][20];
    size_t             numbers;
    size_t             end;      /* offset of the root's closing brace */
    uint32_t           most;     /* tokens of a reply if the request sets no
                                    limit; 0: unlimited */
    unsigned           limit:1;  /* all requested tokens were produced */
} kvr_again_t;


/*
 * Checks whether the answer to this body can be continued behind the text sent
 * so far.  The caller sets most.  Returns KVR_ANSWER_WHOLE if it can: then
 * edits make the new body, which has at most KVR_AGAIN_MORE bytes more than
 * body and text, unless limit is set.
 */
kvr_answer_cut_e kvr_again_read(kvr_again_t *b, const kvr_answer_t *a,
    const uint8_t *p, size_t len);

/*
 * Makes the edits with which a body asks for the usage of its stream: at most
 * KVR_AGAIN_MORE bytes more.  KVR_DECLINED: it asks for no stream, or for the
 * usage already.
 */
int kvr_again_usage(kvr_splice_t *edits, const uint8_t *p, size_t len);

/* Tells whether a body asks for a stream. */
int kvr_again_streams(const uint8_t *p, size_t len);


#endif /* _KVR_AGAIN_H_INCLUDED_ */
