
/*
 * Copyright (C) kvroute contributors
 */


/* kvr_tally: traffic by name, in a fixed size, with any names */


#include <stdio.h>

#include "util.h"
#include "core/state/kvr_tally.h"
#include "core/state/kvr_counter.h"


static kvr_tally_t  tally;


static void
take(kvr_tally_kind_e kind, uint32_t upstream, const char *name, int claim,
    uint64_t now)
{
    size_t              i;
    kvr_tally_owner_t   who;
    kvr_tally_counts_t  counts;

    memset((void *) &counts, 0, sizeof(counts));
    counts.requests = 1;
    counts.prompt = 100;

    who.kind = kind;
    who.upstream = upstream;
    who.name = name;
    who.len = strlen(name);
    who.hash = 7;

    for (i = 0; i < who.len; i++) {
        who.hash = kvr_mix(who.hash, (uint8_t) name[i]);
    }

    kvr_tally_take(&tally, &who, &counts, claim, now);
}


/* requests of a name in an upstream; -1: it has no entry */
static int64_t
requests(kvr_tally_kind_e kind, uint32_t upstream, const char *name)
{
    uint32_t          n;
    kvr_tally_view_t  view;

    for (n = 0; n < KVR_TALLY_ENTRIES; n++) {
        if (kvr_tally_get(&tally, kind, n, upstream, &view)
            && view.len == strlen(name)
            && memcmp(view.name, name, view.len) == 0)
        {
            util_check(view.counts.prompt == 100 * view.counts.requests,
                       "all counts of the row");
            return (int64_t) view.counts.requests;
        }
    }

    return -1;
}


TEST(test_tally_names)
{
    char  name[200];

    memset((void *) &tally, 0, sizeof(tally));

    /* a name that no server has answered has no entry */

    take(KVR_TALLY_MODEL, 1, "m", 0, 1000);
    util_check(requests(KVR_TALLY_MODEL, 1, "m") == -1, "no entry yet");
    util_check(tally.other[KVR_TALLY_MODEL][1].requests == 1,
               "counted in the row of others");

    take(KVR_TALLY_MODEL, 1, "m", 1, 1000);
    take(KVR_TALLY_MODEL, 1, "m", 0, 1000);
    util_check(requests(KVR_TALLY_MODEL, 1, "m") == 2, "now it has");
    util_check(tally.other[KVR_TALLY_MODEL][1].requests == 1, "its own row");

    /* separate by upstream and by kind */

    take(KVR_TALLY_MODEL, 2, "m", 1, 1000);
    take(KVR_TALLY_TENANT, 1, "m", 1, 1000);
    util_check(requests(KVR_TALLY_MODEL, 1, "m") == 2, "upstreams, kinds");
    util_check(requests(KVR_TALLY_MODEL, 2, "m") == 1, "another upstream");
    util_check(requests(KVR_TALLY_TENANT, 1, "m") == 1, "a tenant");
    util_check(requests(KVR_TALLY_TENANT, 2, "m") == -1, "one upstream only");

    take(KVR_TALLY_MODEL, 1, "", 1, 1000);
    util_check(tally.other[KVR_TALLY_MODEL][1].requests == 2, "no name");

    take(KVR_TALLY_MODEL, KVR_TALLY_UPSTREAMS, "m", 1, 1000);

    take(KVR_TALLY_MODEL, 1, "a\"\xff\nb", 1, 1000);
    util_check(requests(KVR_TALLY_MODEL, 1, "a\"??b") == 1, "no text");

    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    take(KVR_TALLY_MODEL, 1, name, 1, 1000);
    name[KVR_TALLY_NAME_LEN] = '\0';
    util_check(requests(KVR_TALLY_MODEL, 1, name) == 1, "long");

    kvr_tally_reset(&tally);
    util_check(requests(KVR_TALLY_MODEL, 1, "m") == 0
               && tally.other[KVR_TALLY_MODEL][1].requests == 0, "reset");

    /* its slot gets another upstream */

    take(KVR_TALLY_MODEL, 1, "", 1, 1000);
    kvr_tally_forget(&tally, 1);
    util_check(requests(KVR_TALLY_MODEL, 1, "m") == -1
               && tally.other[KVR_TALLY_MODEL][1].requests == 0, "forgotten");
    util_check(requests(KVR_TALLY_MODEL, 2, "m") == 0, "the other is not");
}


/* the list has each name once, and ends with the rest */

TEST(test_tally_list)
{
    uint32_t          i, n;
    kvr_tally_view_t  view[KVR_TALLY_ENTRIES + 1];

    memset((void *) &tally, 0, sizeof(tally));

    util_check(kvr_tally_list(&tally, KVR_TALLY_TENANT, 1, view) == 0,
               "no rows");

    take(KVR_TALLY_TENANT, 1, "a", 1, 1000);
    take(KVR_TALLY_TENANT, 1, "b", 1, 1000);
    take(KVR_TALLY_TENANT, 1, "b", 1, 1000);
    take(KVR_TALLY_TENANT, 2, "c", 1, 1000);
    take(KVR_TALLY_TENANT, 1, "late", 0, 1000);

    /* a second entry of the name, by another key */

    tally.entry[KVR_TALLY_TENANT][0].name[0] = 'b';

    n = kvr_tally_list(&tally, KVR_TALLY_TENANT, 1, view);

    util_check(n == 2 && view[0].len == 1 && view[0].name[0] == 'b'
               && view[0].counts.requests == 3, "one name, %u views", n);
    util_check(view[1].len == 0 && view[1].counts.requests == 1, "the rest");

    /* the longest list */

    memset((void *) &tally, 0, sizeof(tally));

    for (i = 0; i < 2 * KVR_TALLY_ENTRIES; i++) {
        take(KVR_TALLY_TENANT, 1, (char []) { (char) ('0' + i), '\0' }, 1, 1000);
    }

    n = kvr_tally_list(&tally, KVR_TALLY_TENANT, 1, view);

    util_check(n == KVR_TALLY_ENTRIES + 1
               && view[n - 1].counts.requests == KVR_TALLY_ENTRIES, "all rows");
}


TEST(test_tally_many)
{
    int       i;
    char      name[32];
    uint64_t  sum;

    memset((void *) &tally, 0, sizeof(tally));

    /* a name that came first stays, whatever others send */

    for (i = 0; i < 1000; i++) {
        (void) snprintf(name, sizeof(name), "m%d", i);
        take(KVR_TALLY_TENANT, 3, name, 1, 1000);
        take(KVR_TALLY_TENANT, 3, "always", 1, 1000);
    }

    util_check(requests(KVR_TALLY_TENANT, 3, "always") == 1000, "kept");
    util_check(requests(KVR_TALLY_TENANT, 3, "m0") == 1,
               "the first names keep rows");
    util_check(requests(KVR_TALLY_TENANT, 3, "m999") == -1,
               "all rows are taken");

    /* an idle entry is replaced, and its counts go to the rest */

    take(KVR_TALLY_TENANT, 3, "always", 1, 1000 + KVR_TALLY_IDLE);
    take(KVR_TALLY_TENANT, 3, "young", 1, 1000 + KVR_TALLY_IDLE);

    util_check(requests(KVR_TALLY_TENANT, 3, "young") == 1, "a new name");
    util_check(requests(KVR_TALLY_TENANT, 3, "always") == 1001, "in use");

    sum = tally.other[KVR_TALLY_TENANT][3].requests;

    for (i = 0; i < KVR_TALLY_ENTRIES; i++) {
        sum += tally.entry[KVR_TALLY_TENANT][i].counts.requests;
    }

    util_check(sum == 2002, "they add up: %lu", (unsigned long) sum);
}


TEST(test_tally_killed)
{
    uint32_t          i;
    kvr_tally_view_t  view;

    memset((void *) &tally, 0, sizeof(tally));

    /* all entries were being claimed by processes that were killed */

    for (i = 0; i < KVR_TALLY_ENTRIES; i++) {
        tally.key[KVR_TALLY_MODEL][i] = 1000 << 1 | 1;
        util_check(!kvr_tally_get(&tally, KVR_TALLY_MODEL, i, 0, &view),
                   "not listed");
    }

    take(KVR_TALLY_MODEL, 0, "m", 1, 1000 + KVR_TALLY_CLAIM - 1);
    util_check(requests(KVR_TALLY_MODEL, 0, "m") == -1, "a claim holds");

    take(KVR_TALLY_MODEL, 0, "m", 1, 1000 + KVR_TALLY_CLAIM);
    util_check(requests(KVR_TALLY_MODEL, 0, "m") == 1, "for a while");
}


TEST(test_tally_rows)
{
    size_t              i;
    uint32_t            n;
    kvr_tally_counts_t  counts;
    _Atomic uint64_t   *word;

    /* each field but the last one, a sum, has a row */

    word = (_Atomic uint64_t *) &counts;

    for (i = 0; i < sizeof(counts) / sizeof(uint64_t) - 1; i++) {
        memset((void *) &counts, 0, sizeof(counts));
        word[i] = 5;

        for (n = 0; n < kvr_counter_rows; n++) {
            if (kvr_counter_table[n].group == KVR_COUNTER_TENANT
                && kvr_counter_get(&kvr_counter_table[n], &counts, 0) > 0)
            {
                break;
            }
        }

        util_check(n < kvr_counter_rows, "field %zu", i);
    }
}
