
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _MICRO_CASES_H_INCLUDED_
#define _MICRO_CASES_H_INCLUDED_


#include <cjson/cJSON.h>


void micro_text(void);
void micro_index(void);
void micro_pick(void);

/* measured apart from the others */
void micro_procs(cJSON *results);
void micro_kept(cJSON *results);


#endif /* _MICRO_CASES_H_INCLUDED_ */
