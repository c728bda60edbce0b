
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_CONF_PARAM_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_CONF_PARAM_H_INCLUDED_


/*
 * Parameters of directives as tables: a row names the parameter, the field that
 * it sets, how its value is written and within which bounds.  A new parameter
 * is a field and a row.
 */


#include "conf/ngx_http_kvroute_conf.h"


/*
 * Sets a field from what follows the "=", which ends in '\0'.  NGX_DECLINED:
 * the value is wrong; NGX_ABORT: it is out of bounds; NGX_ERROR: it is wrong
 * and that is already logged.
 */
typedef ngx_int_t (*ngx_http_kvroute_conf_param_pt)(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);

struct ngx_http_kvroute_conf_param_s {
    ngx_str_t                       name;   /* with its "=", if it has one */
    ngx_http_kvroute_conf_param_pt  set;
    size_t                          offset; /* of the field */
    size_t                          size;
    int64_t                         min;
    int64_t                         max;    /* 0: no upper bound */
    const char                     *must;   /* "must be ..." its value */
};


#define ngx_http_kvroute_conf_field(type, field)                              \
    offsetof(type, field), sizeof(((type *) 0)->field)

#define ngx_http_kvroute_conf_param_null                                      \
    { ngx_null_string, NULL, 0, 0, 0, 0, NULL }


/*
 * Sets the field of conf that a word of the directive is for.  NGX_DECLINED: no
 * row has such a name; NGX_ERROR: the value is wrong, which is logged.
 */
ngx_int_t ngx_http_kvroute_conf_param(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *params, ngx_str_t *word, void *conf);

/* the same for all words of the directive from first on; all must be known */
ngx_int_t ngx_http_kvroute_conf_param_all(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *params, ngx_uint_t first, void *conf);

/*
 * Whether no parameter is said twice, from a word on: one of the two would
 * count, and nobody would know which.
 */
ngx_int_t ngx_http_kvroute_conf_param_once(ngx_conf_t *cf, ngx_uint_t first);

/* the row that a word is for, or NULL */
const ngx_http_kvroute_conf_param_t *ngx_http_kvroute_conf_param_find(
    const ngx_http_kvroute_conf_param_t *params, ngx_str_t *word);

/*
 * Logs that a word is no parameter, and the parameter that begins like it, or
 * else all of them.  more: a second table, or NULL.
 */
ngx_int_t ngx_http_kvroute_conf_param_unknown(ngx_conf_t *cf, ngx_str_t *word,
    const ngx_http_kvroute_conf_param_t *params,
    const ngx_http_kvroute_conf_param_t *more);


/* setters; bounds are in units of the field */

/* an integer of 2, 4 or 8 bytes: a number, a size, ms, s */
ngx_int_t ngx_http_kvroute_conf_param_number(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
ngx_int_t ngx_http_kvroute_conf_param_size(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
ngx_int_t ngx_http_kvroute_conf_param_msec(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
ngx_int_t ngx_http_kvroute_conf_param_sec(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);

/* a double, written with up to three decimals */
ngx_int_t ngx_http_kvroute_conf_param_decimal(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);

/* an integer: the place of the word among those of must, "off on" */
ngx_int_t ngx_http_kvroute_conf_param_choice(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);

/* an integer: 1, for a word without a value */
ngx_int_t ngx_http_kvroute_conf_param_flag(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);

/* a pointer to a compiled ngx_http_complex_value_t; warns likewise */
ngx_int_t ngx_http_kvroute_conf_param_complex(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);

/* an ngx_str_t: a word of at most max bytes; a path begins with "/" */
ngx_int_t ngx_http_kvroute_conf_param_word(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
ngx_int_t ngx_http_kvroute_conf_param_path(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);


#endif /* _NGX_HTTP_KVROUTE_CONF_PARAM_H_INCLUDED_ */
