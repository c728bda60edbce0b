/*
 * KV events in the formats of engines.
 */

#ifndef KVE_ENGINE_ENCODE_H
#define KVE_ENGINE_ENCODE_H


#include "base/engine_util.h"


typedef enum {
    KVE_KV_VLLM_MAP = 0,        /* maps: vLLM, about 0.24 and later */
    KVE_KV_VLLM_ARRAY,          /* arrays, name first: earlier vLLM */
    KVE_KV_VLLM_BYTES,          /* the same, with hashes of 32 bytes */
    KVE_KV_SGLANG,              /* maps, signed hashes: SGLang 0.5.23 */
    KVE_KV_SGLANG_ARRAY,        /* arrays, signed hashes: earlier SGLang */
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


/* returns a kve_kv_encoding_e, or -1 */
int kve_encoding(const char *name);

void kve_encode_stored(kve_buf_t *b, kve_kv_encoding_e encoding,
    const kve_stored_event_t *ev);
void kve_encode_removed(kve_buf_t *b, kve_kv_encoding_e encoding,
    uint64_t hash);
void kve_encode_cleared(kve_buf_t *b, kve_kv_encoding_e encoding);

/* writes a message of n encoded events */
void kve_encode_batch(kve_buf_t *b, double time, const kve_buf_t *events,
    uint32_t n, int rank);


#endif
