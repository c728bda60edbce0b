
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_CANON_H_INCLUDED_
#define _KVR_CANON_H_INCLUDED_


/*
 * The canonical form of messages of all APIs: messages that an engine renders
 * alike are equal.
 *
 *     message   01 role 02 [05 name] content calls
 *     content   part { 03 part }
 *     part      text | 04 digest of an image, sound or file | call
 *     call      06 name 07 arguments
 *
 * So "content":"x" and "content":[{"type":"text","text":"x"}] are equal.  It
 * has no members that templates do not render: reasoning of earlier turns, ids,
 * cache_control marks.
 *
 * Text is UTF-8 with the fewest escapes that JSON allows.  Quotes, backslashes,
 * control characters and lone surrogates stay escaped, in their shortest form.
 * Other escapes are decoded: "\/" becomes "/", "\u00e9" becomes the letter.  So
 * text has no control bytes, and the bytes below are unique separators.
 */


#define KVR_CANON_MESSAGE    '\1'
#define KVR_CANON_CONTENT    '\2'
#define KVR_CANON_PART       '\3'
#define KVR_CANON_MEDIA      '\4'
#define KVR_CANON_NAME       '\5'
#define KVR_CANON_CALL       '\6'
#define KVR_CANON_ARGUMENTS  '\7'

/* the beginning of a message as a string; role is a literal */
#define kvr_canon_head(role)  "\1" role "\2"


/* bytes that an image counts as: about a thousand tokens, whatever its URL */
#define KVR_CANON_MEDIA_LEN  4096

/*
 * media items that count as that many bytes; each further one as a few bytes
 */
#define KVR_CANON_MEDIA_MAX  64


#endif /* _KVR_CANON_H_INCLUDED_ */
