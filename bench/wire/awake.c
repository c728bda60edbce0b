
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Keeps a virtual core from being halted when it is idle, because the host is
 * slow to wake it: runs there at the lowest priority.
 *
 *     awake CORE PARENT
 */


#define _GNU_SOURCE

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/prctl.h>


int
main(int argc, char **argv)
{
    cpu_set_t           set;
    struct sched_param  param = { 0 };

    CPU_ZERO(&set);
    CPU_SET(argc > 1 ? atoi(argv[1]) : 0, &set);

    prctl(PR_SET_PDEATHSIG, SIGKILL);

    if (argc > 2 && getppid() != atoi(argv[2])) {
        return 1;
    }

    if (sched_setaffinity(0, sizeof(set), &set) == -1
        || sched_setscheduler(0, SCHED_IDLE, &param) == -1)
    {
        perror("awake");
        return 1;
    }

    for ( ;; ) {
#if defined __x86_64__
        __builtin_ia32_pause();
#elif defined __aarch64__
        __asm__ volatile ("yield");
#endif
    }
}
