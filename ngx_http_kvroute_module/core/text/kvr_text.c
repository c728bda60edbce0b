
/*
 * Copyright (C) kvroute contributors
 */


#include "core/text/kvr_text.h"


#define KVR_TEXT_OPS   kvr_text_ops_base
#define KVR_TEXT_NAME  "base"

#include "core/text/kvr_text_kernel.inc"


const kvr_text_ops_t *
kvr_text_ops_nth(unsigned n)
{
#if (__x86_64__)

    if (__builtin_cpu_supports("avx2")
        && __builtin_cpu_supports("bmi")
        && __builtin_cpu_supports("bmi2")
        && __builtin_cpu_supports("popcnt"))
    {

        if (n == 0) {
            return &kvr_text_ops_avx2;
        }

        n--;
    }

#endif

    return n == 0 ? &kvr_text_ops_base : NULL;
}


const kvr_text_ops_t *
kvr_text_ops(void)
{
    return kvr_text_ops_nth(0);
}


int
kvr_text_raw(kvr_json_t *j, kvr_block_t *b)
{
    int       c, rc;
    uint64_t  offset, end;

    c = kvr_json_peek(j);

    switch (c) {

    case '"':
        kvr_block_byte(b, '"');
        j->p++;

        rc = j->ops->string(j, b);
        if (rc == KVR_OK) {
            kvr_block_byte(b, '"');
        }

        return rc;

    case '{':
    case '[':
        return j->ops->raw_container(j, b);
    }

    if (c < 0) {
        return c;
    }

    /* a scalar is short: skip it to check it, then put it */

    offset = kvr_json_offset(j);
    rc = kvr_json_skip_scalar(j);
    end = kvr_json_offset(j);

    if (rc == KVR_OK) {
        rc = kvr_json_seek(j, offset);
    }

    while (rc == KVR_OK && kvr_json_offset(j) < end) {
        c = kvr_json_byte(j);

        if (c < 0) {
            return c;
        }

        kvr_block_byte(b, (uint8_t) c);
    }

    return rc;
}
