
/*
 * Copyright (C) kvroute contributors
 */


#ifndef _KVR_METRICS_TEXT_H_INCLUDED_
#define _KVR_METRICS_TEXT_H_INCLUDED_


/* pieces of the text of metrics: labels and numbers */


#include "core/engine/kvr_metrics.h"


/* the value of a label, as it is written, or NULL */
const char *kvr_metrics_text_label(const char *labels, const char *name,
    size_t *len);

/* the same as a number; 0 if there is none */
double kvr_metrics_text_label_number(const char *labels, const char *name);

/* a number that counts something, neither negative nor endless; 0: is none */
int kvr_metrics_text_number(const char *p, double *value);


#endif /* _KVR_METRICS_TEXT_H_INCLUDED_ */
