
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_MESSAGE_H_INCLUDED_
#define _KVR_MESSAGE_H_INCLUDED_


/* Reads messages of any API, and puts them in their canonical form. */


#include "core/prompt/kvr_canon.h"
#include "core/prompt/kvr_prompt_walk.h"


/*
 * Bytes to be had to read a message quickly.  As long as messages have their
 * keys in another order than the canonical one, none are enough.
 */
#define KVR_MESSAGE_QUICK   64
#define KVR_MESSAGE_SLOWLY  SIZE_MAX


/* where a message begins */
typedef struct {
    kvr_block_mark_t  block;
    uint64_t          offset;
} kvr_message_mark_t;


/* kvr_message_fast.c */

/* reads the array of messages that is next */
int kvr_message_list(kvr_walk_t *w);

/* kvr_message.c */

/*
 * Goes on with a message that begins at a mark: rc is KVR_OK if its role and a
 * content that is a string were read, KVR_DECLINED if nothing was.
 */
int kvr_message_rest(kvr_walk_t *w, kvr_message_mark_t *mark, int rc);

/* reads content: a string, an array of parts, one part, or null */
int kvr_message_content(kvr_walk_t *w);

/* starts a message by its role: what a plain string stands for in some APIs */
void kvr_message_head(kvr_walk_t *w, const char *role, size_t len);


#endif /* _KVR_MESSAGE_H_INCLUDED_ */
