
/*
 * Copyright (C) kvroute contributors
 */


#include "core/events/kvr_subscription.h"


static kvr_subscription_e kvr_subscription_end(kvr_subscription_t *s);
static kvr_subscription_e kvr_subscription_event(kvr_subscription_t *s);


void
kvr_subscription_init(kvr_subscription_t *s, kvr_zmtp_role_e role)
{
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

        case KVR_ZMTP_LAST:
            s->payload = 1;
            s->seq_read = s->zmtp.numbered;
            s->seq = s->zmtp.number;

            if (s->seq_read) {
                return KVR_SUBSCRIPTION_MESSAGE;
            }

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
kvr_subscription_end(kvr_subscription_t *s)
{
    s->payload = 0;

    if (!s->seq_read) {
        return KVR_SUBSCRIPTION_BAD;
    }

    /* the last message of a replay is empty */

    if (s->zmtp.memory == NULL || s->seq == KVR_SUBSCRIPTION_END) {
        return KVR_SUBSCRIPTION_DONE;
    }

    s->reading = 1;

    kvr_kvevent_begin(&s->reader, s->zmtp.memory, s->zmtp.len);

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
