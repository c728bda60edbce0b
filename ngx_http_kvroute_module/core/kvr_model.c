
/*
 * Copyright (C) kvroute contributors
 */


#include "kvr_model.h"


/* prompts shorter than this are mostly the template's own tokens */
#define KVR_MODEL_BYTES_MIN  1000
#define KVR_MODEL_BYTES_MAX  256     /* a token */


static kvr_model_t *kvr_models_find(kvr_models_t *models, uint64_t key);
static kvr_model_t *kvr_models_claim(kvr_models_t *models, uint64_t key);


void
kvr_models_take(kvr_models_t *models, uint64_t key, const void *name,
    size_t len, uint64_t bytes, int64_t tokens)
{
    size_t          i;
    uint32_t        x, old;
    kvr_model_t    *model;
    const uint8_t  *p;

    if (tokens <= 0 || bytes < KVR_MODEL_BYTES_MIN || len == 0) {
        return;
    }

    model = kvr_models_find(models, key);

    if (model == NULL) {
        model = kvr_models_claim(models, key);
    }

    if (kvr_get(&model->len) == 0) {
        len = kvr_min(len, KVR_MODEL_NAME_LEN);

        for (i = 0, p = name; i < len; i++) {
            kvr_set(&model->name[i],
                    (uint8_t) (p[i] >= ' ' && p[i] < 0x7f ? p[i] : '?'));
        }

        kvr_set(&model->len, (uint32_t) len);
    }

    x = (uint32_t) kvr_min(bytes * KVR_MODEL_ONE / (uint64_t) tokens,
                           KVR_MODEL_BYTES_MAX * KVR_MODEL_ONE);
    old = kvr_get(&model->bytes);

    kvr_set(&model->bytes, old ? kvr_max(old - old / 32 + x / 32, 1)
                               : kvr_max(x, 1));

    kvr_add(&model->responses, 1);
    kvr_set(&model->last, kvr_add(&models->responses, 1) + 1);
}


static kvr_model_t *
kvr_models_find(kvr_models_t *models, uint64_t key)
{
    unsigned  i;

    for (i = 0; i < KVR_MODELS; i++) {
        if (kvr_get(&models->model[i].key) == key) {
            return &models->model[i];
        }
    }

    return NULL;
}


/* two processes may claim two for one model: the one behind then falls idle */
static kvr_model_t *
kvr_models_claim(kvr_models_t *models, uint64_t key)
{
    unsigned      i;
    kvr_model_t  *model, *m;

    model = &models->model[0];

    for (i = 0; i < KVR_MODELS; i++) {
        m = &models->model[i];

        if (kvr_get(&m->key) == 0) {
            model = m;
            break;
        }

        if (kvr_get(&m->last) < kvr_get(&model->last)) {
            model = m;
        }
    }

    kvr_set(&model->len, 0);
    kvr_set(&model->bytes, 0);
    kvr_set(&model->responses, 0);
    kvr_set(&model->key, key);

    return model;
}


size_t
kvr_model_name(const kvr_model_t *model, void *name)
{
    size_t    i, len;
    uint8_t  *p;

    len = kvr_min(kvr_get(&model->len), KVR_MODEL_NAME_LEN);

    for (i = 0, p = name; i < len; i++) {
        p[i] = kvr_get(&model->name[i]);
    }

    return len;
}


double
kvr_model_bytes(const kvr_model_t *model)
{
    return (double) kvr_get(&model->bytes) / KVR_MODEL_ONE;
}


double
kvr_models_bytes(const kvr_models_t *models)
{
    unsigned            i;
    uint64_t            n, most;
    double              bytes;
    const kvr_model_t  *model;

    most = 0;
    bytes = 0;

    for (i = 0; i < KVR_MODELS; i++) {
        model = &models->model[i];
        n = kvr_get(&model->responses);

        if ((n > most || bytes == 0) && kvr_get(&model->bytes)) {
            most = n;
            bytes = kvr_model_bytes(model);
        }
    }

    return bytes;
}


void
kvr_models_reset_counters(kvr_models_t *models)
{
    unsigned  i;

    for (i = 0; i < KVR_MODELS; i++) {
        kvr_set(&models->model[i].responses, 0);
    }
}
