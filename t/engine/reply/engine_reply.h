/*
 * The text of a reply, and its usage.
 */

#ifndef KVE_ENGINE_REPLY_H
#define KVE_ENGINE_REPLY_H


#include "reply/engine_request.h"


void kve_reply_build(kve_reply_t *reply, uint64_t seed, uint32_t tokens,
    int bytes_per_token, uint32_t reasoning, const char *tool);
/* omits the first bytes of a reply that is only text */
void kve_reply_skip(kve_reply_t *reply, size_t len);
void kve_reply_free(kve_reply_t *reply);
void kve_reply_part(kve_buf_t *b, const kve_sub_t *sub, kve_part_e kind);
int kve_reply_has(const kve_sub_t *sub, kve_part_e kind);
uint32_t kve_reply_prompt_tokens(const kve_job_t *job);
uint32_t kve_reply_cached_tokens(const kve_job_t *job);
uint32_t kve_reply_output_tokens(const kve_job_t *job);
void kve_reply_usage(kve_buf_t *b, kve_job_t *job);
void kve_reply_responses_usage(kve_buf_t *b, kve_job_t *job);
void kve_reply_messages_usage(kve_buf_t *b, kve_job_t *job, int at_start);
void kve_reply_responses_object(kve_buf_t *b, kve_job_t *job,
    const char *status);
void kve_reply_item(kve_buf_t *b, kve_job_t *job, kve_sub_t *sub,
    kve_part_e kind, int whole);
void kve_reply_timings(kve_buf_t *b, kve_job_t *job, const kve_sub_t *sub);
const char *kve_reply_stop_reason(const kve_sub_t *sub);


#endif
