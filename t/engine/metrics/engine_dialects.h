/*
 * The metrics of each engine, with its names and labels.
 */

#ifndef KVE_ENGINE_DIALECTS_H
#define KVE_ENGINE_DIALECTS_H


#include "metrics/engine_prom.h"


void kve_metrics_vllm(kve_scrape_t *m);
void kve_metrics_sglang(kve_scrape_t *m);
void kve_metrics_trtllm(kve_scrape_t *m);
void kve_metrics_llamacpp(kve_scrape_t *m);
void kve_metrics_tgi(kve_scrape_t *m);


#endif
