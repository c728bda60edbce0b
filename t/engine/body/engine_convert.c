#include <string.h>

#include "base/engine_store.h"
#include "body/engine_convert.h"


/*
 * Converts bodies of other APIs into the messages and tools of a chat.
 */


static cJSON *
kve_message_add(cJSON *messages, const char *role)
{
    cJSON  *m;

    m = cJSON_CreateObject();
    cJSON_AddStringToObject(m, "role", role);
    cJSON_AddItemToArray(messages, m);

    return m;
}


static cJSON *
kve_message_content(cJSON *m)
{
    cJSON  *content;

    content = cJSON_GetObjectItemCaseSensitive(m, "content");

    if (content == NULL) {
        content = cJSON_AddArrayToObject(m, "content");
    }

    return content;
}


static void
kve_message_text(cJSON *m, const char *text)
{
    cJSON  *part;

    part = cJSON_CreateObject();
    cJSON_AddStringToObject(part, "type", "text");
    cJSON_AddStringToObject(part, "text", text);
    cJSON_AddItemToArray(kve_message_content(m), part);
}


static void
kve_message_call(cJSON *m, const char *id, const char *name, const char *args)
{
    cJSON  *calls, *call, *function;

    calls = cJSON_GetObjectItemCaseSensitive(m, "tool_calls");
    if (calls == NULL) {
        calls = cJSON_AddArrayToObject(m, "tool_calls");
    }

    call = cJSON_CreateObject();
    cJSON_AddStringToObject(call, "id", id ? id : "");
    cJSON_AddStringToObject(call, "type", "function");
    function = cJSON_AddObjectToObject(call, "function");
    cJSON_AddStringToObject(function, "name", name ? name : "");
    cJSON_AddStringToObject(function, "arguments", args ? args : "{}");
    cJSON_AddItemToArray(calls, call);
}


/*
 * Anthropic's messages, as vLLM converts them: all system texts become one
 * message in front, tool results come before the text of their message, and
 * the billing header of Claude Code is removed.
 */

static void
kve_convert_system(cJSON *m, const cJSON *content)
{
    const char   *text;
    const cJSON  *block;

    if (cJSON_IsString(content)) {
        kve_message_text(m, content->valuestring);
        return;
    }

    cJSON_ArrayForEach(block, content) {
        text = kve_json_str(block, "text");

        if (text && strncmp(text, "x-anthropic-billing-header", 26) != 0) {
            kve_message_text(m, text);
        }
    }
}


static void
kve_convert_tool_result(cJSON *messages, const cJSON *block)
{
    cJSON        *m;
    const char   *text;
    const cJSON  *content, *item;

    m = kve_message_add(messages, "tool");
    text = kve_json_str(block, "tool_use_id");
    cJSON_AddStringToObject(m, "tool_call_id", text ? text : "");

    content = kve_json_get(block, "content");

    if (cJSON_IsString(content)) {
        kve_message_text(m, content->valuestring);
        return;
    }

    cJSON_ArrayForEach(item, content) {
        text = kve_json_str(item, "text");

        if (text) {
            kve_message_text(m, text);
        }
    }
}


static void
kve_convert_message(cJSON *messages, const cJSON *msg)
{
    char         *args;
    cJSON        *m;
    const char   *role, *type, *text;
    const cJSON  *content, *block;

    role = kve_json_str(msg, "role");

    if (role && strcmp(role, "system") == 0) {
        return;
    }

    m = cJSON_CreateObject();
    cJSON_AddStringToObject(m, "role", role ? role : "user");
    content = kve_json_get(msg, "content");

    if (cJSON_IsString(content)) {
        kve_message_text(m, content->valuestring);
    }

    if (cJSON_IsArray(content)) {
        cJSON_ArrayForEach(block, content) {
            type = kve_json_str(block, "type");
            if (type == NULL) {
                continue;
            }

            text = kve_json_str(block, "text");

            if (strcmp(type, "text") == 0 && text) {
                kve_message_text(m, text);

            } else if (strcmp(type, "tool_use") == 0) {
                args = cJSON_PrintUnformatted(kve_json_get(block, "input"));
                kve_message_call(m, kve_json_str(block, "id"),
                                 kve_json_str(block, "name"), args);
                cJSON_free(args);

            } else if (strcmp(type, "tool_result") == 0) {
                kve_convert_tool_result(messages, block);

            } else if (strcmp(type, "thinking") == 0
                       && kve_json_str(block, "thinking"))
            {
                cJSON_AddStringToObject(m, "reasoning_content",
                                        kve_json_str(block, "thinking"));
            }
        }
    }

    if (cJSON_GetObjectItemCaseSensitive(m, "content") == NULL
        && cJSON_GetObjectItemCaseSensitive(m, "tool_calls") == NULL)
    {
        cJSON_Delete(m);
        return;
    }

    cJSON_AddItemToArray(messages, m);
}


void
kve_convert_messages(kve_parsed_t *p)
{
    cJSON        *m, *tool, *function, *schema;
    const char   *role, *s;
    const cJSON  *messages, *msg, *t;

    messages = kve_json_get(p->body, "messages");

    if (!cJSON_IsArray(messages)) {
        kve_parsed_fail(p, 400, "invalid_request_error",
                       "messages: Field required");
        return;
    }

    p->messages = cJSON_CreateArray();

    m = cJSON_CreateObject();
    cJSON_AddStringToObject(m, "role", "system");
    kve_convert_system(m, kve_json_get(p->body, "system"));

    cJSON_ArrayForEach(msg, messages) {
        role = kve_json_str(msg, "role");
        if (role && strcmp(role, "system") == 0) {
            kve_convert_system(m, kve_json_get(msg, "content"));
        }
    }

    if (cJSON_GetObjectItemCaseSensitive(m, "content")) {
        cJSON_AddItemToArray(p->messages, m);

    } else {
        cJSON_Delete(m);
    }

    cJSON_ArrayForEach(msg, messages) {
        kve_convert_message(p->messages, msg);
    }

    p->tools = cJSON_CreateArray();

    cJSON_ArrayForEach(t, kve_json_get(p->body, "tools")) {
        tool = cJSON_CreateObject();
        cJSON_AddStringToObject(tool, "type", "function");
        function = cJSON_AddObjectToObject(tool, "function");

        s = kve_json_str(t, "name");
        cJSON_AddStringToObject(function, "name", s ? s : "");

        s = kve_json_str(t, "description");
        if (s) {
            cJSON_AddStringToObject(function, "description", s);
        }

        schema = kve_json_get(t, "input_schema");
        if (schema) {
            cJSON_AddItemToObject(function, "parameters",
                                  cJSON_Duplicate(schema, 1));
        }

        cJSON_AddItemToArray(p->tools, tool);
    }
}


void
kve_convert_responses(kve_server_t *s, kve_parsed_t *p)
{
    cJSON        *m;
    const char   *previous, *instructions;
    const cJSON  *input, *item;
    kve_stored_t *stored;

    p->messages = cJSON_CreateArray();

    instructions = kve_json_str(p->body, "instructions");
    if (instructions) {
        m = kve_message_add(p->messages, "system");
        cJSON_AddStringToObject(m, "content", instructions);
    }

    previous = kve_json_str(p->body, "previous_response_id");
    if (previous) {
        stored = kve_store_find(s, previous);

        if (stored == NULL || stored->messages == NULL) {
            kve_parsed_fail(p, 404, "invalid_request_error",
                           "Response with id '%.64s' not found.", previous);
            return;
        }

        cJSON_ArrayForEach(item, stored->messages) {
            cJSON_AddItemToArray(p->messages, cJSON_Duplicate(item, 1));
        }
    }

    input = kve_json_get(p->body, "input");

    if (cJSON_IsString(input)) {
        m = kve_message_add(p->messages, "user");
        cJSON_AddStringToObject(m, "content", input->valuestring);

    } else {
        kve_parsed_fail(p, 400, "BadRequestError", "input: Field required");
        return;
    }
}
