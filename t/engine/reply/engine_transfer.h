/*
 * Prefill and decode on different replicas, as vLLM's NixlConnector has it.
 *
 * A request of one token that says do_remote_decode is answered with a
 * descriptor.  A request that says do_remote_prefill has the prompt that
 * descriptor is of, once, at one replica, and until its lease has ended.  What
 * a real engine does with any other one is to answer with somebody else's
 * text: such an answer begins with CORRUPT, and is counted.
 */

#ifndef KVE_ENGINE_TRANSFER_H
#define KVE_ENGINE_TRANSFER_H


#include "reply/engine_request.h"


/*
 * A request that names a source fetches from the replica of this process whose
 * number is the last one of the address, from 127.0.0.1 on.
 */

/* the message of an error with 400, or NULL: it may start */
const char *kve_transfer_start(kve_job_t *job);

/*
 * s until what comes from elsewhere is here, 0 if it is: tokens that this replica
 * has not cached, by --kv-bandwidth.  Its sequences are initialized.
 */
double kve_transfer_wait(kve_job_t *job);

/* makes what a sequence answers somebody else's text, if it must be */
void kve_transfer_spoil(kve_sub_t *sub);

/* puts the descriptor into an answer that is whole */
void kve_transfer_reply(kve_job_t *job, kve_buf_t *b);


#endif
