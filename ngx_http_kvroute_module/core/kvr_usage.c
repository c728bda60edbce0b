
/*
 * Copyright (C) kvroute contributors
 */


#include "kvr_usage.h"


static const char  kvr_usage_ping[] = "event: ping";


void
kvr_usage_init(kvr_usage_t *u, unsigned stream)
{
    u->state = stream ? KVR_USAGE_LINE : KVR_USAGE_EVENT;
    u->match = 0;
}


int
kvr_usage_event(kvr_usage_t *u, const uint8_t *data, size_t len)
{
    uint8_t         c;
    const uint8_t  *end;

    for (end = data + len; data < end; data++) {
        c = *data;

        switch (u->state) {

        case KVR_USAGE_EVENT:
            return 1;

        case KVR_USAGE_LINE:

            if (c == ':') {
                u->state = KVR_USAGE_COMMENT;
                break;
            }

            if (c == '\r' || c == '\n') {
                break;
            }

            if (c != kvr_usage_ping[0]) {
                u->state = KVR_USAGE_EVENT;
                return 1;
            }

            u->state = KVR_USAGE_WORD;
            u->match = 1;
            break;

        case KVR_USAGE_WORD:

            if (u->match == sizeof(kvr_usage_ping) - 1) {

                if (c != '\r' && c != '\n') {
                    u->state = KVR_USAGE_EVENT;
                    return 1;
                }

                u->state = (c == '\n') ? KVR_USAGE_PING_LINE : KVR_USAGE_PING;
                break;
            }

            /* the space after a colon may be left out */

            if (c == 'p' && kvr_usage_ping[u->match] == ' ') {
                u->match++;
            }

            if (c != kvr_usage_ping[u->match]) {
                u->state = KVR_USAGE_EVENT;
                return 1;
            }

            u->match++;
            break;

        case KVR_USAGE_COMMENT:

            if (c == '\n') {
                u->state = KVR_USAGE_LINE;
            }

            break;

        case KVR_USAGE_PING:

            if (c == '\n') {
                u->state = KVR_USAGE_PING_LINE;
            }

            break;

        case KVR_USAGE_PING_LINE:

            if (c == '\n') {
                u->state = KVR_USAGE_LINE;

            } else if (c != '\r') {
                u->state = KVR_USAGE_PING;
            }

            break;
        }
    }

    return 0;
}
