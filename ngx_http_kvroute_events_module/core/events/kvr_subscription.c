
/*
 * Copyright (C) kvroute contributors
 */


#include "core/events/kvr_subscription.h"


static kvr_subscription_e kvr_subscription_frame(kvr_subscription_t *s);
static void kvr_subscription_piece(kvr_subscription_t *s);
static kvr_subscription_e kvr_subscription_end(kvr_subscription_t *s);
static kvr_subscription_e kvr_subscription_event(kvr_subscription_t *s);


void
kvr_subscription_init(kvr_subscription_t *s, kvr_zmtp_role_e role)
{
    s->memory = NULL;
    s->next_seq = 0;
    s->seq_len = 0;
    s->payload = 0;
    s->reading = 0;

    kvr_zmtp_init(&s->zmtp, role);
}


kvr_subscription_e
kvr_subscription_read(kvr_subscription_t *s, const uint8_t **p,
    const uint8_t *end)
{
    kvr_subscription_e  rc;

    do {
        if (s->reading) {
            return kvr_subscription_event(s);
        }

        rc = KVR_SUBSCRIPTION_AGAIN;

        switch (kvr_zmtp_read(&s->zmtp, p, end)) {

        case KVR_ZMTP_AGAIN:
            return KVR_SUBSCRIPTION_AGAIN;

        case KVR_ZMTP_OPEN:
            return KVR_SUBSCRIPTION_OPEN;

        case KVR_ZMTP_ALIVE:
            return KVR_SUBSCRIPTION_ALIVE;

        case KVR_ZMTP_FRAME:
            rc = kvr_subscription_frame(s);
            break;

        case KVR_ZMTP_PIECE:
            kvr_subscription_piece(s);
            break;

        case KVR_ZMTP_END:
            rc = kvr_subscription_end(s);
            break;

        default: /* KVR_ZMTP_FAILED */
            return KVR_SUBSCRIPTION_FAILED;
        }

    } while (rc == KVR_SUBSCRIPTION_AGAIN);

    return rc;
}


static kvr_subscription_e
kvr_subscription_frame(kvr_subscription_t *s)
{
    s->payload = !s->zmtp.more;

    if (s->payload) {
        s->seq_read = (s->seq_len == sizeof(uint64_t));
        s->seq = s->next_seq;
        s->memory = NULL;
        s->len = 0;
    }

    s->next_seq = 0;
    s->seq_len = 0;

    return s->payload && s->seq_read ? KVR_SUBSCRIPTION_MESSAGE
                                     : KVR_SUBSCRIPTION_AGAIN;
}


static void
kvr_subscription_piece(kvr_subscription_t *s)
{
    size_t  i;

    if (s->payload) {

        if (s->memory) {
            memcpy(s->memory + s->len, s->zmtp.piece, s->zmtp.len);
            s->len += s->zmtp.len;
        }

        return;
    }

    for (i = 0; i < s->zmtp.len && s->seq_len <= sizeof(uint64_t); i++) {
        s->next_seq = s->next_seq << 8 | s->zmtp.piece[i];
        s->seq_len++;
    }
}


static kvr_subscription_e
kvr_subscription_end(kvr_subscription_t *s)
{
    if (!s->payload) {
        return KVR_SUBSCRIPTION_AGAIN;
    }

    if (!s->seq_read) {
        return KVR_SUBSCRIPTION_BAD;
    }

    /* the last message of a replay is empty */

    if (s->memory == NULL || s->seq == KVR_SUBSCRIPTION_END) {
        return KVR_SUBSCRIPTION_DONE;
    }

    s->reading = 1;

    kvr_kvevent_begin(&s->reader, s->memory, s->len);

    return KVR_SUBSCRIPTION_AGAIN;
}


static kvr_subscription_e
kvr_subscription_event(kvr_subscription_t *s)
{
    switch (kvr_kvevent_read(&s->reader)) {

    case KVR_KVEVENT_FOUND:
        return KVR_SUBSCRIPTION_EVENT;

    case KVR_KVEVENT_DONE:
        s->reading = 0;
        return KVR_SUBSCRIPTION_DONE;

    default: /* KVR_KVEVENT_INVALID */
        s->reading = 0;
        return KVR_SUBSCRIPTION_BAD;
    }
}
