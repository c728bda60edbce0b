
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The input is what an engine answers to a scrape, the value of its ORCA header,
 * and what it answers when asked where its events are: in one piece and in
 * pieces the same must be found.
 */


#include "util.h"
#include "core/engine/kvr_engine.h"
#include "core/events/kvr_publishers.h"


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


static void
fuzz_publishers(const uint8_t *data, size_t size)
{
    int               rc;
    size_t            n, off;
    uint32_t          i;
    util_rng_t        r;
    kvr_publishers_t  whole, pieces;

    r.state = util_digest(data, size) + 1;

    kvr_publishers_init(&whole);
    kvr_publishers_read(&whole, data, size);

    kvr_publishers_init(&pieces);

    for (off = 0; off < size; off += n) {
        n = 1 + util_below(&r, (unsigned) kvr_min(size - off, 60));
        kvr_publishers_read(&pieces, data + off, n);
    }

    rc = kvr_publishers_end(&whole);

    util_check(rc == kvr_publishers_end(&pieces), "publishers, in pieces");
    util_check((rc == KVR_OK) == (whole.number && !whole.bad), "publishers");
    util_check(whole.number <= KVR_PUBLISHERS, "ranks");

    for (i = 0; rc == KVR_OK && i < whole.number; i++) {
        util_check(whole.publisher[i].live >= 1024
                   && whole.publisher[i].live == pieces.publisher[i].live
                   && whole.publisher[i].replay != whole.publisher[i].live,
                   "ports");
    }
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t         n, off;
    util_rng_t     r;
    kvr_metrics_t  m;

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

    memset(&m, 0, sizeof(m));
    (void) kvr_orca_read(&m, data, size);

    fuzz_publishers(data, size);

    return 0;
}


#include "main.h"
