
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _HOOK_H_INCLUDED_
#define _HOOK_H_INCLUDED_


/*
 * A kill before the n-th store to shared memory.
 *
 * What is to be killed is compiled with -fsanitize=thread, so that the compiler
 * calls a function before each access to memory; hook.c has those functions in
 * place of the sanitizer's own.  Atomic stores, plain ones and those of
 * memcpy() are seen alike, in the order of the program.
 */


#include <stddef.h>
#include <stdint.h>


/* called before a store to an address */
void hook_store(const volatile void *addr);

/* whether stores to an address are counted now */
int hook_counts(const volatile void *addr);


#endif /* _HOOK_H_INCLUDED_ */
