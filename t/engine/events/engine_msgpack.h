/* Writes MessagePack to the engine's buffers: pack_uint() and so on. */

#ifndef KVE_ENGINE_MSGPACK_H
#define KVE_ENGINE_MSGPACK_H


#include "base/engine_util.h"

#define PACK_BUF  kve_buf_t
#define PACK_PUT  kve_buf_add

#include "../../msgpack.h"


#endif
