
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_PAGES_H_INCLUDED_
#define _KVR_PAGES_H_INCLUDED_


/*
 * Requests large pages.  The index is accessed at random, and with pages of
 * 4 KB most of the cost is the lookup of the page.
 */


#include "core/base/kvr_core.h"

#include <sys/mman.h>
#include <unistd.h>


/*
 * Requests large pages for memory that is not in use yet.  This is a hint:
 * shared memory gets large pages only if "advise" or more is set in
 * /sys/kernel/mm/transparent_hugepage/shmem_enabled.  It does not allocate
 * pages that are not used.
 */
static inline void
kvr_pages_advise(void *p, size_t size)
{
#ifdef MADV_HUGEPAGE

    uintptr_t  start, end, page;

    page = (uintptr_t) sysconf(_SC_PAGESIZE);

    start = ((uintptr_t) p + page - 1) / page * page;
    end = ((uintptr_t) p + size) / page * page;

    if (start < end) {
        (void) madvise((void *) start, end - start, MADV_HUGEPAGE);
    }

#else

    (void) p;
    (void) size;

#endif
}


#endif /* _KVR_PAGES_H_INCLUDED_ */
