
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_CANON_H_INCLUDED_
#define _KVR_CANON_H_INCLUDED_


/*
 * The canonical form of messages, whatever API they came by: equal for all that
 * an engine renders alike.
 *
 *     message   01 role 02 [05 name] content calls
 *     content   part { 03 part }
 *     part      text | 04 digest of an image, sound, file | call
 *     call      06 name 07 arguments
 *
 * so that "content":"x" and "content":[{"type":"text","text":"x"}] are equal.
 * What templates do not render is left out: reasoning of earlier turns, ids,
 * cache_control marks.
 *
 * Text is UTF-8 with the fewest escapes that JSON allows.  A quote, a backslash
 * and a control character stay escaped, each in its shortest form; so does a
 * lone surrogate.  All else is itself: "\/" becomes "/", "\u00e9" the letter.
 * So text has no control bytes, and those below separate what is around it.
 */


#define KVR_CANON_MESSAGE    '\1'
#define KVR_CANON_CONTENT    '\2'
#define KVR_CANON_PART       '\3'
#define KVR_CANON_MEDIA      '\4'
#define KVR_CANON_NAME       '\5'
#define KVR_CANON_CALL       '\6'
#define KVR_CANON_ARGUMENTS  '\7'

/* what a message begins with, as a string; role: a literal */
#define kvr_canon_head(role)  "\1" role "\2"


/* an image is about a thousand tokens, whatever the length of its url */
#define KVR_CANON_MEDIA_LEN  4096

/* as many media count with that length, further ones with a few bytes */
#define KVR_CANON_MEDIA_MAX  64


#endif /* _KVR_CANON_H_INCLUDED_ */
