
/*
 * Copyright (C) kvroute contributors
 */


#include "kvr_core.h"


#if (__x86_64__)

#pragma GCC target("avx2,bmi,bmi2,lzcnt,popcnt")

#define XXH_VECTOR     2
#define KVR_TEXT_OPS   kvr_text_ops_avx2
#define KVR_TEXT_NAME  "avx2"

#include "kvr_text_kernel.h"

#endif
