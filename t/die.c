
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Ends a worker at a chosen function, as kill -9 might do at that instant.  It
 * is preloaded.  When a worker wakes up, it looks for the file KVROUTE_DIE.
 * The worker that can remove the file puts a trap at the start of the function
 * that the file names, in its own copy of the code.  Instead of a function
 * there can be a number, if t/step/trap.c is linked with this; or "stop": then
 * a worker that starts while the file exists stops as by SIGSTOP.
 */


#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>


#if defined(__x86_64__) || defined(__i386__)
#define DIE_CODE  { 0xcc }
#else
#define DIE_CODE  { 0, 0, 0, 0 }    /* never an instruction on ARM */
#endif


typedef int (*die_wait_pt)(int fd, struct epoll_event *events, int n,
    int timeout);


extern void die_after(uint64_t n) __attribute__ ((weak));


static char  *die_file;


/* nginx writes its title over its environment */

static __attribute__((constructor)) void
die_init(void)
{
    die_file = getenv("KVROUTE_DIE");

    if (die_file) {
        die_file = strdup(die_file);
    }
}


static void
die_at(const char *name)
{
    char                *start;
    void                *code;
    size_t               page;
    struct rlimit        none;
    const unsigned char  trap[] = DIE_CODE;

    code = dlsym(RTLD_DEFAULT, name);

    page = (size_t) sysconf(_SC_PAGESIZE);
    start = (char *) ((uintptr_t) code & ~(page - 1));

    if (code == NULL
        || mprotect(start, 2 * page, PROT_READ|PROT_WRITE|PROT_EXEC) == -1)
    {
        fprintf(stderr, "[alert] no way to die at %s\n", name);
        return;
    }

    memset(&none, 0, sizeof(none));
    (void) setrlimit(RLIMIT_CORE, &none);

    memcpy(code, trap, sizeof(trap));
    __builtin___clear_cache((char *) code, (char *) code + sizeof(trap));
}


int
epoll_wait(int fd, struct epoll_event *events, int n, int timeout)
{
    int    rc, err;
    char   name[128];
    FILE  *f;

    static die_wait_pt  next;

    if (next == NULL) {
        *(void **) &next = dlsym(RTLD_NEXT, "epoll_wait");
    }

    rc = next(fd, events, n, timeout);
    err = errno;

    f = die_file ? fopen(die_file, "r") : NULL;

    if (f) {
        if (fgets(name, sizeof(name), f) == NULL) {
            name[0] = '\0';
        }

        name[strcspn(name, "\n")] = '\0';

        if (strcmp(name, "stop") == 0) {
            (void) raise(SIGSTOP);

        } else if (name[0] && unlink(die_file) == 0) {

            if (die_after && name[0] >= '0' && name[0] <= '9') {
                die_after(strtoull(name, NULL, 10));

            } else {
                die_at(name);
            }
        }

        fclose(f);
    }

    errno = err;

    return rc;
}
