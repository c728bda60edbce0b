
/*
 * Copyright (C) kvroute contributors
 */


/*
 * kvr_model: bytes a token of each model, whichever and however many there are.
 */


#include <stdio.h>

#include "util.h"
#include "core/learn/kvr_model.h"


static kvr_models_t  models;


static void
take(uint64_t key, const char *name, uint64_t bytes, int64_t tokens)
{
    kvr_model_take(&models, key, name, strlen(name), bytes, tokens);
}


static kvr_model_t *
find(uint64_t key)
{
    unsigned  i;

    for (i = 0; i < KVR_MODELS; i++) {
        if (models.model[i].key == key) {
            return &models.model[i];
        }
    }

    return NULL;
}


START_TEST(test_model_mean)
{
    int    i;
    char   name[KVR_MODEL_NAME_LEN];

    memset((void *) &models, 0, sizeof(models));

    util_check(kvr_model_busiest(&models) == 0, "none");

    take(1, "one", 4000, 1000);
    take(2, "two", 6000, 2000);
    take(2, "two", 6000, 2000);

    util_check(kvr_model_bytes(find(1)) == 4, "%f", kvr_model_bytes(find(1)));
    util_check(kvr_model_bytes(find(2)) == 3, "%f", kvr_model_bytes(find(2)));
    util_check(kvr_model_busiest(&models) == 3, "the one used most");
    util_check(kvr_model_name(find(1), name) == 3
               && memcmp(name, "one", 3) == 0, "its name");

    for (i = 0; i < 200; i++) {
        take(1, "one", 8000, 1000);
    }

    util_check(kvr_model_bytes(find(1)) > 7.9, "%f", kvr_model_bytes(find(1)));
    util_check(kvr_model_bytes(find(2)) == 3, "the other stays");

    /* what tells nothing */

    take(1, "one", 100, 1);
    take(1, "one", 8000, 0);
    take(1, "one", 8000, -1);
    take(3, "", 8000, 1000);
    util_check(find(3) == NULL && find(1)->responses == 201, "not taken");

    take(4, "wild", UINT64_C(1) << 40, 1);
    util_check(kvr_model_bytes(find(4)) == 8, "within bounds");

    /* one odd response */

    take(1, "one", 1 << 20, 1000);
    util_check(kvr_model_bytes(find(1)) < 8.08, "%f",
               kvr_model_bytes(find(1)));

    /* counters from zero: what was learned is there for a new peer as before */

    kvr_model_reset_counters(&models);
    util_check(find(1)->responses == 0 && find(2)->responses == 0, "reset");
    util_check(kvr_model_bytes(find(2)) == 3, "its mean stays");
    util_check(kvr_model_busiest(&models) > 0, "some mean is still known");

    take(2, "two", 6000, 2000);
    util_check(kvr_model_busiest(&models) == 3, "the one used most since then");
}
END_TEST


START_TEST(test_model_many)
{
    int    i;
    char   name[200], kept[KVR_MODEL_NAME_LEN];

    memset((void *) &models, 0, sizeof(models));

    take(1, "always", 4000, 1000);

    for (i = 0; i < 1000; i++) {
        (void) snprintf(name, sizeof(name), "m%d", i);
        take(1000 + (uint64_t) i, name, 4000, 1000);
        take(1, "always", 4000, 1000);
    }

    util_check(find(1) && find(1)->responses == 1001, "one in use is kept");
    util_check(find(1999) && !find(1000), "the oldest give way");
    util_check(kvr_model_name(find(1999), kept) == 4
               && memcmp(kept, "m999", 4) == 0, "under the new name");

    memset(name, 'x', sizeof(name));
    kvr_model_take(&models, 5, name, sizeof(name), 4000, 1000);
    util_check(kvr_model_name(find(5), kept) == KVR_MODEL_NAME_LEN, "long");

    take(6, "a\"\xff\nb", 4000, 1000);
    util_check(kvr_model_name(find(6), kept) == 5
               && memcmp(kept, "a\"??b", 5) == 0, "no text");
}
END_TEST


int
main(void)
{
    Suite  *s;

    s = suite_create("model");

    util_add(s, "mean", test_model_mean);
    util_add(s, "many", test_model_many);

    return util_run(s);
}
