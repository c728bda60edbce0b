#include <string.h>

#include "events/engine_encode.h"
#include "events/engine_msgpack.h"


static const char  *kve_encodings[] = {
    "vllm-map", "vllm-array", "vllm-bytes", "sglang", "sglang-array", "trtllm",
    NULL
};


int
kve_encoding(const char *name)
{
    int  i;

    for (i = 0; kve_encodings[i]; i++) {
        if (strcmp(kve_encodings[i], name) == 0) {
            return i;
        }
    }

    return -1;
}


static int
kve_encode_is_map(kve_kv_encoding_e encoding)
{
    return encoding == KVE_KV_VLLM_MAP || encoding == KVE_KV_SGLANG
           || encoding == KVE_KV_TRTLLM;
}


static void
kve_encode_hash(kve_buf_t *b, kve_kv_encoding_e encoding, uint64_t hash)
{
    int            i;
    unsigned char  bytes[32];

    switch (encoding) {

    case KVE_KV_VLLM_BYTES:

        /* a reader of 64 bits uses the last ones */

        memset(bytes, 0x5a, sizeof(bytes));

        for (i = 0; i < 8; i++) {
            bytes[31 - i] = hash >> (8 * i);
        }

        pack_bin(b, bytes, sizeof(bytes));
        return;

    case KVE_KV_SGLANG:
    case KVE_KV_SGLANG_ARRAY:
    case KVE_KV_TRTLLM:
        pack_int(b, (int64_t) hash);
        return;

    default:
        pack_uint(b, hash);
        return;
    }
}


/* a hash has no text, so its tokens are derived from it */

static void
kve_encode_tokens(kve_buf_t *b, const kve_stored_event_t *ev)
{
    uint32_t  i, k;

    pack_array(b, ev->n * ev->block_size);

    for (i = 0; i < ev->n; i++) {
        for (k = 0; k < ev->block_size; k++) {
            pack_uint(b, kve_mix(ev->hashes[i] + k) % 32768);
        }
    }
}


static void
kve_encode_lora_id(kve_buf_t *b, const kve_stored_event_t *ev)
{
    if (ev->lora < 0) {
        pack_nil(b);

    } else {
        pack_uint(b, ev->lora + 1);
    }
}


/* the five fields of all encodings, in this order; a map has their names */

static void
kve_encode_common(kve_buf_t *b, kve_kv_encoding_e encoding,
    const kve_stored_event_t *ev)
{
    int       named;
    uint32_t  i;

    named = kve_encode_is_map(encoding);

    if (named) {
        pack_str(b, "block_hashes");
    }

    pack_array(b, ev->n);

    for (i = 0; i < ev->n; i++) {
        kve_encode_hash(b, encoding, ev->hashes[i]);
    }

    if (named) {
        pack_str(b, "parent_block_hash");
    }

    if (ev->parent) {
        kve_encode_hash(b, encoding, *ev->parent);

    } else {
        pack_nil(b);
    }

    if (named) {
        pack_str(b, "token_ids");
    }

    kve_encode_tokens(b, ev);

    if (named) {
        pack_str(b, "block_size");
    }

    pack_uint(b, ev->block_size);

    if (named) {
        pack_str(b, "lora_id");
    }

    kve_encode_lora_id(b, ev);
}


static void
kve_encode_map(kve_buf_t *b, kve_kv_encoding_e encoding,
    const kve_stored_event_t *ev)
{
    uint32_t  i, n;

    n = encoding == KVE_KV_SGLANG ? 7
        : encoding == KVE_KV_TRTLLM ? 8 : 11 + (ev->session != NULL);

    pack_map(b, n);

    pack_str(b, "type");
    pack_str(b, "BlockStored");

    kve_encode_common(b, encoding, ev);

    pack_str(b, "medium");
    pack_str(b, "GPU");

    if (encoding == KVE_KV_SGLANG) {
        return;
    }

    if (encoding == KVE_KV_TRTLLM) {
        pack_str(b, "locality");
        pack_str(b, "LOCAL");
        return;
    }

    pack_str(b, "lora_name");
    pack_str(b, ev->lora_name);

    pack_str(b, "extra_keys");
    pack_array(b, ev->n);

    for (i = 0; i < ev->n; i++) {
        if (ev->lora_name) {
            pack_array(b, 1);
        }

        pack_str(b, ev->lora_name);
    }

    pack_str(b, "group_idx");
    pack_uint(b, 0);
    pack_str(b, "kv_cache_spec_kind");
    pack_str(b, "full_attention");

    if (ev->session) {
        pack_str(b, "session_id");
        pack_str(b, ev->session);
    }
}


void
kve_encode_stored(kve_buf_t *b, kve_kv_encoding_e encoding,
    const kve_stored_event_t *ev)
{
    if (kve_encode_is_map(encoding)) {
        kve_encode_map(b, encoding, ev);
        return;
    }

    pack_array(b, encoding == KVE_KV_SGLANG_ARRAY ? 7 : 8);
    pack_str(b, "BlockStored");
    kve_encode_common(b, encoding, ev);
    pack_str(b, "GPU");

    if (encoding != KVE_KV_SGLANG_ARRAY) {
        pack_str(b, ev->lora_name);
    }
}


void
kve_encode_removed(kve_buf_t *b, kve_kv_encoding_e encoding, uint64_t hash)
{
    if (kve_encode_is_map(encoding)) {
        pack_map(b, encoding == KVE_KV_VLLM_MAP ? 4 : 3);
        pack_str(b, "type");
        pack_str(b, "BlockRemoved");
        pack_str(b, "block_hashes");
        pack_array(b, 1);
        kve_encode_hash(b, encoding, hash);
        pack_str(b, "medium");
        pack_str(b, "GPU");

        if (encoding == KVE_KV_VLLM_MAP) {
            pack_str(b, "group_idx");
            pack_uint(b, 0);
        }

        return;
    }

    pack_array(b, 3);
    pack_str(b, "BlockRemoved");
    pack_array(b, 1);
    kve_encode_hash(b, encoding, hash);
    pack_str(b, "GPU");
}


void
kve_encode_cleared(kve_buf_t *b, kve_kv_encoding_e encoding)
{
    if (kve_encode_is_map(encoding)) {
        pack_map(b, 1);
        pack_str(b, "type");

    } else {
        pack_array(b, 1);
    }

    pack_str(b, "AllBlocksCleared");
}


void
kve_encode_batch(kve_buf_t *b, double time, const kve_buf_t *events,
    uint32_t n, int rank)
{
    pack_array(b, 3);
    pack_float(b, time);
    pack_array(b, n);
    kve_buf_add(b, events->data, events->len);
    pack_uint(b, rank);
}
