
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
 * Keys are compared as they are decoded: "max\u005ftokens" is max_tokens.
 */


#include "core/text/kvr_json.h"


#define KVR_EDIT_MAX  16    /* members that are cut at most */


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
} kvr_edit_t;


/*
 * Finds the members of these names.
 *
 * KVR_OK: all of the text was read; KVR_AGAIN: it ends too early; KVR_ERROR: it
 * is no JSON object, or has something behind it; KVR_JSON_COSTLY: it has more
 * than KVR_EDIT_MAX of them, or see kvr_json.h.  Only with KVR_OK the result may
 * be used.  With "first" the root may be an array as well.
 */
int kvr_edit_find(kvr_edit_t *e, const kvr_json_names_t *names,
    kvr_json_fetch_pt fetch, void *data);

/*
 * Whether the readers of engines may take a text for an object or an array, by
 * its first bytes: those of UTF-16 and UTF-32 are a byte of 0 or a mark.
 */
int kvr_edit_begins(kvr_json_fetch_pt fetch, void *data);


#endif /* _KVR_EDIT_H_INCLUDED_ */
