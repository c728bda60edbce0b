
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _BODIES_H_INCLUDED_
#define _BODIES_H_INCLUDED_


/*
 * Random request bodies of all APIs in random spelling: order of keys,
 * duplicates, white space, escapes.  Some are not JSON, or only for some
 * parsers.
 */


#include "util.h"


/* Makes a body, and a path that accepts it. */
void bodies_make(util_rng_t *r, util_buf_t *out, const char **path);

/* Damages it: bytes flipped, deleted, inserted, doubled, or the end cut off */
void bodies_damage(util_rng_t *r, util_buf_t *body);


#endif /* _BODIES_H_INCLUDED_ */
