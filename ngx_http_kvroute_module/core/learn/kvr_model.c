
/*
 * Copyright (C) kvroute contributors
 */


#include "core/learn/kvr_model.h"


static kvr_model_t *kvr_models_find(kvr_models_t *models, uint64_t key);
static kvr_model_t *kvr_models_claim(kvr_models_t *models, uint64_t key);


void
kvr_model_take(kvr_models_t *models, uint64_t key, const void *name,
    size_t len, uint64_t bytes, int64_t tokens)
{
    size_t          i;
    kvr_model_t    *model;
    const uint8_t  *p;

    if (tokens <= 0 || bytes < KVR_RATIO_MIN || len == 0) {
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

    kvr_ratio_take(&model->bytes, bytes, (uint64_t) tokens);

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
    kvr_ratio_reset(&model->bytes);
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
    return kvr_ratio_get(&model->bytes);
}


double
kvr_model_busiest(const kvr_models_t *models)
{
    unsigned            i;
    uint64_t            n, most;
    double              bytes, b;
    const kvr_model_t  *model;

    most = 0;
    bytes = 0;

    for (i = 0; i < KVR_MODELS; i++) {
        model = &models->model[i];

        /* they are claimed in their order, and none is given up */

        if (kvr_get(&model->key) == 0) {
            break;
        }

        n = kvr_get(&model->responses);

        b = kvr_model_bytes(model);

        if ((n > most || bytes == 0) && b > 0) {
            most = n;
            bytes = b;
        }
    }

    return bytes;
}


void
kvr_model_reset_counters(kvr_models_t *models)
{
    unsigned  i;

    for (i = 0; i < KVR_MODELS; i++) {
        kvr_set(&models->model[i].responses, 0);
    }
}
