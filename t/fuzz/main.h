
/*
 * Copyright (C) kvroute contributors
 */


/*
 * Included at the end of a fuzzer; without libFuzzer it runs the fuzzer over
 * the files and folders of its arguments, and over every prefix of them.
 */


#include <dirent.h>
#include <sys/stat.h>


#ifndef KVR_FUZZ_LIBFUZZER

static unsigned  files;


static void
run(const char *name)
{
    FILE           *f;
    DIR            *dir;
    size_t          n;
    struct stat     st;
    struct dirent  *de;
    util_buf_t      buf = { 0 };
    char            path[4096];
    uint8_t         piece[4096];

    if (stat(name, &st) == -1) {
        perror(name);
        exit(1);
    }

    if (S_ISDIR(st.st_mode)) {
        dir = opendir(name);

        while (dir && (de = readdir(dir)) != NULL) {
            if (de->d_name[0] != '.') {
                snprintf(path, sizeof(path), "%s/%s", name, de->d_name);
                run(path);
            }
        }

        if (dir) {
            closedir(dir);
        }

        return;
    }

    f = fopen(name, "r");

    if (f == NULL) {
        perror(name);
        exit(1);
    }

    while ((n = fread(piece, 1, sizeof(piece), f)) != 0) {
        util_put(&buf, piece, n);
    }

    fclose(f);

    (void) LLVMFuzzerTestOneInput(buf.p ? buf.p : piece, buf.len);
    files++;

    /* and every prefix of it */

    for (n = buf.len; n > 0; n -= n / 50 + 1) {
        (void) LLVMFuzzerTestOneInput(buf.p, n - 1);
    }

    util_drop(&buf);
}


int
main(int argc, char **argv)
{
    int  i;

    for (i = 1; i < argc; i++) {
        run(argv[i]);
    }

    printf("%u files are good\n", files);

    return 0;
}

#endif
