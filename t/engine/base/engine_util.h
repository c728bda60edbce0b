/*
 * Helpers of the emulated engine: a growing byte buffer, JSON look-ups,
 * histograms, a random sequence.
 */

#ifndef KVE_ENGINE_UTIL_H
#define KVE_ENGINE_UTIL_H


#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>


#define KVE_HIST_MAX  24


typedef struct {
    char          *data;        /* always ends with a zero byte, once used */
    size_t         len;
    size_t         size;
} kve_buf_t;


typedef struct {
    const double  *le;
    int            n;
    uint64_t       count[KVE_HIST_MAX + 1];
    uint64_t       total;
    double         sum;
} kve_hist_t;


void kve_buf_add(kve_buf_t *b, const void *data, size_t len);
void kve_buf_str(kve_buf_t *b, const char *s);
void kve_buf_printf(kve_buf_t *b, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* appends the inside of a JSON string; kve_buf_quote() with its quotes */
void kve_buf_escape(kve_buf_t *b, const char *data, size_t len);
void kve_buf_quote(kve_buf_t *b, const char *s);

void kve_buf_free(kve_buf_t *b);

/* of duplicate keys the last one counts, as in Python */
cJSON *kve_json_get(const cJSON *o, const char *key);
const char *kve_json_str(const cJSON *o, const char *key);
double kve_json_num(const cJSON *o, const char *key, double missing);
int64_t kve_json_int(const cJSON *o, const char *key, int64_t missing);
int64_t kve_json_whole(double x);
int kve_json_true(const cJSON *o, const char *key, int missing);

double kve_now(void);
double kve_wall(void);
uint64_t kve_mix(uint64_t x);
uint64_t kve_random(uint64_t *state);
double kve_random_unit(uint64_t *state);

void kve_hist_init(kve_hist_t *h, const double *le, int n);
void kve_hist_add(kve_hist_t *h, double x);


#endif
