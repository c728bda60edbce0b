/*
 * Messages -> the text of a prompt, like a chat template.
 */

#ifndef KVE_ENGINE_RENDER_H
#define KVE_ENGINE_RENDER_H


#include "base/engine_util.h"


typedef struct {
    int                 image_bytes;
    int                 thinking;           /* -1: not set */
    unsigned            no_generation_prompt:1;
    unsigned            continue_final:1;
} kve_render_t;


void kve_render_messages(kve_buf_t *b, const cJSON *messages,
    const cJSON *tools, const kve_render_t *how);
void kve_render_ids(kve_buf_t *b, const cJSON *ids, int bytes_per_token);


#endif
