/*
 * MessagePack, written: as much of it as KV events need, each value in its
 * shortest form.
 */

#ifndef KVE_ENGINE_MSGPACK_H
#define KVE_ENGINE_MSGPACK_H


#include "base/engine_util.h"


void kve_pack_nil(kve_buf_t *b);
void kve_pack_uint(kve_buf_t *b, uint64_t n);
void kve_pack_int(kve_buf_t *b, int64_t n);
void kve_pack_double(kve_buf_t *b, double x);
void kve_pack_str(kve_buf_t *b, const char *s);     /* NULL: nil */
void kve_pack_bin(kve_buf_t *b, const void *data, size_t len);

/* so many values follow, of a map twice as many */
void kve_pack_array(kve_buf_t *b, uint32_t n);
void kve_pack_map(kve_buf_t *b, uint32_t n);


#endif
