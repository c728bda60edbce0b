
/*
 * Copyright (C) kvroute contributors
 */


/*
 * What depends on the API alone: events that are only watched, and the end of
 * an answer that cannot be continued.
 */


#include "core/continue/kvr_answer.h"


#define KVR_ANSWER_BROKE  "The answer broke off and could not be continued."


kvr_answer_api_e
kvr_answer_api(const uint8_t *path, size_t len)
{
    size_t  i, n;

    static const char *const  names[] = {
        "/chat/completions", "/completions", "/messages", "/responses"
    };

    _Static_assert(kvr_nelts(names) == KVR_ANSWER_APIS, "names");

    for (i = 0; i < KVR_ANSWER_APIS; i++) {
        n = strlen(names[i]);

        if (len >= n && memcmp(path + len - n, names[i], n) == 0) {
            break;
        }
    }

    return (kvr_answer_api_e) i;
}


void
kvr_answer_watch(kvr_answer_t *a, const uint8_t *p, size_t len,
    kvr_splice_put_pt put, void *data)
{
    size_t          i, n;
    const uint8_t  *name;

    static const char *const  last[] = {
        "message_stop", "response.completed", "response.failed",
        "response.incomplete", "error"
    };

    if (a->failed || (a->done && a->part)) {
        return;
    }

    name = NULL;
    n = 0;

    if (len > 7 && memcmp(p, "event:", 6) == 0) {
        name = p + 6 + (p[6] == ' ');
        n = strcspn((const char *) name, "\r\n");
    }

    for (i = 0; i < kvr_nelts(last) && name; i++) {

        if (n != strlen(last[i]) || memcmp(name, last[i], n) != 0) {
            continue;
        }

        /* an error before all else is overcome by another engine */

        if (i == kvr_nelts(last) - 1 && !a->begun && len <= KVR_ANSWER_HELD) {
            a->failed = 1;
            a->held = len;
            memcpy(a->hold, p, len);

            return;
        }

        a->done = 1;
    }

    if (name && (n != 4 || memcmp(name, "ping", 4) != 0)) {
        a->begun = 1;
        a->cut = KVR_ANSWER_API;
        a->tokens++;
    }

    put(data, p, len);
}


void
kvr_answer_end(kvr_answer_t *a, int limit, kvr_splice_put_pt put, void *data)
{
    size_t   len;
    uint8_t  digits[20];

#define kvr_answer_str(s)  put(data, (const uint8_t *) s, sizeof(s) - 1)

    if (a->finished) {
        kvr_answer_str("data: [DONE]\n\n");
        return;
    }

    if (limit) {
        kvr_answer_str("data: {\"id\":\"");
        put(data, a->id.data, a->id.len);

        if (a->api == KVR_ANSWER_CHAT) {
            kvr_answer_str("\",\"object\":\"chat.completion.chunk\"");

        } else {
            kvr_answer_str("\",\"object\":\"text_completion\"");
        }

        len = kvr_decimal(digits, a->created);

        kvr_answer_str(",\"created\":");
        put(data, digits, len);
        kvr_answer_str(",\"model\":\"");
        put(data, a->model.data, a->model.len);
        kvr_answer_str("\",\"choices\":[{\"index\":0,");

        if (a->api == KVR_ANSWER_CHAT) {
            kvr_answer_str("\"delta\":{}");

        } else {
            kvr_answer_str("\"text\":\"\"");
        }

        kvr_answer_str(",\"finish_reason\":\"length\"}]}\n\n"
                       "data: [DONE]\n\n");
        return;
    }

    if (a->failed && a->held) {
        put(data, a->hold, a->held);

    } else if (a->api == KVR_ANSWER_MESSAGES) {
        kvr_answer_str("event: error\ndata: {\"type\":\"error\",\"error\":{"
                       "\"type\":\"api_error\",\"message\":\"" KVR_ANSWER_BROKE
                       "\"}}\n\n");

    } else if (a->api == KVR_ANSWER_RESPONSES) {
        kvr_answer_str("event: error\ndata: {\"type\":\"error\","
                       "\"sequence_number\":");
        put(data, digits, kvr_decimal(digits, a->tokens));
        kvr_answer_str(",\"code\":\"server_error\",\"message\":\""
                       KVR_ANSWER_BROKE "\",\"param\":null}\n\n");

    } else {
        kvr_answer_str("data: {\"error\":{\"message\":\"" KVR_ANSWER_BROKE
                       "\",\"type\":\"server_error\",\"param\":null,"
                       "\"code\":502}}\n\n");
    }

    if (a->api < KVR_ANSWER_MESSAGES) {
        kvr_answer_str("data: [DONE]\n\n");
    }

#undef kvr_answer_str
}
