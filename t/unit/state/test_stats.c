
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_stats: histograms, and the ring of receipts with many writers */


#include "util.h"
#include "core/state/kvr_receipt.h"
#include "core/state/kvr_counter.h"

#include <pthread.h>


static kvr_stats_t     stats;
static kvr_receipts_t  ring;


TEST(test_stats_bounds)
{
    double           last;
    uint32_t         i, n, kind;
    const uint64_t  *bound;

    for (kind = 0; kind < KVR_STATS_HISTOGRAMS; kind++) {
        bound = kvr_stats_bounds(kind, &n);

        util_check(n > 0 && n <= KVR_STATS_BUCKETS, "kind %u: %u", kind, n);
        util_check(kvr_stats_scale(kind) >= 1, "kind %u", kind);

        for (i = 1, last = (double) bound[0]; i < n; i++) {
            util_check((double) bound[i] > last, "kind %u: %u", kind, i);
            last = (double) bound[i];
        }
    }
}


TEST(test_stats_observe)
{
    uint32_t          i, k, n;
    uint64_t          sum;
    const uint64_t   *bound;
    kvr_histogram_t  *h, both;

    kvr_counter_reset(KVR_COUNTER_STATS, &stats);

    bound = kvr_stats_bounds(KVR_STATS_TTFT, &n);
    h = &stats.histogram[KVR_STATS_TTFT];
    sum = 0;

    for (i = 0; i < n; i++) {

        /* a bound belongs to its bucket, a larger value to the next one */

        kvr_stats_observe(&stats, KVR_STATS_TTFT, bound[i]);
        kvr_stats_observe(&stats, KVR_STATS_TTFT, bound[i] + 1);
        sum += 2 * bound[i] + 1;

        util_check(h->bucket[i] == (i ? 2 : 1), "bound %u", i);
        util_check(h->bucket[i + 1] == 1, "above %u", i);
    }

    util_check(h->sum == sum, "sum");

    kvr_stats_observe(&stats, KVR_STATS_TTFT, UINT64_MAX / 2);
    util_check(h->bucket[n] == 2, "beyond all");

    /* other histograms are unchanged */

    for (k = 1; k < KVR_STATS_HISTOGRAMS; k++) {
        for (i = 0; i <= KVR_STATS_BUCKETS; i++) {
            util_check(stats.histogram[k].bucket[i] == 0, "kind %u", k);
        }
    }

    /* the sum of several kinds */

    kvr_stats_observe(&stats, KVR_STATS_TTFT_WHOLE, bound[0]);
    kvr_stats_observe(&stats, KVR_STATS_DECISION, 1);
    kvr_stats_sum(&stats, KVR_STATS_TTFT, KVR_STATS_TTFT_WHOLE, &both);
    util_check(both.bucket[0] == 2 && both.bucket[1] == 2
               && both.bucket[n] == 2, "buckets of two kinds");
    util_check(both.sum == h->sum + bound[0], "sums of two kinds");
    kvr_stats_sum(&stats, KVR_STATS_TTFT, KVR_STATS_TTFT, &both);
    util_check(both.bucket[0] == 1 && both.sum == h->sum, "one kind alone");

    kvr_counter_reset(KVR_COUNTER_STATS, &stats);
    util_check(h->sum == 0 && h->bucket[n] == 0, "reset");
}


/* all fields of a receipt follow from its number */
static void
receipt_make(kvr_receipt_t *rc, uint64_t n)
{
    rc->time = n;
    rc->hash = n * 3;
    rc->prompt = n * 5;
    rc->matched = n * 7;
    rc->best = n * 11;
    rc->upstream = (uint8_t) n;
    rc->peer = (uint8_t) (n * 3);
    rc->policy = (uint8_t) (n * 5);
    rc->reason = (uint8_t) (n * 7);
}


static int
receipt_whole(kvr_receipt_t *rc)
{
    uint64_t  n;

    n = rc->time;

    return rc->hash == n * 3 && rc->prompt == n * 5 && rc->matched == n * 7
           && rc->best == n * 11 && rc->upstream == (uint8_t) n
           && rc->peer == (uint8_t) (n * 3) && rc->policy == (uint8_t) (n * 5)
           && rc->reason == (uint8_t) (n * 7);
}


TEST(test_stats_receipts)
{
    uint64_t       n;
    kvr_receipt_t  in, out;

    memset(&ring, 0, sizeof(ring));

    util_check(kvr_receipt_get(&ring, 0, &out) == KVR_DECLINED, "receipt 0");
    util_check(kvr_receipt_get(&ring, 1, &out) == KVR_DECLINED, "not yet made");

    for (n = 1; n <= 3 * KVR_RECEIPTS; n++) {
        receipt_make(&in, n);

        util_check(kvr_receipt_put(&ring, &in) == n, "number");
        util_check(kvr_receipt_get(&ring, n, &out) == KVR_OK, "get");
        util_check(receipt_whole(&out) && out.time == n, "%lu", n);
        util_check(out.ttft == 0, "no TTFT yet");

        kvr_receipt_ttft(&ring, n, 0, 0);
        util_check(kvr_receipt_get(&ring, n, &out) == KVR_OK
                   && out.ttft == 1, "0 ms is a time");
    }

    n = 2 * KVR_RECEIPTS;

    util_check(kvr_receipt_get(&ring, n, &out) == KVR_DECLINED, "overwritten");
    kvr_receipt_ttft(&ring, n, 77, 1);
    util_check(kvr_receipt_get(&ring, n + KVR_RECEIPTS, &out) == KVR_OK
               && out.ttft == 1 && out.stream == 0, "a newer one changed");

    n += KVR_RECEIPTS;

    kvr_receipt_ttft(&ring, n, 77, 1);
    util_check(kvr_receipt_get(&ring, n, &out) == KVR_OK
               && out.ttft == 78 && out.stream == 1, "TTFT of a stream");

    kvr_receipt_ttft(&ring, 0, 77, 1);

    /* usage: -1 is not reported, and 0 is */

    in.waited = 5;
    n = kvr_receipt_put(&ring, &in);
    util_check(kvr_receipt_get(&ring, n, &out) == KVR_OK && out.waited == 5
               && out.tokens[0] == 0 && out.tokens[2] == 0, "no usage");

    kvr_receipt_usage(&ring, n, 70, -1, 0);
    util_check(kvr_receipt_get(&ring, n, &out) == KVR_OK
               && out.waited == 5 && out.tokens[0] == 71 && out.tokens[1] == 0
               && out.tokens[2] == 1, "usage");

    kvr_receipt_usage(&ring, n - 1, 70, 70, 70);
    kvr_receipt_usage(&ring, n - KVR_RECEIPTS, 80, 80, 80);
    util_check(kvr_receipt_get(&ring, n, &out) == KVR_OK
               && out.tokens[0] == 71, "other receipts' usage");
}


static void *
receipts_write(void *data)
{
    uint64_t       i, n;
    kvr_receipt_t  rc;

    (void) data;

    for (i = 0; i < 20000; i++) {
        receipt_make(&rc, i);
        n = kvr_receipt_put(&ring, &rc);
        kvr_receipt_ttft(&ring, n, 1, 0);
    }

    return NULL;
}


TEST(test_stats_readers)
{
    uint32_t       i;
    uint64_t       n, good, last;
    pthread_t      tid;
    kvr_receipt_t  rc;

    memset(&ring, 0, sizeof(ring));

    util_check(pthread_create(&tid, NULL, receipts_write, NULL) == 0, "thread");

    /* a reader next to a writer never sees a mix of two receipts */

    good = 0;

    do {
        last = kvr_get(&ring.last);

        for (i = 0; i < KVR_RECEIPTS && i < last; i++) {
            n = last - i;

            if (kvr_receipt_get(&ring, n, &rc) == KVR_OK) {
                util_check(receipt_whole(&rc) && rc.number == n, "torn");
                good++;
            }
        }
    } while (last < 20000);

    pthread_join(tid, NULL);
    util_check(good > 0, "no receipt was read");
}


TEST(test_stats_trace)
{
    size_t    i;
    uint64_t  trace[2];

    static const char  good[] =
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    static const char *const  bad[] = {
        "",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-011",
        "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-011",
        "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
        "00_4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7_01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"
    };

    util_check(kvr_receipt_trace((const uint8_t *) good, sizeof(good) - 1,
                                 trace) == KVR_OK
               && trace[0] == 0x4bf92f3577b34da6
               && trace[1] == 0xa3ce929d0e0e4736, "%lx %lx", trace[0],
               trace[1]);

    for (i = 0; i < kvr_nelts(bad); i++) {
        util_check(kvr_receipt_trace((const uint8_t *) bad[i], strlen(bad[i]),
                                     trace) == KVR_DECLINED
                   && trace[0] == 0 && trace[1] == 0, "%s", bad[i]);
    }

    util_check(kvr_receipt_trace((const uint8_t *)
                   "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
                   57, trace) == KVR_OK, "a later version");
}
