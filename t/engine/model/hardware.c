#include <math.h>
#include <string.h>

#include "hardware.h"


/*
 * The table has published or measured values only; the coefficients follow
 * from them.  Linear parts reach 65% of the peak (less 2.6% of it for each
 * doubling of the GPUs), attention 45%, weights 75% and the KV cache 80% of
 * the memory's bandwidth.
 */

typedef struct {
    const char  *name;
    double       params;        /* 1e9, without the embeddings */
    double       weight;        /* bytes per parameter */
    double       layers;
    double       dq;            /* query heads * head size */
    double       kv_bytes;      /* per token, all layers */
    double       peak;          /* bf16 TFLOPS of one GPU */
    double       bandwidth;     /* TB/s of one GPU */
    double       tp;
    uint64_t     kv_tokens;
    uint32_t     max_seqs;
    uint32_t     max_batched;
} kve_hw_facts_t;


static const kve_hw_facts_t  kve_hw_facts[] = {

    { "llama-8b-bf16-h100",    7.0, 2, 32, 4096, 131072,
      989.5, 3.35, 1, 450000, 1024, 8192 },

    { "llama-8b-bf16-a100",    7.0, 2, 32, 4096, 131072,
      312.0, 2.039, 1, 375000, 256, 8192 },

    { "llama-8b-bf16-l40s",    7.0, 2, 32, 4096, 131072,
      362.0, 0.864, 1, 175000, 256, 2048 },

    { "llama-8b-bf16-a10g",    7.0, 2, 32, 4096, 131072,
      70.0, 0.6, 1, 21000, 256, 2048 },

    { "devstral-24b-fp8-h100",     22.2, 1, 40, 4096, 163840,
      989.5, 3.35, 1, 250000, 1024, 8192 },

    { "devstral-24b-bf16-h100",    22.2, 2, 40, 4096, 163840,
      989.5, 3.35, 1, 115000, 1024, 8192 },

    { "devstral-24b-fp8-h100-tp2", 22.2, 1, 40, 4096, 163840,
      989.5, 3.35, 2, 686000, 1024, 8192 },

    { "devstral-24b-fp8-h200",     22.2, 1, 40, 4096, 163840,
      989.5, 4.8, 1, 585000, 1024, 8192 },

    { "llama-70b-bf16-h100-tp4",   68.5, 2, 80, 8192, 327680,
      989.5, 3.35, 4, 428000, 1024, 8192 },

    /* llama-server with the demo's model on a core: 10,000 tokens/s */

    { "demo-cpu",               0.0065, 4, 1, 1000, 2048,
      0.2, 0.01, 1, 13000, 5, 2048 },

    /* no time passes: for tests in which time does not matter */

    { "none", 0, 0, 0, 0, 0, 1, 1, 1, 450000, 1024, 8192 }
};


#define KVE_HW_FACTS  (sizeof(kve_hw_facts) / sizeof(kve_hw_facts[0]))


int
kve_hw_get(size_t i, kve_hw_t *hw)
{
    double                 params, flops, bytes, mfu;
    const kve_hw_facts_t  *f;

    if (i >= KVE_HW_FACTS) {
        return 0;
    }

    f = &kve_hw_facts[i];

    memset(hw, 0, sizeof(kve_hw_t));

    hw->name = f->name;
    hw->kv_bytes = f->kv_bytes;
    hw->kv_tokens = f->kv_tokens;
    hw->max_seqs = f->max_seqs;
    hw->max_batched = f->max_batched;

    if (f->params == 0) {
        return 1;
    }

    params = f->params * 1e9;
    flops = f->peak * 1e12 * f->tp;
    bytes = f->bandwidth * 1e12 * f->tp;
    mfu = 0.65 * (1 - 0.026 * log2(f->tp)) * (f->weight < 2 ? 1.7 : 1);

    hw->floor = params * f->weight / (0.75 * bytes);
    hw->linear = 2 * params / (mfu * flops);
    hw->kv = f->kv_bytes / (0.8 * bytes);
    hw->attention = 4 * f->layers * f->dq / (0.45 * flops);
    hw->step = 0.0015 + (f->tp > 1 ? 16e-6 * f->layers : 0);
    hw->request = 5e-6;
    hw->api = 0.015;
    hw->output = 46e-6;

    return 1;
}


int
kve_hw_find(const char *name, kve_hw_t *hw)
{
    size_t  i;

    for (i = 0; kve_hw_get(i, hw); i++) {
        if (strcmp(hw->name, name) == 0) {
            return 1;
        }
    }

    return 0;
}
