
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The input is an engine's answer to a scrape.  One piece and several must
 * give the same result.
 */


#include "util.h"
#include "core/engine/kvr_engine.h"


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t         n, off;
    util_rng_t     r;

    static kvr_metrics_reader_t  whole, pieces;

    r.state = util_digest(data, size);

    kvr_metrics_init(&whole);
    kvr_metrics_read(&whole, data, size);
    kvr_metrics_end(&whole);

    kvr_metrics_init(&pieces);

    for (off = 0; off < size; off += n) {
        n = 1 + util_below(&r, (unsigned) kvr_min(size - off, 60));
        kvr_metrics_read(&pieces, data + off, n);
    }

    kvr_metrics_end(&pieces);

    util_check(whole.m.set == pieces.m.set
               && whole.m.running == pieces.m.running
               && whole.m.capacity == pieces.m.capacity
               && whole.m.loras == pieces.m.loras, "pieces");

    util_check(!(whole.m.set & KVR_METRICS_KV)
               || (whole.m.kv >= 0 && whole.m.kv < 1.01), "kv");

    /* 0, negative and absurd sizes, and invalid numbers, are ignored */

    util_check(!(whole.m.set & KVR_METRICS_CAPACITY)
               || (whole.m.capacity >= 1
                   && whole.m.capacity < 1000000000000000ULL), "capacity");

    return 0;
}


#include "main.h"
