
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_MESSAGE_H_INCLUDED_
#define _KVR_MESSAGE_H_INCLUDED_


/*
 * Messages in their canonical form, whatever API they came by.  Control bytes,
 * which canonical text cannot hold, separate its pieces:
 *
 *     message   01 role 02 [05 name] content calls
 *     content   part { 03 part }
 *     part      text | 04 digest of an image, sound, file | call
 *     call      06 name 07 arguments
 *
 * so that "content":"x" and "content":[{"type":"text","text":"x"}] are equal.
 * What templates do not render is left out: reasoning of earlier turns, ids,
 * cache_control marks.
 */


#include "core/prompt/kvr_prompt_walk.h"


#define KVR_MESSAGE_START      '\1'
#define KVR_MESSAGE_HEAD_END   '\2'
#define KVR_MESSAGE_PART       '\3'
#define KVR_MESSAGE_MEDIA      '\4'
#define KVR_MESSAGE_NAME       '\5'
#define KVR_MESSAGE_CALL       '\6'
#define KVR_MESSAGE_ARGUMENTS  '\7'


/*
 * Bytes to be had to read a message quickly.  As long as messages have their
 * keys in another order than the canonical one, none are enough.
 */
#define KVR_MESSAGE_QUICK   64
#define KVR_MESSAGE_SLOWLY  SIZE_MAX


/* an image is about a thousand tokens, whatever the length of its url */
#define KVR_MESSAGE_MEDIA_LEN  4096

/* so many media count with that length, further ones with a few bytes */
#define KVR_MESSAGE_MEDIA_MAX  64


/* where a message begins */
typedef struct {
    kvr_block_mark_t  block;
    uint64_t          offset;
} kvr_message_mark_t;


/* kvr_message_fast.c */

/* reads the array of messages that is next */
int kvr_message_list(kvr_walk_t *w);

/* reads one message, or item of the Responses API, with a mark of its own */
int kvr_message(kvr_walk_t *w);

/* kvr_message.c */

/*
 * Goes on with a message that begins at a mark: rc is KVR_OK if its role and a
 * content that is a string were read, KVR_DECLINED if nothing was.
 */
int kvr_message_rest(kvr_walk_t *w, kvr_message_mark_t *mark, int rc);

/*
 * Ends the list before a message that became too costly, and adds to w->cut
 * what is passed over: KVR_DECLINED, as at the end of an array.
 */
int kvr_message_cut(kvr_walk_t *w, kvr_message_mark_t *mark);

/* reads content: a string, an array of parts, one part, or null */
int kvr_message_content(kvr_walk_t *w);

/* starts a message by its role: what a plain string stands for in some APIs */
void kvr_message_head(kvr_walk_t *w, const char *role, size_t len);


#endif /* _KVR_MESSAGE_H_INCLUDED_ */
