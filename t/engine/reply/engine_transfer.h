/*
 * Prefill and decode on different replicas, as in vLLM's NixlConnector.
 *
 * A request of one token with do_remote_decode is answered with a descriptor.
 * A request with do_remote_prefill has the prompt of its descriptor, once, at
 * one replica, until the descriptor's lease ends.  With a wrong one, a real
 * engine would answer with another request's text; this one begins such an
 * answer with CORRUPT, and counts it.
 */

#ifndef KVE_ENGINE_TRANSFER_H
#define KVE_ENGINE_TRANSFER_H


#include "reply/engine_request.h"


/*
 * A request that names a source fetches from the replica of this process that
 * has the index in the last number of the address, from 127.0.0.1 on.
 */

/* the message of an error with 400, or NULL: it can start */
const char *kve_transfer_start(kve_job_t *job);

/*
 * Returns the s until a transfer ends, or 0: for the tokens that this replica
 * has not cached, by --kv-bandwidth.  Needs initialized sequences.
 */
double kve_transfer_wait(kve_job_t *job);

/* begins the answer with CORRUPT, if the transfer was wrong */
void kve_transfer_spoil(kve_sub_t *sub);

/* adds the descriptor to a complete answer */
void kve_transfer_reply(kve_job_t *job, kve_buf_t *b);


#endif
