
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_MESSAGE_H_INCLUDED_
#define _KVR_MESSAGE_H_INCLUDED_


/* Reads messages of any API and puts them in canonical form. */


#include "core/prompt/kvr_canon.h"
#include "core/prompt/kvr_prompt_walk.h"


/*
 * Bytes that the window must have for the fast reader.  It is not used while
 * messages have their keys in another order than the canonical one.
 */
#define KVR_MESSAGE_QUICK   64
#define KVR_MESSAGE_SLOWLY  SIZE_MAX


/* the start of a message */
typedef struct {
    kvr_block_mark_t  block;
    uint64_t          offset;
} kvr_message_mark_t;


/* kvr_message_fast.c */

/* Reads the array of messages that is next. */
int kvr_message_list(kvr_walk_t *w);

/* kvr_message.c */

/*
 * Reads the rest of a message that begins at a mark.  rc is KVR_OK if the
 * caller has read its role and a string as content, KVR_DECLINED if nothing.
 */
int kvr_message_rest(kvr_walk_t *w, kvr_message_mark_t *mark, int rc);

/* Reads content: a string, an array of parts, one part, or null. */
int kvr_message_content(kvr_walk_t *w);

/* Starts a message with its role. */
void kvr_message_head(kvr_walk_t *w, const char *role, size_t len);


#endif /* _KVR_MESSAGE_H_INCLUDED_ */
