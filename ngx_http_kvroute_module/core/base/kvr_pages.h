
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_PAGES_H_INCLUDED_
#define _KVR_PAGES_H_INCLUDED_


/*
 * Asks for large pages.  A table of the index is read and written to at random,
 * and with pages of 4 KB most of that is paid for finding the page.
 */


#include "core/base/kvr_core.h"

#include <sys/mman.h>
#include <unistd.h>


/*
 * For memory that nobody has touched yet, of which those pages count that lie
 * in it as a whole.  It is a wish: shared memory gets large pages only where
 * /sys/kernel/mm/transparent_hugepage/shmem_enabled says "advise" or more.
 * Nothing is filled by it, so that what is not used takes no memory.
 */
static inline void
kvr_pages_want(void *p, size_t size)
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
