
/*
 * Copyright (C) kvroute contributors
 */


#include "core/engine/kvr_framing.h"
#include "core/text/kvr_json.h"


int
kvr_framing_read(kvr_framing_t *c, const uint8_t **p, const uint8_t *end,
    const uint8_t **data, size_t *len)
{
    uint8_t  ch, digit;

    while (c->state != KVR_FRAMING_DONE) {

        if (*p == end) {
            return KVR_AGAIN;
        }

        if (c->state == KVR_FRAMING_DATA) {
            *data = *p;
            *len = (size_t) kvr_min(c->left, (uint64_t) (end - *p));

            *p += *len;
            c->left -= *len;

            if (c->left == 0) {
                c->state = KVR_FRAMING_AFTER;
            }

            return KVR_OK;
        }

        ch = *(*p)++;

        switch (c->state) {

        case KVR_FRAMING_SIZE:
            digit = kvr_json_hex[ch];

            if (digit) {
                if (c->seen++ == KVR_FRAMING_DIGITS || c->left >> 56) {
                    return KVR_ERROR;
                }

                c->left = c->left * 16 + (digit & 15);
                break;
            }

            if (c->seen == 0
                || (ch != ';' && ch != ' ' && ch != '\t' && ch != '\r'
                    && ch != '\n'))
            {
                return KVR_ERROR;
            }

            c->state = KVR_FRAMING_REST;
            c->seen = 0;

            /* fall through */

        case KVR_FRAMING_REST:
            if (ch == '\n') {
                c->state = c->left ? KVR_FRAMING_DATA : KVR_FRAMING_DONE;
                c->seen = 0;

            } else if (++c->seen > KVR_FRAMING_LINE) {
                return KVR_ERROR;
            }

            break;

        default: /* KVR_FRAMING_AFTER */
            if (ch == '\n') {
                c->state = KVR_FRAMING_SIZE;

            } else if (ch != '\r') {
                return KVR_ERROR;
            }
        }
    }

    return KVR_DECLINED;
}
