
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_JSON_H_INCLUDED_
#define _KVR_JSON_H_INCLUDED_


/*
 * A pull reader over JSON text that lies in pieces: a chain of buffers, or a
 * file read window by window.  It makes no tree and allocates nothing.  What
 * the caller does not ask for is skipped by counting brackets outside strings:
 * the grammar inside skipped values is not checked, nor that of numbers, since
 * the engine checks the body anyway and only a guess where to send it is wanted
 * here.
 *
 * All functions return KVR_OK, KVR_ERROR (not JSON), KVR_AGAIN (the text ended
 * before the value did, or could not be fetched), or KVR_JSON_COSTLY.
 */


#include "core/base/kvr_core.h"


#define KVR_JSON_KEY_LEN   64
#define KVR_JSON_NAME_LEN  32    /* all of kvr_json_names_t are shorter */


/*
 * Nobody may make a text that costs many times what others of its length do.
 * What costs by the byte is bounded by the length; objects, items, odd escapes
 * and the like cost besides, and so does to go back.  A text that has more than
 * KVR_JSON_STEPS of these and one for each KVR_JSON_STEP bytes, or goes back
 * over more than KVR_JSON_BACK bytes and KVR_JSON_AGAIN times what was read, is
 * given up with KVR_JSON_COSTLY.
 */
#define KVR_JSON_STEPS  65536
#define KVR_JSON_STEP   64
#define KVR_JSON_BACK   (1024 * 1024)
#define KVR_JSON_AGAIN  3

#define KVR_JSON_COSTLY  -6


/*
 * Gives the text that starts at an offset: a pointer, and in *len how many
 * bytes are valid there; NULL where the text ends or cannot be had.  What was
 * given before is not used any more after the next call.
 */
typedef const uint8_t *(*kvr_json_fetch_pt)(void *data, uint64_t offset,
    size_t *len);


typedef struct kvr_text_ops_s  kvr_text_ops_t;


typedef struct {
    const uint8_t          *p;          /* next byte */
    const uint8_t          *e;          /* end of the window */
    const uint8_t          *start;      /* start of the window */
    uint64_t                base;       /* its offset in the text */

    kvr_json_fetch_pt       fetch;
    void                   *data;

    const kvr_text_ops_t   *ops;

    uint64_t                steps;      /* granted so far */
    int64_t                 left;       /* of these */
    uint64_t                most;       /* the furthest offset left by a seek */
    uint64_t                back;       /* bytes gone back */

    const uint8_t          *key;        /* last key, decoded */
    size_t                  key_len;    /* may exceed the key's buffer */
    uint8_t                 key_buf[KVR_JSON_KEY_LEN];
} kvr_json_t;


/* names of members; the lists end with NULL */
typedef struct {
    const char *const *name;

    /*
     * NULL: only members of the root are looked for.  Else these letters begin
     * all names, and "content" has the members of the root that are not looked
     * into: they have the client's own text.
     */

    const char        *first;
    const char *const *content;
} kvr_json_names_t;


/* a text in one piece, as an argument of kvr_json_fetch_pt */
typedef struct {
    const uint8_t          *data;
    size_t                  len;
} kvr_json_text_t;


/* ops are the kernel's that reads it, mostly kvr_text_ops() */
void kvr_json_init(kvr_json_t *j, const kvr_text_ops_t *ops,
    kvr_json_fetch_pt fetch, void *data);
const uint8_t *kvr_json_fetch_text(void *data, uint64_t offset, size_t *len);

/* gets the next window; KVR_AGAIN at the end of the text */
int kvr_json_refill(kvr_json_t *j);

/*
 * Goes back (or forth) to an offset, e.g. one from kvr_json_offset().  To go
 * back counts as said above.
 */
int kvr_json_seek(kvr_json_t *j, uint64_t offset);

/*
 * Gives up an array of which an item became too costly: passes over that item,
 * which begins at an offset, and over all that follow, and leaves what the
 * rest of a body may need.  To be called once for a text.
 */
int kvr_json_cut(kvr_json_t *j, uint64_t offset);

/*
 * Counts n steps; KVR_JSON_COSTLY: these are too many.  Who walks an object or
 * an array counts what there may be any number of.
 */
static inline int kvr_json_spend(kvr_json_t *j, int n);
int kvr_json_grant(kvr_json_t *j);

/*
 * The first byte that is no white space, not consumed, as a positive number;
 * KVR_AGAIN at the end of the text.
 */
static inline int kvr_json_peek(kvr_json_t *j);
int kvr_json_peek_far(kvr_json_t *j);

/*
 * Walks an object: call once after its "{" was consumed with *first = 1, then
 * until KVR_DECLINED says that "}" was consumed.  Each time the key is in
 * j->key and the value is next; the caller consumes it.
 */
int kvr_json_key(kvr_json_t *j, int *first);

/*
 * Walks an array likewise: KVR_OK means that a value is next, KVR_DECLINED
 * that "]" was consumed.
 */
int kvr_json_item(kvr_json_t *j, int *first);

/*
 * Reads a string, its opening quote not yet consumed, decodes it to UTF-8 and
 * puts the first size bytes to dst; *len is the length of all of it.  A lone
 * surrogate is kept in the three bytes that it would have as a character.
 */
int kvr_json_string(kvr_json_t *j, uint8_t *dst, size_t size, size_t *len);

/*
 * Decodes an escape whose backslash was just consumed, appends it to dst (room
 * for 8 bytes) and adds to *len.  With canonical set, what JSON must escape
 * stays in its shortest escaped form, as does a lone surrogate.
 */
int kvr_json_escape(kvr_json_t *j, uint8_t *dst, size_t *len, int canonical);

/*
 * Reads a number as an integer, rounded towards zero and clamped; what is no
 * number is skipped and KVR_DECLINED returned.
 */
int kvr_json_integer(kvr_json_t *j, int64_t *value);

/* skips any value */
int kvr_json_skip(kvr_json_t *j);

/* skips a number or a literal */
int kvr_json_skip_scalar(kvr_json_t *j);


/* whether a key is one of the names, or of the content */
int kvr_json_names_has(const char *const *list, const uint8_t *key,
    size_t len);

/*
 * Finds the next key inside of a value that is one of the names.  Before the
 * first call *depth is 0 and the value is next, which is an object or an array.
 * KVR_OK: the value of a member is next, whose key is at *key, and is to be
 * consumed; KVR_DECLINED: the first value was consumed.
 */
int kvr_json_names_next(const kvr_json_names_t *names, kvr_json_t *j,
    size_t *depth, uint64_t *key);


/* consumes one byte */
static inline int
kvr_json_byte(kvr_json_t *j)
{
    if (j->p == j->e && kvr_json_refill(j) != KVR_OK) {
        return KVR_AGAIN;
    }

    return *j->p++;
}


static inline uint64_t
kvr_json_offset(kvr_json_t *j)
{
    return j->base + (uint64_t) (j->p - j->start);
}


static inline int
kvr_json_spend(kvr_json_t *j, int n)
{
    j->left -= n;

    return kvr_likely(j->left >= 0) ? KVR_OK : kvr_json_grant(j);
}


/* nearly always it is the next one */
static inline int
kvr_json_peek(kvr_json_t *j)
{
    if (kvr_likely(j->p < j->e && *j->p > ' ')) {
        return *j->p;
    }

    return kvr_json_peek_far(j);
}


static inline int
kvr_json_names_inside(int c)
{
    return c == '{' || c == '[';
}


#endif /* _KVR_JSON_H_INCLUDED_ */
