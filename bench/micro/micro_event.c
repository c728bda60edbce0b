
/*
 * Copyright (C) kvroute contributors
 */


/*
 * How kvroute_continue handles an event: one that differs from the previous
 * one by its text only; one with a further part, which is parsed; and one of
 * an API whose events are only observed.
 */


#include "core/continue/kvr_answer.h"
#include "micro_cases.h"
#include "micro_run.h"


typedef struct {
    const char        *event;
    kvr_answer_t       answer;
    uint8_t            text[4096];
} micro_event_t;


static uint64_t  micro_event_put;


static void
micro_event_take(void *data, const uint8_t *p, size_t len)
{
    (void) data;
    (void) p;

    micro_event_put += len;
}


static uint64_t
micro_event_run(micro_case_t *c, unsigned n)
{
    size_t          from, len;
    kvr_answer_t   *a;
    micro_event_t  *e;
    const uint8_t  *p;

    e = c->data;
    a = &e->answer;
    p = (const uint8_t *) e->event;

    while (n--) {
        from = 0;
        len = kvr_answer_scan(p, strlen(e->event), &from);

        /* a text that has reached its limit is another case */

        if (a->len > sizeof(e->text) - 64) {
            a->len = 0;
            a->given = 0;
        }

        kvr_answer_event(a, p, len, micro_event_take, NULL);
    }

    return micro_event_put;
}


void
micro_event(void)
{
    unsigned        i;
    micro_event_t  *e;

    static const char  chat[] =
        "data: {\"id\":\"chatcmpl-996fac5e03c1f663cb6b0bdac0ed2d23\","
        "\"object\":\"chat.completion.chunk\",\"created\":1795475580,"
        "\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":"
        "\" word\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n";

    static const struct {
        const char        *name;
        const char        *event;
        kvr_answer_api_e   api;
        uint32_t           part;
    } kinds[] = {
        { "event of a first part", chat, KVR_ANSWER_CHAT, 0 },
        { "event of a further part", chat, KVR_ANSWER_CHAT, 1 },
        { "event of messages", "event: content_block_delta\ndata: {\"type\":"
          "\"content_block_delta\",\"index\":0,\"delta\":{\"type\":"
          "\"text_delta\",\"text\":\" word\"}}\n\n", KVR_ANSWER_MESSAGES, 0 }
    };

    for (i = 0; i < kvr_nelts(kinds); i++) {
        e = micro_alloc(sizeof(micro_event_t));

        memset(e, 0, sizeof(micro_event_t));

        e->event = kinds[i].event;
        e->answer.api = (uint8_t) kinds[i].api;
        e->answer.part = kinds[i].part;
        e->answer.text = e->text;
        e->answer.size = sizeof(e->text);

        micro_add(micro_event_run, e, "event", 1, "%s", kinds[i].name);
    }
}
