"""The common part of benches over real sockets: bench/wire's clients and
engines, and nginx before them, with and without the module."""

import json
import os
import subprocess

import rig
from places import BUILD, CONTROL, MODULE, modules
from rig import Process, free_ports, listening, servers, wait

BIN = os.path.join(BUILD, 'bench', 'wire')
FULL = os.environ.get('FULL') == '1'

# the same for each measured process: by default glibc changes its thresholds
# after each large free(), and equal runs differ by a factor of three

MALLOC = {'MALLOC_MMAP_THRESHOLD_': '33554432',
          'MALLOC_TRIM_THRESHOLD_': '268435456'}
os.environ.update(MALLOC)

CORES = sorted(os.sched_getaffinity(0))


def upstream(n, stamps=False):
    first = free_ports(n)
    found = list(range(first, first + n))
    Process([BIN + '/upstream'] + ['stamps'] * stamps
            + [str(p) for p in found])
    for p in found:
        wait(lambda: listening(p))
    return found


def load_start(**kw):
    """Starts the clients with these options."""
    return Process([BIN + '/load'] + ['%s=%s' % kv for kv in kw.items()],
                   stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def load_end(clients):
    """Waits for the clients; returns their figures."""
    out = clients.process.communicate()[0]
    clients.stop()
    if clients.process.returncode:
        raise RuntimeError('the clients have failed')
    return json.loads(out)


def load(**kw):
    return load_end(load_start(**kw))


HTTP = '''
    @more@
    client_header_buffer_size @head@;
    client_max_body_size 64m;
    client_body_buffer_size 4m;

    upstream engines {
        zone engines 256k;
        @policy@;
        @servers@
        keepalive 64;
    }

    server {
        listen 127.0.0.1:@port@ reuseport backlog=4096;
        @listen@

        location / {
            proxy_pass http://engines;
            proxy_buffering @buffering@;
            @location@
        }
    }
'''


class Nginx(rig.Nginx):
    """nginx before the upstreams; with plain=True it has least_conn only."""

    core = None

    def __init__(self, engines, plain, workers=1, head='1k', log='off',
                 policy='kvroute kv_cache zone=bench', zone='64m',
                 prefix=(), buffering='off', location='', http='',
                 control=None, listen=''):
        """Listens on a further port ("also"), with parameters after the
        port."""

        load = [] if plain else modules(MODULE)
        main = ''

        if plain:
            policy = 'least_conn'
        else:
            http = 'kvroute_zone zone=bench:%s; %s' % (zone, http)

        if control:
            load.append(CONTROL)
            policy += '; control %s' % control

        if self.core:
            main = ('worker_cpu_affinity %s;'
                    % (self.core if workers == 1 else 'auto'))

        if listen:
            self.also = free_ports(1)
            listen = 'listen 127.0.0.1:%d %s' % (self.also, listen)

        super().__init__(HTTP, load=load, main=main, workers=workers,
                         connections=19000, prefix=prefix, access=log,
                         head=head, policy=policy, servers=servers(engines),
                         buffering=buffering, location=location,
                         more=http, listen=listen)


def pin():
    """Pins a single worker to its own core, and all other processes to the
    rest.  Returns the prefix that pins another command to the worker's core."""
    if len(CORES) == 1:
        return []

    os.sched_setaffinity(0, CORES[1:])
    Nginx.core = bin(1 << CORES[0])[2:]

    return ['taskset', '-c', str(CORES[0])]


def awake():
    """Keeps virtual cores from being halted between two requests: the host takes
    long to wake them, and that would count as the router's delay."""
    return [Process([BIN + '/awake', str(core), str(os.getpid())])
            for core in CORES]


def save(name, results):
    results['machine'] = rig.machine()
    rig.save(os.path.join(rig.RESULTS, name), results)
