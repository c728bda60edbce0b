#include "bench/model/transfer.h"


/* bytes; less than this is 0, because of rounding */
#define KVS_TRANSFER_REST  1.0


static int
kvs_network_flows(const kvs_network_t *net, const kvs_transfer_t *t)
{
    return t->begin <= net->now;
}


/* returns the rate of a running transfer, bytes/s */
static double
kvs_network_rate(const kvs_network_t *net, const kvs_transfer_t *t)
{
    return net->bandwidth / kvr_max(net->flows[t->from], net->flows[t->to]);
}


static void
kvs_network_share(kvs_network_t *net)
{
    uint32_t               i;
    const kvs_transfer_t  *t;

    memset(net->flows, 0, sizeof(net->flows));

    for (i = 0; i < net->n; i++) {
        t = &net->transfer[i];

        if (kvs_network_flows(net, t)) {
            net->flows[t->from]++;
            net->flows[t->to]++;
        }
    }
}


void
kvs_network_init(kvs_network_t *net, double setup, double bandwidth)
{
    net->setup = setup;
    net->bandwidth = bandwidth;
    net->now = 0;
    net->n = 0;
}


void
kvs_network_begin(kvs_network_t *net, uint32_t from, uint32_t to, double bytes,
    void *data, double now)
{
    kvs_transfer_t  *t;

    if (net->n == KVS_TRANSFERS) {
        abort();
    }

    t = &net->transfer[net->n++];

    t->from = from;
    t->to = to;
    t->begin = now + net->setup;
    t->left = bytes;
    t->data = data;
}


double
kvs_network_next(kvs_network_t *net)
{
    double                 next, end;
    uint32_t               i;
    const kvs_transfer_t  *t;

    kvs_network_share(net);

    next = INFINITY;

    for (i = 0; i < net->n; i++) {
        t = &net->transfer[i];

        end = t->begin;

        if (kvs_network_flows(net, t)) {
            end = net->now + kvr_max(t->left, 0) / kvs_network_rate(net, t);
        }

        next = kvr_min(next, end);
    }

    return next;
}


void *
kvs_network_advance(kvs_network_t *net, double now)
{
    void            *data;
    uint32_t         i, over;
    kvs_transfer_t  *t;

    kvs_network_share(net);

    over = net->n;

    for (i = 0; i < net->n; i++) {
        t = &net->transfer[i];

        if (!kvs_network_flows(net, t)) {
            continue;
        }

        t->left -= kvs_network_rate(net, t) * (now - net->now);

        if (t->left < KVS_TRANSFER_REST) {
            over = i;
        }
    }

    net->now = now;

    if (over == net->n) {
        return NULL;
    }

    data = net->transfer[over].data;
    net->transfer[over] = net->transfer[--net->n];

    return data;
}
