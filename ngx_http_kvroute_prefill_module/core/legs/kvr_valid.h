
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_VALID_H_INCLUDED_
#define _KVR_VALID_H_INCLUDED_


#include "core/base/kvr_core.h"


/*
 * Returns whether a text is JSON by RFC 8259, UTF-8 included: one value, at
 * most 64 brackets deep, and nothing besides.  The router's readers check less.
 */
int kvr_valid(const uint8_t *p, size_t n);


#endif /* _KVR_VALID_H_INCLUDED_ */
