
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _NGX_HTTP_KVROUTE_CONF_H_INCLUDED_
#define _NGX_HTTP_KVROUTE_CONF_H_INCLUDED_


/*
 * Directives.  Each has a function that nginx calls with the words of the
 * directive; _conf_param has what several directives share.
 *
 *     _conf_zone       kvroute_zone
 *     _conf_key          its key_file=
 *     _conf_attach     kvroute, _shadow, _upstream: getting into upstreams
 *     _conf_upstream     their parameters, kvroute_ranks
 *     _conf_location   kvroute_policy
 *     _conf_policy       a policy, as in it and in kvroute
 *     _conf_queue      kvroute_queue, kvroute_request
 *     _conf_probe      kvroute_probe, kvroute_health, kvroute_engine
 *     _conf_old        directives and parameters of before
 *     _conf_check      warns of directives without effect
 *     _conf_eject      kvroute_eject
 */


#include "ngx_http_kvroute.h"


/* a parameter, as a row of a table: see _conf_param */
typedef struct ngx_http_kvroute_conf_param_s  ngx_http_kvroute_conf_param_t;


/* a "kvroute_upstream": its words apply to each upstream that matches */
typedef struct {
    ngx_str_t                    name;
#if (NGX_PCRE)
    ngx_regex_t                 *regex;     /* NULL: equal to the name */
#endif
    ngx_array_t                 *words;     /* words of the directive */
    ngx_uint_t                   found;
    u_char                      *file;
    ngx_uint_t                   line;
} ngx_http_kvroute_conf_named_t;


char *ngx_http_kvroute_conf_zone(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* Returns the zone of a name, or NULL. */
ngx_http_kvroute_zone_t *ngx_http_kvroute_conf_zone_find(ngx_conf_t *cf,
    ngx_str_t *name);

/* Sets a pointer to the key that a file has. */
ngx_int_t ngx_http_kvroute_conf_key(ngx_conf_t *cf,
    const ngx_http_kvroute_conf_param_t *param, ngx_str_t *value, void *field);

/*
 * Reads a file that only its owner may read, at most max bytes, to text->data.
 * name: the parameter that names the file.
 */
ngx_int_t ngx_http_kvroute_conf_key_read(ngx_conf_t *cf, const char *name,
    ngx_str_t *file, ngx_str_t *text, size_t max);

/* Sets kscf from the words of the directive, starting at first. */
ngx_int_t ngx_http_kvroute_conf_upstream_params(ngx_conf_t *cf,
    ngx_http_kvroute_srv_conf_t *kscf, ngx_uint_t first);

char *ngx_http_kvroute_conf_upstream_ranks(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* cmd->offset: 1 for a shadow, which does not replace the method */
char *ngx_http_kvroute_conf_attach(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_kvroute_conf_attach_named(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
ngx_int_t ngx_http_kvroute_conf_attach_init(ngx_conf_t *cf);
ngx_int_t ngx_http_kvroute_conf_attach_check(ngx_conf_t *cf);

/* Warns of a directive of an upstream without "kvroute". */
void ngx_http_kvroute_conf_attach_idle(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf, const char *directive);

/* Returns the parameter of "kvroute" that a word is for, policies excepted. */
const ngx_http_kvroute_conf_param_t *ngx_http_kvroute_conf_upstream_param(
    ngx_str_t *word);

char *ngx_http_kvroute_conf_location(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

ngx_int_t ngx_http_kvroute_conf_policy_name(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value);
ngx_int_t ngx_http_kvroute_conf_policy_param(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy, ngx_str_t *value);

/* Returns the parameters of a policy, for an ngx_http_kvroute_policy_t. */
const ngx_http_kvroute_conf_param_t *ngx_http_kvroute_conf_policy_rows(
    kvr_policy_e policy);

ngx_int_t ngx_http_kvroute_conf_policy_check(ngx_conf_t *cf,
    ngx_http_kvroute_policy_t *policy);

char *ngx_http_kvroute_conf_queue(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
void ngx_http_kvroute_conf_queue_check(ngx_conf_t *cf,
    ngx_http_kvroute_srv_conf_t *kscf);

char *ngx_http_kvroute_conf_request(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* Returns the class of a name or a number, starting at 0; or NGX_ERROR. */
ngx_int_t ngx_http_kvroute_conf_queue_class(ngx_str_t *value);

char *ngx_http_kvroute_conf_probe(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_kvroute_conf_probe_health(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);
char *ngx_http_kvroute_conf_probe_engine(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/*
 * Creates a TLS context for the module's own connections.  trusted: a file of
 * certificates, or empty.
 */
ngx_int_t ngx_http_kvroute_conf_probe_ssl(ngx_conf_t *cf, ngx_str_t *trusted,
    void **ssl);

/* Refuses a directive of before, and says what to write instead. */
char *ngx_http_kvroute_conf_old(ngx_conf_t *cf, ngx_command_t *cmd, void *conf);

#define ngx_http_kvroute_conf_removed(name)                                       \
    { ngx_string(name),                                                       \
      NGX_HTTP_MAIN_CONF|NGX_HTTP_SRV_CONF|NGX_HTTP_LOC_CONF                  \
      |NGX_HTTP_LIF_CONF|NGX_HTTP_UPS_CONF|NGX_CONF_ANY,                      \
      ngx_http_kvroute_conf_old, 0, 0, NULL }

/*
 * Returns what to write instead of a parameter of before of the directive that
 * is read, or NULL.
 */
const char *ngx_http_kvroute_conf_old_param(ngx_conf_t *cf, ngx_str_t *word);

/* Warns of directives of a location that its upstream does not use. */
void ngx_http_kvroute_conf_check_location(ngx_conf_t *cf,
    ngx_http_kvroute_loc_conf_t *klcf);

/* Warns of a directive, or a parameter, of an upstream. */
void ngx_http_kvroute_conf_check_warn(ngx_conf_t *cf,
    ngx_http_upstream_srv_conf_t *uscf, const char *directive, const char *fmt,
    ...);

/*
 * Warns of one of them; directive: as in the message; queue: it needs a queue.
 * An extension calls it before the merge.
 */
void ngx_http_kvroute_conf_check_used(ngx_conf_t *cf, const char *directive,
    ngx_uint_t queue);

/*
 * Returns how a location passes requests to a literal upstream with "kvroute",
 * or NULL.  A module behind nginx's own calls it.
 */
ngx_http_upstream_conf_t *ngx_http_kvroute_conf_check_routed(ngx_conf_t *cf);

/* Warns of a location whose prompts cannot be read, or of its protocol. */
char *ngx_http_kvroute_conf_check_pass(ngx_conf_t *cf, void *parent,
    void *child);


/* Warns of zones that no upstream uses. */
void ngx_http_kvroute_conf_check_zones(ngx_conf_t *cf,
    ngx_http_kvroute_main_conf_t *kmcf);

/*
 * Warns of queues that are unused, and of ranks and capacities that disagree.
 */
void ngx_http_kvroute_conf_check_upstreams(ngx_conf_t *cf,
    ngx_http_kvroute_main_conf_t *kmcf);

/*
 * Returns a server that is in both upstreams, or NULL.  Only names with a
 * single address are compared.
 */
ngx_str_t *ngx_http_kvroute_conf_check_both(ngx_http_upstream_srv_conf_t *one,
    ngx_http_upstream_srv_conf_t *other);

/*
 * _param: sets a complex value; warns of a word that looks like the name of a
 * variable without "$"
 */
char *ngx_http_kvroute_conf_param_slot(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);

/* Sets the defaults, also for upstreams without the directive. */
void ngx_http_kvroute_conf_eject_init(kvr_outlier_conf_t *eject);
char *ngx_http_kvroute_conf_eject(ngx_conf_t *cf, ngx_command_t *cmd,
    void *conf);


#endif /* _NGX_HTTP_KVROUTE_CONF_H_INCLUDED_ */
