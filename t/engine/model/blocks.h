/*
 * A paged prefix cache: a fixed pool of KV blocks, found by 64-bit hash.
 *
 * A block is held (reference count above zero: a running request reads or
 * writes it) or free (in the LRU list; it can be found by its name until it is
 * reused).  Only free blocks are evicted.
 */

#ifndef KVE_BLOCKS_H
#define KVE_BLOCKS_H


#include <stddef.h>
#include <stdint.h>


#define KVE_BLOCK_NONE  0xffffffffu


typedef struct kve_blocks_s  kve_blocks_t;

/* a name is removed, because its block is reused */
typedef void (*kve_blocks_removed_pt)(void *data, uint64_t hash);


kve_blocks_t *kve_blocks_create(uint32_t total);
void kve_blocks_destroy(kve_blocks_t *b);

void kve_blocks_watch(kve_blocks_t *b, kve_blocks_removed_pt removed,
    void *data);

/* removes all names; held blocks stay held */
void kve_blocks_clear(kve_blocks_t *b);

/* shrinking below the held blocks takes effect as they are released */
int kve_blocks_resize(kve_blocks_t *b, uint32_t total);

uint32_t kve_blocks_find(const kve_blocks_t *b, uint64_t hash);
int kve_blocks_is_held(const kve_blocks_t *b, uint32_t id);

/* notes that the block has a recurrent state at its end, while it has a name */
void kve_blocks_mark(kve_blocks_t *b, uint32_t id);
int kve_blocks_is_marked(const kve_blocks_t *b, uint32_t id);

/* uses a name of a free block: stores it, or makes it the most recent one */
void kve_blocks_touch(kve_blocks_t *b, uint64_t hash);

/* takes the least recently used block as a nameless held one */
uint32_t kve_blocks_alloc(kve_blocks_t *b);

/* names a block; 0: another block has this hash already */
int kve_blocks_name(kve_blocks_t *b, uint32_t id, uint64_t hash);

void kve_blocks_hold(kve_blocks_t *b, uint32_t id);
void kve_blocks_release(kve_blocks_t *b, uint32_t id);

uint32_t kve_blocks_total(const kve_blocks_t *b);
uint32_t kve_blocks_free(const kve_blocks_t *b);
uint32_t kve_blocks_held(const kve_blocks_t *b);

/* the i-th block to be evicted, KVE_BLOCK_NONE past the end */
uint32_t kve_blocks_next_victim(const kve_blocks_t *b, uint32_t i);
int kve_blocks_hash(const kve_blocks_t *b, uint32_t id, uint64_t *hash);

/* for tests: 0 when lists, counts and tables agree */
int kve_blocks_check(const kve_blocks_t *b);


#endif
