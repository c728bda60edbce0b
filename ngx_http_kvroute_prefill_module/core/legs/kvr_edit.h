
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_EDIT_H_INCLUDED_
#define _KVR_EDIT_H_INCLUDED_


/*
 * Finds the bytes of a body to blank, so that its root object loses some of its
 * members, and the place where others may be appended.
 *
 * A member is cut with the comma before it, or, if no member is left before
 * it, with the comma behind it.  What is left is a JSON object with spaces
 * where members were.  A body of the same length in the same buffers can be
 * sent again after a failure, and can get its bytes back.
 *
 * Keys are compared decoded: "max\u005ftokens" is max_tokens.
 */


#include "core/text/kvr_json.h"


#define KVR_EDIT_MAX  16    /* members to cut, at most */


/* bytes to blank */
typedef struct {
    uint64_t           offset;
    uint64_t           len;
} kvr_edit_cut_t;


typedef struct {
    kvr_edit_cut_t     cut[KVR_EDIT_MAX];
    uint32_t           n;
    uint32_t           kept;       /* members of the root that stay */
    uint64_t           end;        /* offset of the root's closing brace */
} kvr_edit_t;


/*
 * Finds the members of these names.  If names->first is set, it finds them at
 * any depth, and the root may be an array.
 *
 * Returns KVR_OK, or an error: KVR_AGAIN if the text ends too early, KVR_ERROR
 * if it is not a JSON object or has something behind it, KVR_JSON_COSTLY if it
 * has more than KVR_EDIT_MAX of the members, or see kvr_json.h.
 */
int kvr_edit_find(kvr_edit_t *e, const kvr_json_names_t *names,
    kvr_json_fetch_pt fetch, void *data);

/*
 * Returns whether an engine may read a text as a JSON object or array, by its
 * first bytes.  UTF-16 and UTF-32 begin with a byte of 0 or a byte order mark.
 */
int kvr_edit_begins(kvr_json_fetch_pt fetch, void *data);


#endif /* _KVR_EDIT_H_INCLUDED_ */
