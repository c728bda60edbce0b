#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "body/engine_parsed.h"


void
kve_parsed_fail(kve_parsed_t *p, int status, const char *type,
    const char *fmt, ...)
{
    va_list  args;

    if (p->status) {
        return;
    }

    p->status = status;
    p->error_type = type;

    va_start(args, fmt);
    vsnprintf(p->error, sizeof(p->error), fmt, args);
    va_end(args);
}


void
kve_parsed_free(kve_parsed_t *p)
{
    int  i;

    for (i = 0; i < p->nprompts; i++) {
        kve_buf_free(&p->prompts[i]);
    }

    free(p->prompts);

    if (p->api != KVE_CHAT) {
        /* a chat has them in the body */
        cJSON_Delete(p->messages);
        cJSON_Delete(p->tools);
    }

    cJSON_Delete(p->body);
    memset(p, 0, sizeof(kve_parsed_t));
}
