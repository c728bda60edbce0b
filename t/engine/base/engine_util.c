#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/engine_util.h"


static void
kve_buf_reserve(kve_buf_t *b, size_t more)
{
    size_t  size;

    if (b->size - b->len > more) {
        return;
    }

    size = b->size ? b->size * 2 : 256;

    while (size - b->len <= more) {
        size *= 2;
    }

    b->data = realloc(b->data, size);
    if (b->data == NULL) {
        abort();
    }

    b->size = size;
}


void
kve_buf_add(kve_buf_t *b, const void *data, size_t len)
{
    kve_buf_reserve(b, len);

    if (len) {
        memcpy(b->data + b->len, data, len);
    }

    b->len += len;
    b->data[b->len] = '\0';
}


void
kve_buf_str(kve_buf_t *b, const char *s)
{
    kve_buf_add(b, s, strlen(s));
}


void
kve_buf_printf(kve_buf_t *b, const char *fmt, ...)
{
    int      n;
    va_list  args;

    kve_buf_reserve(b, 128);

    va_start(args, fmt);
    n = vsnprintf(b->data + b->len, b->size - b->len, fmt, args);
    va_end(args);

    if (n < 0) {
        abort();
    }

    if ((size_t) n >= b->size - b->len) {
        kve_buf_reserve(b, n);

        va_start(args, fmt);
        vsnprintf(b->data + b->len, b->size - b->len, fmt, args);
        va_end(args);
    }

    b->len += n;
}


void
kve_buf_escape(kve_buf_t *b, const char *data, size_t len)
{
    size_t         i, from;
    char           hex[8];
    unsigned char  c;

    for (i = 0, from = 0; i < len; i++) {
        c = data[i];

        if (c >= 0x20 && c != '"' && c != '\\') {
            continue;
        }

        kve_buf_add(b, data + from, i - from);
        from = i + 1;

        switch (c) {

        case '"':
            kve_buf_add(b, "\\\"", 2);
            break;

        case '\\':
            kve_buf_add(b, "\\\\", 2);
            break;

        case '\n':
            kve_buf_add(b, "\\n", 2);
            break;

        case '\t':
            kve_buf_add(b, "\\t", 2);
            break;

        default:
            snprintf(hex, sizeof(hex), "\\u%04x", c);
            kve_buf_add(b, hex, 6);
            break;
        }
    }

    kve_buf_add(b, data + from, len - from);
}


void
kve_buf_quote(kve_buf_t *b, const char *s)
{
    kve_buf_add(b, "\"", 1);
    kve_buf_escape(b, s, strlen(s));
    kve_buf_add(b, "\"", 1);
}


void
kve_buf_free(kve_buf_t *b)
{
    free(b->data);
    memset(b, 0, sizeof(kve_buf_t));
}


cJSON *
kve_json_get(const cJSON *o, const char *key)
{
    cJSON  *i, *found;

    found = NULL;

    if (cJSON_IsObject(o)) {
        cJSON_ArrayForEach(i, o) {
            if (strcmp(i->string, key) == 0) {
                found = i;
            }
        }
    }

    return found;
}


const char *
kve_json_str(const cJSON *o, const char *key)
{
    return cJSON_GetStringValue(kve_json_get(o, key));
}


double
kve_json_num(const cJSON *o, const char *key, double missing)
{
    cJSON  *i;

    i = kve_json_get(o, key);

    return cJSON_IsNumber(i) ? i->valuedouble : missing;
}


/* returns a number, limited to the range */

int64_t
kve_json_whole(double x)
{
    if (x > 1e9) {
        return 1000000000;
    }

    return x > -1e9 ? (int64_t) x : -1000000000;
}


int64_t
kve_json_int(const cJSON *o, const char *key, int64_t missing)
{
    cJSON  *i;

    i = kve_json_get(o, key);

    return cJSON_IsNumber(i) ? kve_json_whole(i->valuedouble) : missing;
}


int
kve_json_true(const cJSON *o, const char *key, int missing)
{
    cJSON  *i;

    i = kve_json_get(o, key);

    return cJSON_IsBool(i) ? cJSON_IsTrue(i) : missing;
}


double
kve_now(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);

    return ts.tv_sec + ts.tv_nsec * 1e-9;
}


double
kve_wall(void)
{
    struct timespec  ts;

    clock_gettime(CLOCK_REALTIME, &ts);

    return ts.tv_sec + ts.tv_nsec * 1e-9;
}


uint64_t
kve_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);

    return x ^ (x >> 31);
}


uint64_t
kve_random(uint64_t *state)
{
    *state += UINT64_C(0x9e3779b97f4a7c15);

    return kve_mix(*state);
}


double
kve_random_unit(uint64_t *state)
{
    return (kve_random(state) >> 11) * (1.0 / 9007199254740992.0);
}


void
kve_hist_init(kve_hist_t *h, const double *le, int n)
{
    memset(h, 0, sizeof(kve_hist_t));
    h->le = le;
    h->n = n;
}


void
kve_hist_add(kve_hist_t *h, double x)
{
    int  i;

    for (i = 0; i < h->n && x > h->le[i]; i++) {
        /* void */
    }

    h->count[i]++;
    h->total++;
    h->sum += x;
}
