
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _MICRO_CASES_H_INCLUDED_
#define _MICRO_CASES_H_INCLUDED_


#include "core/prompt/kvr_prompt.h"

#include <cjson/cJSON.h>


/* reading of bodies of up to about five megabytes */
void micro_text_conf(kvr_prompt_conf_t *conf);

void micro_text(void);
void micro_shape(void);
void micro_index(void);
void micro_pick(void);
void micro_event(void);

/* these are measured on their own */
void micro_procs(cJSON *results);
void micro_kept(cJSON *results);
void micro_snapshot(cJSON *results);


#endif /* _MICRO_CASES_H_INCLUDED_ */
