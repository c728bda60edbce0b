#ifndef KVS_CALIBRATE_H
#define KVS_CALIBRATE_H


#include "bench/sim/contest/contest.h"


/* finds the knees and prints them for knees.inc */
void kvs_calibrate(const kvs_options_t *o);

/*
 * returns the seconds of CPU for a million requests of 2,000 tokens, 8
 * replicas
 */
double kvs_cpu(const kvs_options_t *o);


#endif
