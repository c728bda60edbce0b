
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_JSON_H_INCLUDED_
#define _KVR_JSON_H_INCLUDED_


/*
 * A pull reader for JSON text in pieces: a chain of buffers, or a file read
 * window by window.  It builds no tree and allocates nothing.  It skips values
 * that the caller does not read by counting brackets outside strings.  It does
 * not check the grammar inside skipped values, nor that of numbers: the engine
 * checks the body anyway.
 *
 * All functions return KVR_OK, KVR_ERROR (not JSON), KVR_AGAIN (the text ended
 * inside the value, or could not be fetched), or KVR_JSON_COSTLY.
 */


#include "core/base/kvr_core.h"


#define KVR_JSON_KEY_LEN   64
#define KVR_JSON_NAME_LEN  32    /* longer than all of kvr_json_names_t */


/*
 * Limits that keep a client from sending a text that costs many times as much
 * as others of its length.  Objects, items, rewritten escapes and seeks back
 * count as steps.  The reader returns KVR_JSON_COSTLY if a text takes more than
 * KVR_JSON_STEPS steps plus one for each KVR_JSON_STEP bytes, or goes back over
 * more than KVR_JSON_BACK bytes plus KVR_JSON_AGAIN times the bytes read.
 */
#define KVR_JSON_STEPS  65536
#define KVR_JSON_STEP   64
#define KVR_JSON_BACK   (1024 * 1024)
#define KVR_JSON_AGAIN  3

#define KVR_JSON_COSTLY  -6


/*
 * Returns the text at an offset and sets *len to the number of valid bytes
 * there; returns NULL at the end of the text, or if it cannot be read.  The
 * next call makes the pointer invalid.
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

    uint64_t                steps;      /* allowed so far */
    int64_t                 left;       /* of the allowed steps */
    uint64_t                most;       /* furthest offset before a seek back */
    uint64_t                back;       /* bytes that seeks went back */

    const uint8_t          *key;        /* last key, decoded */
    size_t                  key_len;    /* KVR_JSON_KEY_LEN + 1: too long */
    uint8_t                 key_buf[KVR_JSON_KEY_LEN];
} kvr_json_t;


/* names of members; the lists end with NULL */
typedef struct {
    const char *const *name;

    /*
     * The letters that all names begin with; NULL: only members of the root
     * are searched.  The search does not enter the members of the root in
     * "content": they hold the client's own text.
     */

    const char        *first;
    const char *const *content;
} kvr_json_names_t;


/* a text in one piece, the argument of kvr_json_fetch_text() */
typedef struct {
    const uint8_t          *data;
    size_t                  len;
} kvr_json_text_t;


/* Starts a text; ops is the kernel that reads it, usually kvr_text_ops(). */
void kvr_json_init(kvr_json_t *j, const kvr_text_ops_t *ops,
    kvr_json_fetch_pt fetch, void *data);

/* A kvr_json_fetch_pt; data is a kvr_json_text_t. */
const uint8_t *kvr_json_fetch_text(void *data, uint64_t offset, size_t *len);

/* Fetches the next window; returns KVR_AGAIN at the end of the text. */
int kvr_json_refill(kvr_json_t *j);

/* Moves to an offset, e.g. one from kvr_json_offset(). */
int kvr_json_seek(kvr_json_t *j, uint64_t offset);

/*
 * Counts n steps; returns KVR_JSON_COSTLY if the text has no more.  Callers
 * count whatever a client can repeat in an object or an array.
 */
static inline int kvr_json_spend(kvr_json_t *j, int n);
int kvr_json_grant(kvr_json_t *j);

/*
 * Returns the next byte that is no white space as a positive number, without
 * consuming it; KVR_AGAIN at the end of the text.
 */
static inline int kvr_json_peek(kvr_json_t *j);
int kvr_json_peek_far(kvr_json_t *j);

/*
 * Moves to the next member of an object.  Before the first call the caller
 * consumes the "{" and sets *first to 1.  KVR_OK: the key is in j->key, and the
 * caller consumes the value, which is next.  KVR_DECLINED: "}" was consumed.
 */
int kvr_json_key(kvr_json_t *j, int *first);

/*
 * Moves to the next item of an array in the same way.  KVR_OK: the item is
 * next.  KVR_DECLINED: "]" was consumed.
 */
int kvr_json_item(kvr_json_t *j, int *first);

/*
 * Reads the string that is next, with its opening quote, and decodes it to
 * UTF-8.  Stores the first size bytes in dst; *len is the length, or size + 1
 * if the string is longer.  A lone surrogate becomes the three bytes that it
 * would have as a character.
 */
int kvr_json_string(kvr_json_t *j, uint8_t *dst, size_t size, size_t *len);

/*
 * Decodes an escape whose backslash was just consumed, appends it to dst (room
 * for 8 bytes) and adds its length to *len.  If canonical is set, a lone
 * surrogate and the characters that JSON must escape stay escaped, in their
 * shortest form.
 */
int kvr_json_escape(kvr_json_t *j, uint8_t *dst, size_t *len, int canonical);

/*
 * Reads a number as an integer, rounded towards zero and clamped.  Skips any
 * other value and returns KVR_DECLINED.
 */
int kvr_json_integer(kvr_json_t *j, int64_t *value);

/* Skips any value. */
int kvr_json_skip(kvr_json_t *j);

/* Skips a number or a literal, whose first byte is next. */
int kvr_json_skip_scalar(kvr_json_t *j);


/* Returns whether a key is in a list of names. */
int kvr_json_names_has(const char *const *list, const uint8_t *key,
    size_t len);

/*
 * Finds the next key, inside a value, that is one of the names.  Before the first
 * call *depth is 0 and the value, an object or an array, is next.  KVR_OK: *key
 * is the offset of the key, and the caller consumes the member's value, which
 * is next.  KVR_DECLINED: the outer value was consumed.
 */
int kvr_json_names_next(const kvr_json_names_t *names, kvr_json_t *j,
    size_t *depth, uint64_t *key);


/* Consumes one byte. */
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


/* the values of hexadecimal digits, with bit 4 set; 0: no digit */
extern const uint8_t  kvr_json_hex[256];


/* Joins the halves of a surrogate pair. */
static inline unsigned
kvr_json_pair(unsigned high, unsigned low)
{
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
}


/* Stores a character as UTF-8 and returns its length. */
static inline size_t
kvr_json_utf8(uint8_t *dst, unsigned c)
{
    if (c >= 0x10000) {
        dst[0] = (uint8_t) (0xf0 | c >> 18);
        dst[1] = (uint8_t) (0x80 | (c >> 12 & 63));
        dst[2] = (uint8_t) (0x80 | (c >> 6 & 63));
        dst[3] = (uint8_t) (0x80 | (c & 63));
        return 4;
    }

    if (c >= 0x800) {
        dst[0] = (uint8_t) (0xe0 | c >> 12);
        dst[1] = (uint8_t) (0x80 | (c >> 6 & 63));
        dst[2] = (uint8_t) (0x80 | (c & 63));
        return 3;
    }

    if (c >= 0x80) {
        dst[0] = (uint8_t) (0xc0 | c >> 6);
        dst[1] = (uint8_t) (0x80 | (c & 63));
        return 2;
    }

    dst[0] = (uint8_t) c;

    return 1;
}


#endif /* _KVR_JSON_H_INCLUDED_ */
