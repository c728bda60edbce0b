#!/usr/bin/env python3
"""kvroute beside other routers: same bodies, same engines, same run.

Requests per second and core are requests over the CPU seconds of the router's
processes.  The added P99 is that at one fixed rate, 30 % of the slowest
router's peak, less that without any router.  Memory is what is private after
so many distinct prompts.  Writes peers.json.

    peers.py FOLDER-OF-THE-OTHERS
"""

import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'common'))

from chart import bars
from harness import (BUILD, FULL, Nginx, cpu, load, median, memory, ports, save,
                     start, stop, upstream, wait_port)

# QUICK=1 only shows that all of it works

QUICK = os.environ.get('QUICK') == '1'

ROUNDS = 7 if FULL else 1 if QUICK else 3
SIZES = [('32k', 32768, 400), ('220k', 225280, 80), ('256k', 262144, 80)]
PROMPTS = 1000000 if FULL else 1000 if QUICK else 20000

LLM_D = {'rps': 129, 'prompt': '220k', 'source': 'its own report; other '
         'hardware, and limited by one picker, not by a core'}


class Router:
    """Somebody else's: started by a command, on a port of its own."""

    def __init__(self, args, port):
        self.log = tempfile.TemporaryFile()
        self.port = port
        self.process = start(args, stdout=self.log, stderr=self.log)
        wait_port(port, 60, self.process)
        self.pid = self.process.pid

    def stop(self):
        stop(self.process)


def haproxy(folder, engines):
    port = ports(1)[0]
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
        port, metrics = ports(2)
        urls = ['http://127.0.0.1:%d' % p for p in engines]
        r = Router([os.path.join(folder, name, 'bin', command[0])]
                   + command[1:] + ['--worker-urls'] + urls
                   + ['--host', '127.0.0.1', '--port', str(port),
                      '--policy', 'cache_aware',
                      '--prometheus-port', str(metrics)] + extra, port)

        # it listens before it has found its engines healthy

        end = time.time() + 60
        while time.time() < end:
            try:
                if load(port=port, requests=4, size=2048)['errors'] == 0:
                    return r
            except subprocess.CalledProcessError:
                pass
            time.sleep(0.5)
        raise RuntimeError('it does not answer')

    return begin


OTHERS = [
    ('sglang', rust('sglang', ['sglang-router', 'launch'],
                    ['--log-level', 'warn'])),
    ('vllm', rust('vllm', ['vllm-router'], ['--log-level', 'warning'])),
    ('haproxy', haproxy),
]


def start_all(folder, engines):
    found = {'kvroute': Nginx(engines, False), 'nginx': Nginx(engines, True)}

    for name, begin in OTHERS:
        try:
            found[name] = begin(folder, engines)
        except (OSError, RuntimeError) as e:
            print('%s: not measured: %s' % (name, e))

    return found


def main():
    folder = os.path.abspath(sys.argv[1])
    engines = upstream(4)
    found = start_all(folder, engines)
    results = {name: {'rps_per_core': {}, 'us': {}} for name in found}
    peak = {name: 0 for name in found}
    first = 1 << 40

    for size, n_bytes, n in SIZES:
        got = {name: [] for name in found}

        for i in range(ROUNDS + 1):
            for name, r in found.items():
                before = cpu(r.pid)
                out = load(port=r.port, size=n_bytes, requests=n, conns=8,
                           unique=1, first=first + (i % 2) * n)
                spent = cpu(r.pid) - before

                if out['errors']:
                    print('%s: %d errors at %s' % (name, out['errors'], size))

                if i:
                    got[name].append(spent / n)

                if size == '32k':
                    peak[name] = max(peak[name], n / out['seconds'])

        for name, v in got.items():
            results[name]['rps_per_core'][size] = 1 / median(v)
            results[name]['us'][size] = median(v) * 1e6

        first += 2 * n

    rate = 0.3 * min(peak.values())
    results['rate'] = rate

    direct = [load(port=engines[0], size=32768, requests=300, conns=32,
                   unique=1, rate=rate)['p99_ms'] for i in range(ROUNDS)]

    for name, r in found.items():
        out = [load(port=r.port, size=32768, requests=300, conns=32,
                    unique=1, first=first + i * 300, rate=rate)
               for i in range(ROUNDS)]
        results[name]['added_p99_ms'] = (median([o['p99_ms'] for o in out])
                                         - median(direct))
        results[name]['p50_ms'] = median([o['p50_ms'] for o in out])

    for name, r in found.items():
        before = memory(r.pid)
        load(port=r.port, size=2048, requests=PROMPTS, conns=16, unique=1,
             first=first + 100000)
        results[name]['memory_mb'] = memory(r.pid) / 1e6
        results[name]['memory_added_mb'] = (memory(r.pid) - before) / 1e6

    print('%-10s' % '' + ''.join('%14s' % ('rps/core ' + s)
                                 for s, n_bytes, n in SIZES)
          + '%14s%14s%14s%14s' % ('us at 32k', 'added P99 ms', 'MB',
                                  'MB grown'))

    for name in found:
        x = results[name]
        print('%-10s' % name
              + ''.join('%14.0f' % x['rps_per_core'][s]
                        for s, n_bytes, n in SIZES)
              + '%14.1f%14.2f%14.1f%14.1f' % (x['us']['32k'],
                                              x['added_p99_ms'],
                                              x['memory_mb'],
                                              x['memory_added_mb']))

    print('P99 at %.0f requests/s of 32 KB, memory after %d prompts'
          % (rate, PROMPTS))
    print('llm-d (%s): %d requests/s with prompts of 220 KB; kvroute %.0f '
          'times that a core' % (LLM_D['source'], LLM_D['rps'],
                                 results['kvroute']['rps_per_core']['220k']
                                 / LLM_D['rps']))

    sizes = [s for s, n_bytes, n in SIZES]

    bars(os.path.join(BUILD, 'bench', 'peers.svg'),
         'Requests over CPU seconds of the router', 'requests/s a core',
         list(found), [(s, [results[name]['rps_per_core'][s]
                            for name in found]) for s in sizes])

    results['llm-d'] = LLM_D
    save('peers-quick.json' if QUICK else 'peers.json', results)


main()
