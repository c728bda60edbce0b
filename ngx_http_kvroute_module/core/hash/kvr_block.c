
/*
 * Copyright (C) kvroute contributors
 */


#include "core/hash/kvr_block.h"


void
kvr_block_put(kvr_block_t *b, const void *data, size_t len)
{
    size_t          n;
    const uint8_t  *p;

    p = data;

    while (len) {
        n = kvr_min(len, KVR_BLOCK - b->fill);

        memcpy(b->stage[b->cur] + b->fill, p, n);

        b->fill += n;
        p += n;
        len -= n;

        if (b->fill == KVR_BLOCK) {
            kvr_block_finish(b);
        }
    }
}


void
kvr_block_finish(kvr_block_t *b)
{
    if (b->fill == 0) {
        return;
    }

    kvr_block_add(b, b->digest(b->secret, b->stage[b->cur], b->fill), b->fill);
    kvr_block_restage(b);
}


void
kvr_block_rewind(kvr_block_t *b, kvr_block_mark_t *mark)
{
    b->n = mark->n;
    b->bytes = mark->bytes;
    b->fill = mark->fill;
    b->cur = mark->cur;
}
