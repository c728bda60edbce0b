#!/usr/bin/env python3
"""kvroute and other routers: same bodies, same engines, same run.

Each router has one core to itself; clients and engines have the other one.
Requests per second and core: requests over the CPU seconds of the router's
processes.  Added P99: at one rate for all, 30 % of the slowest router's peak,
less the P99 without a router, in turns.  Its own part: measured by the kernel's
time stamps, without the time in which clients and engines wait for their core.
Memory: private memory after this many distinct prompts.  Writes peers.json.

    peers.py FOLDER-OF-THE-OTHERS [PART...]     parts: speed latency memory
"""

import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'common'))

from chart import bars
from harness import FULL, Nginx, awake, load, pin, save, upstream
from rig import (RESULTS, Process, cpu, free_ports, listening, median, memory,
                 wait)

# QUICK=1 only checks that everything works

QUICK = os.environ.get('QUICK') == '1'

# ALONE=1 runs kvroute only

ALONE = os.environ.get('ALONE') == '1'

ROUNDS = 9 if FULL else 1 if QUICK else 5
SIZES = [('32k', 32768, 400), ('220k', 225280, 80), ('256k', 262144, 80)]
PROMPTS = 1000000 if FULL else 1000 if QUICK else 20000

# requests at the fixed rate: 20 of them are above the P99 of a turn

TURNS = 9 if FULL else 1 if QUICK else 5
RATED = 200 if QUICK else 2000

CORE = pin()

LLM_D = {'rps': 129, 'prompt': '220k', 'source': 'its own report; other '
         'hardware, and limited by one picker, not by a core'}


class Router(Process):
    """Another router: started by a command, on its own port."""

    def __init__(self, args, port):
        self.log = tempfile.TemporaryFile()
        self.port = port
        super().__init__(CORE + args, stdout=self.log, stderr=self.log)
        wait(lambda: listening(port), 60, self)


def haproxy(folder, engines):
    port = free_ports(1)
    conf = os.path.join(folder, 'haproxy', 'bench.cfg')

    with open(conf, 'w') as f:
        f.write('global\n nbthread 1\n tune.bufsize 4194304\n'
                ' tune.maxrewrite 1024\n'
                'defaults\n mode http\n option http-buffer-request\n'
                ' option http-keep-alive\n http-reuse always\n'
                ' timeout connect 5s\n timeout client 60s\n'
                ' timeout server 60s\n timeout http-request 60s\n'
                'frontend f\n bind 127.0.0.1:%d\n default_backend b\n'
                'backend b\n balance hash req.body\n hash-type consistent\n'
                % port)
        for i, p in enumerate(engines):
            f.write(' server s%d 127.0.0.1:%d\n' % (i, p))

    lib = os.path.join(folder, 'haproxy', 'usr/lib/x86_64-linux-gnu')
    os.environ['LD_LIBRARY_PATH'] = lib
    try:
        return Router([os.path.join(folder, 'haproxy/usr/sbin/haproxy'),
                       '-db', '-f', conf], port)
    finally:
        del os.environ['LD_LIBRARY_PATH']


def rust(name, command, extra):
    def begin(folder, engines):
        port = free_ports(2)
        metrics = port + 1
        urls = ['http://127.0.0.1:%d' % p for p in engines]
        r = Router([os.path.join(folder, name, 'bin', command[0])]
                   + command[1:] + ['--worker-urls'] + urls
                   + ['--host', '127.0.0.1', '--port', str(port),
                      '--policy', 'cache_aware',
                      '--prometheus-port', str(metrics)] + extra, port)

        # the port is open before the router has found its engines healthy

        wait(lambda: load(port=port, requests=4, size=2048)['errors'] == 0,
             60, r)
        return r

    return begin


OTHERS = [
    ('smg', rust('smg', ['smg', 'launch'], ['--log-level', 'warn'])),
    ('vllm', rust('vllm', ['vllm-router'], ['--log-level', 'warning'])),
    ('haproxy', haproxy),
]


def start_all(folder, engines):
    found = {'kvroute': Nginx(engines, False), 'nginx': Nginx(engines, True)}

    for name, begin in [] if ALONE else OTHERS:
        try:
            found[name] = begin(folder, engines)
        except (OSError, RuntimeError, SystemExit) as e:
            print('%s: not measured: %s' % (name, e))

    return found


def speed(found, results):
    """Measures the cost of a request by size, and the router's peak."""
    peak = {name: 0 for name in found}
    first = 1 << 40

    for size, n_bytes, n in SIZES:
        got = {name: [] for name in found}

        for i in range(ROUNDS + 1):
            for name, r in found.items():
                before = cpu(r.pid)
                out = load(port=r.port, size=n_bytes, requests=n, conns=8,
                           unique=1, first=first + i * n)
                spent = cpu(r.pid) - before

                if out['errors']:
                    print('%s: %d errors at %s' % (name, out['errors'], size))

                if i:
                    got[name].append(spent / n)

                if size == '32k':
                    peak[name] = max(peak[name], n / out['seconds'])

        for name, v in got.items():
            results[name].setdefault('rps_per_core', {})[size] = 1 / median(v)
            results[name].setdefault('us', {})[size] = median(v) * 1e6

        # bodies of another size would begin alike: restart

        first += (ROUNDS + 1) * n

    results['rate'] = 0.3 * min(peak.values())

    sizes = [s for s, n_bytes, n in SIZES]

    print('%-10s' % '' + ''.join('%14s' % ('rps/core ' + s) for s in sizes)
          + '%14s' % 'us at 32k')

    for name in found:
        x = results[name]
        print('%-10s' % name
              + ''.join('%14.0f' % x['rps_per_core'][s] for s in sizes)
              + '%14.1f' % x['us']['32k'])

    print('llm-d (%s): %d requests/s with prompts of 220 KB; kvroute %.0f '
          'times that a core' % (LLM_D['source'], LLM_D['rps'],
                                 results['kvroute']['rps_per_core']['220k']
                                 / LLM_D['rps']))
    results['llm-d'] = LLM_D

    bars(os.path.join(RESULTS, 'peers.svg'),
         'Requests over CPU seconds of the router', 'requests/s a core',
         list(found), [(s, [results[name]['rps_per_core'][s]
                            for name in found]) for s in sizes])


def latency(found, results):
    """Measures the latency at a rate that all can serve, less that of no
    router."""
    keys = {'added_p50_ms': 'p50_ms', 'added_p99_ms': 'p99_ms',
            'router_p50_ms': 'between_p50_ms',
            'router_p99_ms': 'between_p99_ms'}
    got = {name: {k: [] for k in keys} for name in found}
    spinning = awake()

    for i in range(TURNS):
        kw = {'size': 32768, 'requests': RATED, 'conns': 32, 'unique': 1,
              'stamps': 1, 'rate': results['rate']}
        direct = load(port=results['engine'], **kw)

        # each router is first, and last, equally often

        turn = list(found.items())
        turn = turn[i % len(turn):] + turn[:i % len(turn)]

        for name, r in turn:
            out = load(port=r.port, first=(1 << 41) + i * RATED, **kw)

            if out['errors'] or out['stamped'] != RATED:
                print('%s: %d errors, %d of %d stamped'
                      % (name, out['errors'], out['stamped'], RATED))

            for k, v in keys.items():
                got[name][k].append(out[v] - direct[v])

    for p in spinning:
        p.stop()

    print('added at %.0f requests/s of 32 KB, ms' % results['rate'])
    print('%-10s%10s%10s   the router\'s own%10s%10s'
          % ('', 'P50', 'P99', 'P50', 'P99'))

    for name in found:
        for k in keys:
            results[name][k] = median(got[name][k])

        print('%-10s%10.3f%10.3f%28.3f%10.3f'
              % (name, *(results[name][k] for k in keys)))


def grown(found, results):
    """Measures private memory after many distinct prompts."""
    print('memory, MB')

    for name, r in found.items():
        before = memory(r.pid)
        n = PROMPTS * (10 if FULL and name == 'kvroute' else 1)
        load(port=r.port, size=2048, requests=n, conns=16, unique=1,
             first=1 << 42)
        results[name]['memory_mb'] = memory(r.pid) / 1e6
        results[name]['memory_added_mb'] = (memory(r.pid) - before) / 1e6
        results[name]['memory_prompts'] = n
        print('%-10s%14.1f   grown%9.1f in %d prompts'
              % (name, results[name]['memory_mb'],
                 results[name]['memory_added_mb'], n), flush=True)


PARTS = {'speed': speed, 'latency': latency, 'memory': grown}


def main():
    engines = upstream(4, stamps=True)
    found = start_all(os.path.abspath(sys.argv[1]), engines)
    results = {name: {} for name in found}

    results['engine'] = engines[0]
    results['rate'] = 600

    for name in sys.argv[2:] or PARTS:
        PARTS[name](found, results)

    del results['engine']

    save('peers-quick.json' if QUICK else
         'peers-part.json' if sys.argv[2:] else 'peers.json', results)


main()
