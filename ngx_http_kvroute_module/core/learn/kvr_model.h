
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_MODEL_H_INCLUDED_
#define _KVR_MODEL_H_INCLUDED_


/*
 * How many bytes of prompt a token of each model has, by what responses tell of
 * their prompts.  In shared memory, one table in a zone.
 *
 * Entries are claimed by a single store, so that a process killed at any point
 * leaves none that cannot be used; what is written twice is the same.  When all
 * are taken, the one without a response for longest is given to the new model.
 */


#include "core/learn/kvr_ratio.h"


#define KVR_MODELS          16
#define KVR_MODEL_NAME_LEN  64


typedef struct {
    _Alignas(KVR_CACHE_LINE)
    _Atomic uint64_t   key;         /* hash of the name; 0: free */
    _Atomic uint64_t   responses;
    _Atomic uint64_t   last;        /* responses of all models at its last */
    kvr_ratio_t        bytes;       /* a token */
    _Atomic uint32_t   len;
    _Atomic uint8_t    name[KVR_MODEL_NAME_LEN];
} kvr_model_t;


typedef struct {
    _Atomic uint64_t   responses;   /* of all models, ever */
    kvr_model_t        model[KVR_MODELS];
} kvr_models_t;


/*
 * Takes a response: so many bytes of prompt were so many tokens.  key is a hash
 * of the model's name, not 0; of a long name only the beginning is kept, and
 * what is no printable ASCII is kept as "?".  Short prompts do not count.
 */
void kvr_model_take(kvr_models_t *models, uint64_t key, const void *name,
    size_t len, uint64_t bytes, int64_t tokens);

/* copies the name, KVR_MODEL_NAME_LEN bytes at most; returns its length */
size_t kvr_model_name(const kvr_model_t *model, void *name);

/* bytes a token of this entry; 0: it is free */
double kvr_model_bytes(const kvr_model_t *model);

/* the same of the model with the most responses; 0: there were none */
double kvr_model_busiest(const kvr_models_t *models);

/* responses of each model from zero; the means stay */
void kvr_model_reset_counters(kvr_models_t *models);


#endif /* _KVR_MODEL_H_INCLUDED_ */
