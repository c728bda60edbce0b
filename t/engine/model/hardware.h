/*
 * The time of a model's step on a GPU.  A step has n tokens: one for each
 * decoding sequence, and the prefill chunks' a tokens at context c each:
 *
 *     max(floor, n * linear) + step + request * requests
 *         + kv * (context tokens of the decoding sequences)
 *         + sum of attention * a * (c + a / 2)
 */

#ifndef KVE_HARDWARE_H
#define KVE_HARDWARE_H


#include <stddef.h>
#include <stdint.h>


typedef struct {
    const char  *name;

    double       floor;         /* s: the weights are read once a step */
    double       linear;        /* s per token: matrix products */
    double       kv;            /* s per context token of a decoding one */
    double       attention;     /* s per token squared, prefill */
    double       step;          /* s per step: launches, collectives */
    double       request;       /* s per request in the batch */

    double       api;           /* s per request before it is queued */
    double       output;        /* s per output token, on the CPU */

    double       kv_bytes;      /* per token */
    uint64_t     kv_tokens;     /* capacity */
    uint32_t     max_seqs;
    uint32_t     max_batched;
} kve_hw_t;


/* NULL for an unknown name; i counts through all of them */
int kve_hw_find(const char *name, kve_hw_t *hw);
int kve_hw_get(size_t i, kve_hw_t *hw);


#endif
