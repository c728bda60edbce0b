
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_EDIT_H_INCLUDED_
#define _KVR_EDIT_H_INCLUDED_


/*
 * Which bytes of a body have to be blanked so that its root object loses some
 * of its members, and where others may be appended.
 *
 * A member that is cut takes along the comma before it, or, if none is left
 * before it, the one behind it.  So what is left is a JSON object, byte for
 * byte what it was, with spaces where members stood.  A body of the same length
 * in the same buffers can be sent again after a failure, and gets its bytes
 * back.
 *
 * Keys are compared as they are decoded: "max\u005ftokens" is max_tokens.  What
 * stands inside of values is not looked at.
 */


#include "core/text/kvr_json.h"


/* as many are cut in one pass: a body that has more takes another pass */
#define KVR_EDIT_MAX  16


/* bytes to be blanked */
typedef struct {
    uint64_t           offset;
    uint64_t           len;
} kvr_edit_cut_t;


typedef struct {
    kvr_edit_cut_t     cut[KVR_EDIT_MAX];
    uint32_t           n;
    uint32_t           kept;       /* members that stay */
    uint64_t           end;        /* offset of the root's closing brace */
    unsigned           more:1;     /* there are more to be cut */
} kvr_edit_t;


/*
 * Finds the members of these names, of which the last one is NULL.
 *
 * KVR_OK: all of the text was read; KVR_AGAIN: it ends too early; KVR_ERROR: it
 * is no JSON object, or has something behind it; KVR_JSON_COSTLY: see
 * kvr_json.h.  Only with KVR_OK the result may be used.
 */
int kvr_edit_find(kvr_edit_t *e, const char *const *names,
    kvr_json_fetch_pt fetch, void *data);


#endif /* _KVR_EDIT_H_INCLUDED_ */
