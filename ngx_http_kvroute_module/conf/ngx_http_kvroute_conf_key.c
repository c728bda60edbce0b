
/*
 * Copyright (C) kvroute contributors
 */


/*
 * The parameter key_file= of kvroute_zone.
 *
 * nginx reads the file together with its configuration, usually as root, also
 * at a reload; workers need no access to it.  Its content is never logged.
 * White space inside the base64 text is ignored.
 */


#include "conf/ngx_http_kvroute_conf_param.h"


/* base64 of the key, with room for white space */
#define NGX_HTTP_KVROUTE_KEY_FILE  1024

/*
 * Different values among 192 bytes: random bytes have 135 on average, with a
 * standard deviation below 6.  Text, in hex or base64, has at most 64.
 */
#define NGX_HTTP_KVROUTE_KEY_VALUES  96


static ngx_uint_t ngx_http_kvroute_conf_key_weak(const u_char *key);


ngx_int_t
ngx_http_kvroute_conf_key(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field)
{
    uint8_t  **secret = field;

    size_t       i, n;
    u_char       buf[NGX_HTTP_KVROUTE_KEY_FILE];
    u_char       bytes[ngx_base64_decoded_length(NGX_HTTP_KVROUTE_KEY_FILE)];
    ngx_int_t    rc;
    ngx_str_t    text, key;
    const char  *why;

    if (value->len == 0) {
        return NGX_DECLINED;
    }

    text.data = buf;
    key.data = bytes;

    rc = ngx_http_kvroute_conf_key_read(cf, "key_file", value, &text,
                                        sizeof(buf));

    if (rc != NGX_OK) {
        goto done;
    }

    for (i = 0, n = 0; i < text.len; i++) {
        if (ngx_strchr(" \t\r\n", buf[i]) == NULL || buf[i] == '\0') {
            buf[n++] = buf[i];
        }
    }

    text.len = n;
    why = NULL;

    if (n != ngx_base64_encoded_length(KVR_SECRET_LEN)
        || ngx_decode_base64(&key, &text) != NGX_OK
        || key.len != KVR_SECRET_LEN)
    {
        why = "does not have the right number of bytes in base64";

    } else if (ngx_http_kvroute_conf_key_weak(bytes)) {
        why = "is weak, its bytes are not random";
    }

    if (why) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "key_file \"%V\" %s: make it with \"head -c %d "
                           "/dev/urandom | base64\"", value, why,
                           KVR_SECRET_LEN);
        rc = NGX_ERROR;
        goto done;
    }

    *secret = ngx_palloc(cf->pool, KVR_SECRET_LEN);
    if (*secret == NULL) {
        rc = NGX_ERROR;
        goto done;
    }

    ngx_memcpy(*secret, bytes, KVR_SECRET_LEN);

done:

    ngx_explicit_memzero(buf, sizeof(buf));
    ngx_explicit_memzero(bytes, sizeof(bytes));

    return rc;
}


ngx_int_t
ngx_http_kvroute_conf_key_read(ngx_conf_t *cf, const char *name,
    ngx_str_t *file, ngx_str_t *text, size_t max)
{
    ssize_t          n;
    ngx_fd_t         fd;
    ngx_int_t        rc;
    ngx_file_info_t  fi;

    if (ngx_conf_full_name(cf->cycle, file, 1) != NGX_OK) {
        return NGX_ERROR;
    }

    /* a FIFO without a writer must not block nginx */

    fd = ngx_open_file(file->data, NGX_FILE_RDONLY|NGX_FILE_NONBLOCK,
                       NGX_FILE_OPEN, 0);

    if (fd == NGX_INVALID_FILE) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "%s \"%V\": " ngx_open_file_n " failed", name, file);
        return NGX_ERROR;
    }

    rc = NGX_ERROR;

    if (ngx_fd_info(fd, &fi) == NGX_FILE_ERROR) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                           "%s \"%V\": " ngx_fd_info_n " failed", name, file);
        goto done;
    }

    if (!ngx_is_file(&fi)) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "%s \"%V\" is not a regular file", name, file);
        goto done;
    }

    if (ngx_file_access(&fi) & 0007) {
        ngx_conf_log_error(NGX_LOG_EMERG, cf, 0,
                           "%s \"%V\" is open to all users, "
                           "use \"chmod o= %V\"", name, file, file);
        goto done;
    }

    text->len = 0;

    while (text->len < max) {

        n = ngx_read_fd(fd, text->data + text->len, max - text->len);

        if (n == -1) {
            ngx_conf_log_error(NGX_LOG_EMERG, cf, ngx_errno,
                               "%s \"%V\": " ngx_read_fd_n " failed",
                               name, file);
            goto done;
        }

        if (n == 0) {
            break;
        }

        text->len += (size_t) n;
    }

    rc = NGX_OK;

done:

    if (ngx_close_file(fd) == NGX_FILE_ERROR) {
        ngx_conf_log_error(NGX_LOG_ALERT, cf, ngx_errno,
                           ngx_close_file_n " \"%V\" failed", file);
    }

    return rc;
}


/* Tells whether a key has few different values or few different steps. */
static ngx_uint_t
ngx_http_kvroute_conf_key_weak(const u_char *key)
{
    u_char      value[256], step[256];
    ngx_uint_t  i, values, steps;

    ngx_memzero(value, sizeof(value));
    ngx_memzero(step, sizeof(step));

    values = 0;
    steps = 0;

    for (i = 0; i < KVR_SECRET_LEN; i++) {
        values += !value[key[i]];
        value[key[i]] = 1;

        if (i) {
            steps += !step[(u_char) (key[i] - key[i - 1])];
            step[(u_char) (key[i] - key[i - 1])] = 1;
        }
    }

    return values < NGX_HTTP_KVROUTE_KEY_VALUES
           || steps < NGX_HTTP_KVROUTE_KEY_VALUES;
}
