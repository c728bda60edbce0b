"""Merges the results of the parts of make bench-queue: queue.json.

A figure that was both simulated and emulated is the worse of the two.
"""

import json
import os
import sys


def read(folder, name):
    try:
        with open(os.path.join(folder, name + '.json')) as f:
            return json.load(f)
    except FileNotFoundError:
        print('%s was not measured' % name)
        return None


def main():
    folder, path = sys.argv[1:]
    names = 'simulated', 'emulated', 'cost', 'wire'
    sim, emulated, cost, wire = parts = [read(folder, n) for n in names]

    out = {}
    tails = (sim['tail'] if sim else []) + ([emulated] if emulated else [])

    if tails:
        out['interactive_p99_ratio'] = max(x['interactive_p99_ratio']
                                           for x in tails)
        out['batch_throughput_ratio'] = min(x['batch_throughput_ratio']
                                            for x in tails)
        out['past_aging_bound'] = sum(x['out_of_order'] for x in tails)

    if sim:
        out['below_knee_ttft_ratio'] = sim['below_knee_ttft_ratio']
        out['goodput'] = {'1.5': sim['goodput_1.5'], '3': sim['goodput_3']}
        out['tenant_share_error'] = sim['tenant_share_error']
        out['tenant_p99_ratio'] = sim['tenant_p99_ratio']

    if cost:
        out['cpu_ratio'] = cost['mix']['cpu_ratio']

    if wire:
        for key in 'wake_ms_p50', 'bytes_per_parked', 'lost', 'doubled':
            out[key] = wire[key]

    for key, part in zip(names, parts):
        if part:
            out[key] = part

    with open(path, 'w') as f:
        json.dump(out, f, indent=2)
        f.write('\n')

    print(json.dumps({k: v for k, v in out.items() if k not in names},
                     indent=2))


main()
