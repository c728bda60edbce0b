/*
 * KV events as engines write them.
 */

#ifndef KVE_ENGINE_ENCODE_H
#define KVE_ENGINE_ENCODE_H


#include "base/engine_util.h"


typedef enum {
    KVE_KV_VLLM_MAP = 0,        /* maps: vLLM, about 0.24 and later */
    KVE_KV_VLLM_ARRAY,          /* arrays with a name in front: before */
    KVE_KV_VLLM_BYTES,          /* the same, and hashes of 32 bytes */
    KVE_KV_SGLANG,              /* maps, signed hashes: SGLang 0.5.23 */
    KVE_KV_SGLANG_ARRAY,        /* arrays, signed hashes: before */
    KVE_KV_TRTLLM               /* maps, signed hashes */
} kve_kv_encoding_e;


typedef struct {
    const uint64_t     *hashes;
    uint32_t            n;
    const uint64_t     *parent;             /* or NULL */
    uint32_t            block_size;
    int                 lora;               /* number, or -1 */
    const char         *lora_name;
    const char         *session;            /* or NULL */
} kve_stored_event_t;


/* a number, or -1 */
int kve_encoding(const char *name);

void kve_encode_stored(kve_buf_t *b, kve_kv_encoding_e encoding,
    const kve_stored_event_t *ev);
void kve_encode_removed(kve_buf_t *b, kve_kv_encoding_e encoding,
    uint64_t hash);
void kve_encode_cleared(kve_buf_t *b, kve_kv_encoding_e encoding);

/* a message of n events, which are written already */
void kve_encode_batch(kve_buf_t *b, double time, const kve_buf_t *events,
    uint32_t n, int rank);


#endif
