
/*
 * Copyright (C) kvroute contributors
 */


#include "core/base/kvr_core.h"


#if (__x86_64__)

/* kvr_text_ops_nth() checks for all of these */

#if (__clang__)

#include <immintrin.h>

#pragma clang attribute push(                                                 \
    __attribute__((target("avx2,bmi,bmi2,popcnt"))), apply_to = function)

#else
#pragma GCC target("avx2,bmi,bmi2,popcnt")
#endif

#define KVR_TEXT_AVX2  1
#define XXH_VECTOR     2
#define KVR_TEXT_OPS   kvr_text_ops_avx2
#define KVR_TEXT_NAME  "avx2"

#include "core/text/kvr_text_kernel.inc"

#if (__clang__)
#pragma clang attribute pop
#endif

#endif
