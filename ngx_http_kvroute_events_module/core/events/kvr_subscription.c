
/*
 * Copyright (C) kvroute contributors
 */


#include "core/events/kvr_subscription.h"


static kvr_subscription_e kvr_subscription_frame(kvr_subscription_t *s);
static void kvr_subscription_seq(kvr_subscription_t *s);
static kvr_subscription_e kvr_subscription_payload(kvr_subscription_t *s);
static kvr_subscription_e kvr_subscription_end(kvr_subscription_t *s);


void
kvr_subscription_init(kvr_subscription_t *s, kvr_zmtp_role_e role,
    const void *topic, size_t len)
{
    s->piece = NULL;
    s->seq_len = 0;
    s->payload = 0;

    kvr_zmtp_init(&s->zmtp, role, topic, len);
}


kvr_subscription_e
kvr_subscription_read(kvr_subscription_t *s, const uint8_t **p,
    const uint8_t *end)
{
    kvr_subscription_e  rc;

    for ( ;; ) {

        if (s->piece) {
            rc = kvr_subscription_payload(s);

            if (rc != KVR_SUBSCRIPTION_AGAIN) {
                return rc;
            }
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

            if (!s->payload) {
                kvr_subscription_seq(s);

            } else if (!s->skip && !s->bad) {
                s->piece = s->zmtp.piece;
                s->end = s->piece + s->zmtp.len;
            }

            break;

        case KVR_ZMTP_END:
            rc = kvr_subscription_end(s);
            break;

        default: /* KVR_ZMTP_FAILED */
            return KVR_SUBSCRIPTION_FAILED;
        }

        if (rc != KVR_SUBSCRIPTION_AGAIN) {
            return rc;
        }
    }
}


static kvr_subscription_e
kvr_subscription_frame(kvr_subscription_t *s)
{
    s->payload = !s->zmtp.more;

    if (!s->payload) {
        s->next_seq = 0;
        s->seq_len = 0;

        return KVR_SUBSCRIPTION_AGAIN;
    }

    s->skip = 0;
    s->over = 0;
    s->seq_read = (s->seq_len == sizeof(uint64_t));
    s->bad = !s->seq_read;
    s->seq = s->next_seq;

    kvr_kvevent_begin(&s->reader);

    return s->bad ? KVR_SUBSCRIPTION_AGAIN : KVR_SUBSCRIPTION_MESSAGE;
}


static void
kvr_subscription_seq(kvr_subscription_t *s)
{
    size_t  i;

    for (i = 0; i < s->zmtp.len && s->seq_len <= sizeof(uint64_t); i++) {
        s->next_seq = s->next_seq << 8 | s->zmtp.piece[i];
        s->seq_len++;
    }
}


static kvr_subscription_e
kvr_subscription_payload(kvr_subscription_t *s)
{
    if (!s->skip) {

        switch (kvr_kvevent_read(&s->reader, &s->piece, s->end)) {

        case KVR_KVEVENT_FOUND:
            return KVR_SUBSCRIPTION_EVENT;

        case KVR_KVEVENT_DONE:
            s->over = 1;
            break;

        case KVR_KVEVENT_GARBLED:
            s->bad = 1;
            break;

        default:
            break;
        }
    }

    s->piece = NULL;

    return KVR_SUBSCRIPTION_AGAIN;
}


static kvr_subscription_e
kvr_subscription_end(kvr_subscription_t *s)
{
    if (!s->payload) {
        return KVR_SUBSCRIPTION_AGAIN;
    }

    /* a batch that has not come to its end; an empty payload ends a replay */

    if (!s->over && !s->skip && s->seq != KVR_SUBSCRIPTION_END) {
        s->bad = 1;
    }

    s->payload = 0;
    s->seq_len = 0;

    return s->bad ? KVR_SUBSCRIPTION_BAD : KVR_SUBSCRIPTION_DONE;
}
