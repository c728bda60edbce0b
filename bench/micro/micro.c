
/*
 * Copyright (C) kvroute contributors
 */


#include "micro_cases.h"
#include "micro_run.h"


int
main(int argc, char **argv)
{
    char      *text, *only;
    FILE      *f;
    cJSON     *results;
    unsigned   i;

    micro_full = getenv("FULL") != NULL && *getenv("FULL") == '1';

    for (i = 0; i < KVR_SECRET_LEN; i++) {
        micro_secret[i] = (uint8_t) (i * 37 + 11);
    }

    micro_text();
    micro_shape();
    micro_index();
    micro_pick();
    micro_event();

    /* ONLY="lookup": runs the cases whose names contain the word */

    only = getenv("ONLY");

    if (only) {
        micro_run_only(only);
    }

    if (argc > 1 && strcmp(argv[1], "count") == 0) {
        micro_run_count(argc > 2 ? argv[2] : NULL);
        return 0;
    }

    results = cJSON_CreateObject();

    micro_run_all(results);
    micro_procs(results);
    micro_kept(results);
    micro_snapshot(results);

    cJSON_AddStringToObject(results, "kernel", kvr_text_ops()->name);

    text = cJSON_Print(results);
    f = argc > 1 ? fopen(argv[1], "w") : stdout;

    if (f == NULL || text == NULL) {
        perror(argc > 1 ? argv[1] : "micro");
        return 1;
    }

    fprintf(f, "%s\n", text);
    fclose(f);

    cJSON_free(text);
    cJSON_Delete(results);

    return 0;
}
