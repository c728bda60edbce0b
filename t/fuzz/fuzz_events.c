
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The input is a publisher's bytes.  Its first byte says what is skipped to
 * reach deep code: the handshake (bit 0), and the frames too, so that the rest
 * is one payload (bit 1); bit 2 is the replay side; the other bits are the
 * number of pieces.  One piece and several must give the same events, which go
 * to the model of a peer.
 */


#include "pack.h"
#include "core/alias/kvr_alias.h"
#include "core/events/kvr_events.h"
#include "core/events/kvr_zmtp.h"


#define FUZZ_UNITS  0.01
#define FUZZ_CELLS  256
#define FUZZ_KEYS   32


typedef struct {
    uint64_t  digest;                /* of all events, in order */
    uint64_t  events;
    unsigned  failed;
} fuzz_found_t;


int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


static void
fuzz_note(fuzz_found_t *f, uint64_t what, uint64_t n)
{
    f->digest = kvr_mix(f->digest ^ what, n);
}


static void *
fuzz_aliases(void)
{
    static void  *memory;

    if (memory == NULL) {
        memory = aligned_alloc(KVR_CACHE_LINE,
                               (kvr_alias_size(FUZZ_CELLS) + 63) & ~63UL);
        memset(memory, 0, kvr_alias_size(FUZZ_CELLS));
    }

    return memory;
}


/* with aliases; and a request that ends now, with the event's values */
static void
fuzz_alias(fuzz_found_t *f, const kvr_kvevent_t *v, kvr_events_t *e,
    uint32_t depth)
{
    uint32_t             i;
    uint64_t             key[FUZZ_KEYS];
    kvr_alias_view_t     a;
    kvr_alias_place_t    place;
    kvr_alias_request_t  r = { 0 };

    kvr_alias_view(&a, fuzz_aliases(), FUZZ_CELLS, &e->alias);

    for (i = 0; i < v->blocks && i < KVR_KVEVENT_HASHES; i++) {
        if (kvr_alias_mark(&a, v->hash[i], 3, v->type == KVR_KVEVENT_REMOVED,
                           &place))
        {
            util_check(place.entry < KVR_ALIAS_ENTRIES, "entry");
        }
    }

    if (v->type == KVR_KVEVENT_REMOVED) {
        return;
    }

    kvr_alias_stored(&a, v, 3, depth, f->events);

    for (i = 0; i < FUZZ_KEYS; i++) {
        key[i] = (v->last + i) % 100 + 1;
    }

    r.first = f->events;
    r.now = f->events * 100;
    r.session = v->last & 1 ? v->session : v->parent & 1;
    r.cached = (uint32_t) (v->rooted ? 0 : v->parent % 1000);
    r.prompt = r.cached + 1 + (uint32_t) kvr_min(kvr_events_tokens(v),
                                                 1U << 30);
    r.bytes = v->last % 100000;
    r.from = v->last % 40;
    r.n = v->last % FUZZ_KEYS;
    r.key = key;

    (void) kvr_alias_attribute(&a, &r);

    util_check(kvr_get(&e->alias.used) <= FUZZ_CELLS, "cells");
}


static void
fuzz_event(fuzz_found_t *f, const kvr_kvevent_t *v, kvr_events_t *e)
{
    uint32_t  depth;

    fuzz_note(f, v->type, v->blocks);
    fuzz_note(f, v->parent, v->last);
    fuzz_note(f, v->session, 0);
    fuzz_note(f, v->tokens, (uint64_t) v->block << 32 | v->group << 3
                            | v->rooted << 2 | v->elsewhere << 1 | v->part);
    fuzz_note(f, v->below, 0);

    util_check(!v->below || v->elsewhere, "below");

    f->events++;

    if (e == NULL) {
        return;
    }

    if (v->type == KVR_KVEVENT_CLEARED) {
        kvr_events_flush(e);

    } else if (kvr_events_counts(e, v)) {
        depth = kvr_events_take(e, v, 3, f->events * 1000, FUZZ_UNITS);
        fuzz_alias(f, v, e, depth);
    }

    util_check(kvr_get(&e->used) <= KVR_EVENTS_SAMPLES, "samples");
}


/* memory for a payload: a complete frame is no longer than the input */
static void
fuzz_memory(kvr_zmtp_t *z, size_t size)
{
    static uint8_t  *memory;

    free(memory);
    memory = NULL;

    if (z) {
        memory = malloc(kvr_min(z->size, size) + 1);
        z->memory = memory;
    }
}


/* a message has ended */
static void
fuzz_end(kvr_zmtp_t *z, fuzz_found_t *f, kvr_events_t *e)
{
    kvr_kvevent_e                rc;

    static kvr_kvevent_reader_t  reader;

    if (!z->numbered) {
        fuzz_note(f, 4, 1);
        return;
    }

    kvr_kvevent_begin(&reader, z->memory, z->len);

    while ((rc = kvr_kvevent_read(&reader)) == KVR_KVEVENT_FOUND) {
        fuzz_event(f, &reader.event, e);
    }

    fuzz_note(f, rc == KVR_KVEVENT_DONE ? 3 : 4, 1);
}


static int
fuzz_feed(kvr_zmtp_t *z, const uint8_t *p, const uint8_t *end,
    fuzz_found_t *f, kvr_events_t *e, kvr_events_order_t *o, size_t size)
{
    for ( ;; ) {

        switch (kvr_zmtp_read(z, &p, end)) {

        case KVR_ZMTP_AGAIN:
            util_check(p == end, "not all was read");
            util_check(z->out_len <= KVR_ZMTP_OUT, "out");
            return 0;

        case KVR_ZMTP_OPEN:
        case KVR_ZMTP_ALIVE:
            fuzz_note(f, 1, 1);
            break;

        case KVR_ZMTP_LAST:
            fuzz_note(f, 2, z->number);
            fuzz_memory(z, size);

            if (e == NULL) {
                break;
            }

            if (kvr_events_order(&e->source[3], o, z->number)
                == KVR_EVENTS_REPEATED)
            {
                break;
            }

            (void) kvr_events_continue(e, &e->source[3], z->number, 1);
            kvr_events_read(e, &e->source[3], o, z->number, 1);
            break;

        case KVR_ZMTP_END:
            fuzz_end(z, f, e);
            break;

        default:
            util_check(z->error != NULL, "no error");
            f->failed = 1;
            return 1;
        }
    }
}


static void
fuzz_run(const uint8_t *data, size_t size, unsigned skip, util_rng_t *r,
    fuzz_found_t *f, kvr_events_t *e)
{
    size_t              n, off;
    uint8_t            *piece;
    kvr_events_order_t  o = { 0 };

    static const uint8_t  head[] = "\1\2kv\1\10\0\0\0\0\0\0\0\1\2";
    static util_buf_t     shake[2];
    static kvr_zmtp_t     z;

    if (shake[0].p == NULL) {
        pack_handshake(&shake[0], "PUB");
        pack_handshake(&shake[1], "ROUTER");
    }

    memset(f, 0, sizeof(fuzz_found_t));
    fuzz_memory(NULL, 0);

    kvr_zmtp_init(&z, skip & 4 ? KVR_ZMTP_DEALER : KVR_ZMTP_SUB);

    if (skip & 3) {
        n = skip >> 2 & 1;
        (void) fuzz_feed(&z, shake[n].p, shake[n].p + shake[n].len, f, e, &o, size);
    }

    if (skip & 2) {
        uint8_t  length[8];

        (void) fuzz_feed(&z, head, head + sizeof(head) - 1, f, e, &o, size);

        for (n = 0; n < 8; n++) {
            length[n] = (uint8_t) ((uint64_t) size >> 8 * (7 - n));
        }

        (void) fuzz_feed(&z, length, length + 8, f, e, &o, size);
    }

    if (r == NULL) {
        (void) fuzz_feed(&z, data, data + size, f, e, &o, size);
        return;
    }

    for (off = 0; off < size; off += n) {
        n = 1 + util_below(r, (unsigned) (size - off));

        /* of the exact size, to detect reads beyond it */

        piece = malloc(n);
        memcpy(piece, data + off, n);

        if (fuzz_feed(&z, piece, piece + n, f, e, &o, size)) {
            off = size - n;
        }

        free(piece);
    }
}


int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned      skip;
    util_rng_t    r;
    fuzz_found_t  whole, pieces;

    static kvr_events_t  e;

    if (size == 0) {
        return 0;
    }

    skip = *data++;
    size--;

    /* the value of earlier runs, if nothing was reported */

    if (kvr_get(&e.messages) || kvr_get(&e.stored)) {
        kvr_events_reset(&e);
        memset(fuzz_aliases(), 0, kvr_alias_size(FUZZ_CELLS));
    }

    kvr_set(&e.shift, skip >> 3 & 3);

    r.state = kvr_mix(size, skip);

    fuzz_run(data, size, skip, NULL, &whole, &e);
    fuzz_run(data, size, skip, &r, &pieces, NULL);

    util_check(whole.digest == pieces.digest && whole.events == pieces.events
               && whole.failed == pieces.failed, "%lu events, %lu in pieces",
               (unsigned long) whole.events, (unsigned long) pieces.events);

    return 0;
}


#include "main.h"
