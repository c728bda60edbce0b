
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_COUNTER_NAME_H_INCLUDED_
#define _KVR_COUNTER_NAME_H_INCLUDED_


/* What the places of an array are called: for rows of the table. */


#include "core/state/kvr_counter.h"


const char *kvr_counter_name_class(uint32_t place);
const char *kvr_counter_name_reason(uint32_t place);
const char *kvr_counter_name_disaggregated(uint32_t place);
const char *kvr_counter_name_policy(uint32_t place);


#endif /* _KVR_COUNTER_NAME_H_INCLUDED_ */
