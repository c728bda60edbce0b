
/*
 * Copyright (C) kvroute contributors
 */


#include "hook.h"


/*
 * The functions that gcc -fsanitize=thread calls.  The caller does a plain
 * store after the call; the function does an atomic one.
 */

#define HOOK_PLAIN(n)                                                         \
                                                                              \
void __tsan_read##n(const volatile void *p);                                  \
void __tsan_write##n(const volatile void *p);                                 \
void __tsan_unaligned_read##n(const volatile void *p);                        \
void __tsan_unaligned_write##n(const volatile void *p);                       \
                                                                              \
void __tsan_read##n(const volatile void *p) { (void) p; }                     \
void __tsan_write##n(const volatile void *p) { hook_store(p); }               \
void __tsan_unaligned_read##n(const volatile void *p) { (void) p; }           \
void __tsan_unaligned_write##n(const volatile void *p) { hook_store(p); }

HOOK_PLAIN(1)
HOOK_PLAIN(2)
HOOK_PLAIN(4)
HOOK_PLAIN(8)
HOOK_PLAIN(16)


#define SC  __ATOMIC_SEQ_CST

#define HOOK_FETCH(bits, type, op)                                            \
                                                                              \
type __tsan_atomic##bits##_fetch_##op(volatile type *p, type v, int o);       \
                                                                              \
type                                                                          \
__tsan_atomic##bits##_fetch_##op(volatile type *p, type v, int o)             \
{                                                                             \
    (void) o;                                                                 \
    hook_store(p);                                                            \
    return __atomic_fetch_##op(p, v, SC);                                     \
}

/* a failed exchange stores nothing, but counts too */

#define HOOK_EXCHANGE(bits, type, how)                                        \
                                                                              \
int __tsan_atomic##bits##_compare_exchange_##how(volatile type *p,            \
    type *old, type v, int o, int f);                                         \
                                                                              \
int                                                                           \
__tsan_atomic##bits##_compare_exchange_##how(volatile type *p, type *old,     \
    type v, int o, int f)                                                     \
{                                                                             \
    (void) o;                                                                 \
    (void) f;                                                                 \
    hook_store(p);                                                            \
    return __atomic_compare_exchange_n(p, old, v, 0, SC, SC);                 \
}

#define HOOK_ATOMIC(bits, type)                                               \
                                                                              \
type __tsan_atomic##bits##_load(const volatile type *p, int o);               \
void __tsan_atomic##bits##_store(volatile type *p, type v, int o);            \
type __tsan_atomic##bits##_exchange(volatile type *p, type v, int o);         \
                                                                              \
type                                                                          \
__tsan_atomic##bits##_load(const volatile type *p, int o)                     \
{                                                                             \
    (void) o;                                                                 \
    return __atomic_load_n(p, SC);                                            \
}                                                                             \
                                                                              \
void                                                                          \
__tsan_atomic##bits##_store(volatile type *p, type v, int o)                  \
{                                                                             \
    (void) o;                                                                 \
    hook_store(p);                                                            \
    __atomic_store_n(p, v, SC);                                               \
}                                                                             \
                                                                              \
type                                                                          \
__tsan_atomic##bits##_exchange(volatile type *p, type v, int o)               \
{                                                                             \
    (void) o;                                                                 \
    hook_store(p);                                                            \
    return __atomic_exchange_n(p, v, SC);                                     \
}                                                                             \
                                                                              \
HOOK_FETCH(bits, type, add)                                                   \
HOOK_FETCH(bits, type, sub)                                                   \
HOOK_FETCH(bits, type, and)                                                   \
HOOK_FETCH(bits, type, or)                                                    \
HOOK_FETCH(bits, type, xor)                                                   \
HOOK_EXCHANGE(bits, type, strong)                                             \
HOOK_EXCHANGE(bits, type, weak)

HOOK_ATOMIC(8, uint8_t)
HOOK_ATOMIC(16, uint16_t)
HOOK_ATOMIC(32, uint32_t)
HOOK_ATOMIC(64, uint64_t)


void __tsan_init(void);
void __tsan_read_range(const volatile void *p, size_t len);
void __tsan_write_range(const volatile void *p, size_t len);
void __tsan_func_entry(void *pc);
void __tsan_func_exit(void);
void __tsan_atomic_thread_fence(int o);
void __tsan_atomic_signal_fence(int o);

void __tsan_init(void) { }
void __tsan_read_range(const volatile void *p, size_t n) { (void) p; (void) n; }
void __tsan_write_range(const volatile void *p, size_t n)
{
    (void) n;
    hook_store(p);
}
void __tsan_func_entry(void *pc) { (void) pc; }
void __tsan_func_exit(void) { }
void __tsan_atomic_thread_fence(int o) { (void) o; __atomic_thread_fence(SC); }
void __tsan_atomic_signal_fence(int o) { (void) o; }


#ifndef HOOK_NO_WRAP

/*
 * memcpy() and similar functions, word by word: the linker replaces the calls
 * (--wrap), which the compiler keeps (-fno-builtin).
 */

void *__wrap_memcpy(void *to, const void *from, size_t len);
void *__wrap_memmove(void *to, const void *from, size_t len);
void *__wrap_memset(void *to, int c, size_t len);

void *__real_memmove(void *to, const void *from, size_t len);
void *__real_memset(void *to, int c, size_t len);


void *
__wrap_memcpy(void *to, const void *from, size_t len)
{
    size_t  n, step;

    if (!hook_counts(to)) {
        return __real_memmove(to, from, len);
    }

    for (n = 0; n < len; n += step) {
        step = len - n < 8 ? len - n : 8;
        hook_store((char *) to + n);
        __real_memmove((char *) to + n, (const char *) from + n, step);
    }

    return to;
}


void *
__wrap_memmove(void *to, const void *from, size_t len)
{
    if ((uintptr_t) to - (uintptr_t) from >= len) {
        return __wrap_memcpy(to, from, len);
    }

    /* overlapping memory is never shared */

    hook_store(to);

    return __real_memmove(to, from, len);
}


void *
__wrap_memset(void *to, int c, size_t len)
{
    size_t  n, step;

    if (!hook_counts(to)) {
        return __real_memset(to, c, len);
    }

    for (n = 0; n < len; n += step) {
        step = len - n < 8 ? len - n : 8;
        hook_store((char *) to + n);
        __real_memset((char *) to + n, c, step);
    }

    return to;
}

#endif
