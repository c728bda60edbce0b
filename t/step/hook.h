
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _HOOK_H_INCLUDED_
#define _HOOK_H_INCLUDED_


/*
 * Kills a process before its n-th store to shared memory.
 *
 * The code under test is compiled with -fsanitize=thread, so the compiler calls
 * a function before each memory access; hook.c implements those functions
 * instead of the sanitizer.  It sees atomic stores, plain ones and those of
 * memcpy() in program order.
 */


#include <stddef.h>
#include <stdint.h>


/* Called before a store to an address. */
void hook_store(const volatile void *addr);

/* Returns whether stores to an address are counted now. */
int hook_counts(const volatile void *addr);


#endif /* _HOOK_H_INCLUDED_ */
