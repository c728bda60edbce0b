
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_CONF_PARAM_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_CONF_PARAM_H_INCLUDED_


/*
 * Parameters of directives as tables: a row has the name, the field to set, the
 * type of the value, and its bounds.  A new parameter is a field and a row.
 */


#include "conf/ngx_http_kvroute_conf.h"


/*
 * Sets a field from the text behind the "=", which ends in '\0'.  NGX_DECLINED:
 * invalid value; NGX_ABORT: out of bounds; NGX_ERROR: already logged.
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
    const char                     *must;   /* "must be ...": valid values */
};


#define ngx_http_kvroute_conf_field(type, field)                              \
    offsetof(type, field), sizeof(((type *) 0)->field)

#define ngx_http_kvroute_conf_param_null                                      \
    { ngx_null_string, NULL, 0, 0, 0, 0, NULL }


/*
 * Sets the field that a word is for.  NGX_DECLINED: unknown parameter;
 * NGX_ERROR: invalid value, already logged.
 */
ngx_int_t ngx_http_kvroute_conf_param(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *params, ngx_str_t *word, void *conf);

/* Does the same for all words from first on; an unknown one is an error. */
ngx_int_t ngx_http_kvroute_conf_param_all(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *params, ngx_uint_t first, void *conf);

/* Tells whether a directive is "off"; *rc: what it returns then. */
ngx_uint_t ngx_http_kvroute_conf_param_off(ngx_conf_t *cf, char **rc);

/* Reports parameters that occur twice, from a word on. */
ngx_int_t ngx_http_kvroute_conf_param_once(ngx_conf_t *cf, ngx_uint_t first);

/* Returns the row for a word, or NULL. */
const ngx_http_kvroute_conf_param_t *ngx_http_kvroute_conf_param_find(
    const ngx_http_kvroute_conf_param_t *params, ngx_str_t *word);

/*
 * Logs that a word is no parameter, and the known ones.  more: a second table,
 * or NULL.
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

/* an integer of 4 bytes: a share as in 2% */
ngx_int_t ngx_http_kvroute_conf_param_percent(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);

/* a double with up to three decimals */
ngx_int_t ngx_http_kvroute_conf_param_decimal(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);

/* an integer: the index of the word in must, as in "off on" */
ngx_int_t ngx_http_kvroute_conf_param_choice(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);

/* an integer: 1, for a word without a value */
ngx_int_t ngx_http_kvroute_conf_param_flag(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);

/* tells whether a value is that text */
ngx_uint_t ngx_http_kvroute_conf_param_is(ngx_str_t *value, const char *text);

/* a pointer to a compiled ngx_http_complex_value_t; warns likewise */
ngx_int_t ngx_http_kvroute_conf_param_complex(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);

/* an ngx_str_t: a word of at most max bytes; a path starts with "/" */
ngx_int_t ngx_http_kvroute_conf_param_word(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);
ngx_int_t ngx_http_kvroute_conf_param_path(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);


#endif /* _NGX_HTTP_KVROUTE_CONF_PARAM_H_INCLUDED_ */
