
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _BODIES_H_INCLUDED_
#define _BODIES_H_INCLUDED_


/*
 * Random request bodies of all APIs, spelled in random ways: order of keys,
 * duplicates, white space, escapes.  The wilder ones hold what is no JSON, or
 * not for everybody.
 */


#include "util.h"


/* a body, and a path that it may come by */
void bodies_make(util_rng_t *r, util_buf_t *out, const char **path);

/* damages it: bytes flipped, deleted, inserted, doubled, or the end cut off */
void bodies_damage(util_rng_t *r, util_buf_t *body);


#endif /* _BODIES_H_INCLUDED_ */
