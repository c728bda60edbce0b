#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "body/engine_render.h"


/*
 * A ChatML template like Qwen 3's: one system block (the system text, then the
 * tools); no reasoning of turns before the last question; tool results in user
 * blocks.
 */


static void
kve_render_media(kve_buf_t *b, const char *data, size_t len,
    const kve_render_t *how)
{
    int       i;
    uint64_t  h;

    /* the same picture gives the same tokens, at any size in bytes */

    h = XXH3_64bits(data, len);

    kve_buf_str(b, "<|vision_start|>");

    for (i = 0; i < how->image_bytes; i += 16) {
        kve_buf_printf(b, "%016llx", (unsigned long long) h);
    }

    kve_buf_str(b, "<|vision_end|>");
}


static void
kve_render_part(kve_buf_t *b, const cJSON *part, const kve_render_t *how)
{
    char        *json;
    cJSON       *image;
    const char  *type, *s;

    if (cJSON_IsString(part)) {
        kve_buf_str(b, part->valuestring);
        return;
    }

    s = kve_json_str(part, "text");
    if (s) {
        kve_buf_str(b, s);
        return;
    }

    type = kve_json_str(part, "type");

    if (type == NULL
        || strcmp(type, "thinking") == 0
        || strcmp(type, "redacted_thinking") == 0
        || strcmp(type, "reasoning") == 0)
    {
        return;
    }

    s = kve_json_str(part, "refusal");
    if (s) {
        kve_buf_str(b, s);
        return;
    }

    image = kve_json_get(part, "image_url");
    s = cJSON_IsString(image) ? image->valuestring
                              : kve_json_str(image, "url");
    if (s) {
        kve_render_media(b, s, strlen(s), how);
        return;
    }

    json = cJSON_PrintUnformatted(part);
    if (json) {
        kve_render_media(b, json, strlen(json), how);
        cJSON_free(json);
    }
}


static void
kve_render_content(kve_buf_t *b, const cJSON *content, const kve_render_t *how)
{
    const cJSON  *part;

    if (cJSON_IsString(content)) {
        kve_buf_str(b, content->valuestring);
        return;
    }

    if (cJSON_IsArray(content)) {
        cJSON_ArrayForEach(part, content) {
            kve_render_part(b, part, how);
        }
    }
}


static void
kve_render_calls(kve_buf_t *b, const cJSON *calls, int after)
{
    char         *json;
    cJSON        *args;
    const char   *name;
    const cJSON  *call, *function;

    cJSON_ArrayForEach(call, calls) {
        function = kve_json_get(call, "function");
        name = kve_json_str(function, "name");
        args = kve_json_get(function, "arguments");

        if (after) {
            kve_buf_str(b, "\n");
        }

        kve_buf_str(b, "<tool_call>\n{\"name\": \"");
        kve_buf_str(b, name ? name : "");
        kve_buf_str(b, "\", \"arguments\": ");

        if (cJSON_IsString(args)) {
            kve_buf_str(b, args->valuestring);

        } else if (args) {
            json = cJSON_PrintUnformatted(args);
            kve_buf_str(b, json ? json : "");
            cJSON_free(json);
        }

        kve_buf_str(b, "}\n</tool_call>");
        after = 1;
    }
}


static void
kve_render_assistant(kve_buf_t *b, const cJSON *m, int old,
    const kve_render_t *how)
{
    char         *s, *think;
    size_t        from;
    kve_buf_t     content = { 0 };
    const char   *reasoning;

    kve_buf_str(&content, "");
    kve_render_content(&content, kve_json_get(m, "content"), how);

    s = content.data;

    for (think = strstr(s, "</think>"); think && old;
         think = strstr(s, "</think>"))
    {
        s = think + sizeof("</think>") - 1;
        s += strspn(s, "\n");
    }

    reasoning = kve_json_str(m, "reasoning_content");
    if (reasoning == NULL) {
        reasoning = kve_json_str(m, "reasoning");
    }

    if (reasoning && *reasoning && !old) {
        kve_buf_str(b, "<think>\n");
        kve_buf_str(b, reasoning);
        kve_buf_str(b, "\n</think>\n\n");
    }

    from = b->len;
    kve_buf_str(b, s);
    kve_render_calls(b, kve_json_get(m, "tool_calls"), b->len != from);

    kve_buf_free(&content);
}


static void
kve_render_system(kve_buf_t *b, const cJSON *system, const cJSON *tools,
    const kve_render_t *how)
{
    char         *json;
    const cJSON  *tool;

    if (system == NULL && cJSON_GetArraySize(tools) == 0) {
        return;
    }

    kve_buf_str(b, "<|im_start|>system\n");

    if (system) {
        kve_render_content(b, kve_json_get(system, "content"), how);
    }

    if (cJSON_GetArraySize(tools)) {
        kve_buf_str(b, "\n\n# Tools\n\nFunctions that may be called:\n"
                       "<tools>");

        cJSON_ArrayForEach(tool, tools) {
            json = cJSON_PrintUnformatted(tool);
            kve_buf_str(b, "\n");
            kve_buf_str(b, json ? json : "");
            cJSON_free(json);
        }

        kve_buf_str(b, "\n</tools>\n\nEach call is a JSON object in "
                       "<tool_call></tool_call>: its name and arguments.");
    }

    kve_buf_str(b, "<|im_end|>\n");
}


static int
kve_render_role(const cJSON *m, const char *role)
{
    const char  *s;

    s = kve_json_str(m, "role");

    return s && strcmp(s, role) == 0;
}


void
kve_render_messages(kve_buf_t *b, const cJSON *messages, const cJSON *tools,
    const kve_render_t *how)
{
    int           i, last, tool_block, is_tool;
    const char   *role;
    const cJSON  *m, *system;

    last = -1;
    i = 0;

    cJSON_ArrayForEach(m, messages) {
        if (kve_render_role(m, "user")) {
            last = i;
        }

        i++;
    }

    m = messages ? messages->child : NULL;
    system = NULL;
    i = 0;

    if (kve_render_role(m, "system") || kve_render_role(m, "developer")) {
        system = m;
        m = m->next;
        i++;
    }

    kve_render_system(b, system, tools, how);

    tool_block = 0;

    for ( /* void */ ; m; m = m->next, i++) {

        role = kve_json_str(m, "role");
        is_tool = role && (strcmp(role, "tool") == 0
                           || strcmp(role, "function") == 0);

        if (tool_block && !is_tool) {
            kve_buf_str(b, "<|im_end|>\n");
            tool_block = 0;
        }

        if (is_tool) {
            if (!tool_block) {
                kve_buf_str(b, "<|im_start|>user");
                tool_block = 1;
            }

            kve_buf_str(b, "\n<tool_response>\n");
            kve_render_content(b, kve_json_get(m, "content"), how);
            kve_buf_str(b, "\n</tool_response>");
            continue;
        }

        kve_buf_str(b, "<|im_start|>");
        kve_buf_str(b, role ? role : "user");
        kve_buf_str(b, "\n");

        if (role && strcmp(role, "assistant") == 0) {
            kve_render_assistant(b, m, i < last, how);

        } else {
            kve_render_content(b, kve_json_get(m, "content"), how);
        }

        if (m->next == NULL && how->continue_final) {
            return;
        }

        kve_buf_str(b, "<|im_end|>\n");
    }

    if (tool_block) {
        kve_buf_str(b, "<|im_end|>\n");
    }

    if (how->no_generation_prompt) {
        return;
    }

    kve_buf_str(b, "<|im_start|>assistant\n");

    if (how->thinking == 0) {
        kve_buf_str(b, "<think>\n\n</think>\n\n");
    }
}


void
kve_render_ids(kve_buf_t *b, const cJSON *ids, int bytes_per_token)
{
    int           n;
    uint64_t      x;
    const cJSON  *id;

    cJSON_ArrayForEach(id, ids) {
        x = cJSON_IsNumber(id) ? (uint64_t) kve_json_whole(id->valuedouble)
                               : 0;

        for (n = bytes_per_token; n > 0; n -= 8) {
            x = kve_mix(x + 1);
            kve_buf_add(b, &x, n < 8 ? n : 8);
        }
    }
}
