
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_METRICS_TEXT_H_INCLUDED_
#define _KVR_METRICS_TEXT_H_INCLUDED_


/* Reads labels and numbers of metrics. */


#include "core/engine/kvr_metrics.h"


/* Returns the value of a label as written, or NULL. */
const char *kvr_metrics_text_label(const char *labels, const char *name,
    size_t *len);

/* Returns the value of a label as a number, or 0. */
double kvr_metrics_text_label_number(const char *labels, const char *name);

/* Reads a number from 0 to 1e18; returns 0 if there is none. */
int kvr_metrics_text_number(const char *p, double *value);


#endif /* _KVR_METRICS_TEXT_H_INCLUDED_ */
