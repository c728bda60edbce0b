#ifndef KVS_CALIBRATE_H
#define KVS_CALIBRATE_H


#include "bench/sim/contest/contest.h"


/* finds the knees, and prints them as knees.inc has them */
void kvs_calibrate(const kvs_options_t *o);

/* a million requests of 2,000 tokens on 8 replicas: seconds of CPU */
double kvs_cpu(const kvs_options_t *o);


#endif
