"""What the benches over real sockets share: processes, ports, CPU time."""

import atexit
import json
import os
import random
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from places import BUILD, CONTROL, MODULE, NGINX

BIN = os.path.join(BUILD, 'bench', 'wire')
FULL = os.environ.get('FULL') == '1'

# alike for everything that is measured: without them glibc moves its
# thresholds by what was freed before, and equal runs differ threefold

MALLOC = {'MALLOC_MMAP_THRESHOLD_': '33554432',
          'MALLOC_TRIM_THRESHOLD_': '268435456'}

# thousands of open streams: all that the machine lets us have

resource.setrlimit(resource.RLIMIT_NOFILE,
                   (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)

CORES = sorted(os.sched_getaffinity(0))

started = []


def stop_all():
    for p in reversed(started):
        stop(p)


atexit.register(stop_all)


def stop(p):
    """Asks more than once: nginx may go to sleep just as a signal comes."""
    for i in range(30):
        if p.poll() is not None:
            return
        p.terminate()
        try:
            p.wait(2)
        except subprocess.TimeoutExpired:
            pass

    p.kill()
    p.wait()


def start(args, **kw):
    kw.setdefault('stdout', subprocess.DEVNULL)
    kw.setdefault('stderr', subprocess.DEVNULL)
    env = dict(os.environ, **MALLOC)
    env.update(kw.pop('env', {}))
    p = subprocess.Popen(args, env=env, **kw)
    started.append(p)
    return p


def ports(n):
    """Free ports, below those that the kernel gives to clients."""
    found = []
    rnd = random.Random(os.getpid())

    while len(found) < n:
        port = rnd.randrange(11000, 30000)
        s = socket.socket()
        try:
            s.bind(('127.0.0.1', port))
            if port not in found:
                found.append(port)
        except OSError:
            pass
        s.close()

    return found


def wait_port(port, seconds=60, process=None):
    end = time.time() + seconds

    while time.time() < end:
        if process is not None and process.poll() is not None:
            raise RuntimeError('exited with %s' % process.returncode)
        try:
            socket.create_connection(('127.0.0.1', port), 1).close()
            return
        except OSError:
            time.sleep(0.05)

    raise RuntimeError('nobody listens on %d' % port)


def children(pid):
    try:
        with open('/proc/%d/task/%d/children' % (pid, pid)) as f:
            return [int(c) for c in f.read().split()]
    except OSError:
        return []


def family(pid):
    found = [pid]
    for c in children(pid):
        found += family(c)
    return found


def cpu(pid):
    """CPU seconds of a process and its children, of all their threads."""
    total = 0

    for p in family(pid):
        for tid in os.listdir('/proc/%d/task' % p):
            try:
                with open('/proc/%d/task/%s/schedstat' % (p, tid)) as f:
                    total += int(f.read().split()[0])
            except (OSError, IndexError):
                pass

    return total / 1e9


def memory(pid):
    """Bytes that a process and its children have, without shared memory."""
    total = 0

    for p in family(pid):
        with open('/proc/%d/smaps_rollup' % p) as f:
            for line in f:
                if line.startswith('Pss_Anon:'):
                    total += int(line.split()[1]) * 1024

    return total


def upstream(n, stamps=False):
    found = ports(n)
    start([BIN + '/upstream'] + ['stamps'] * stamps + [str(p) for p in found])
    for p in found:
        wait_port(p)
    return found


def load_start(**kw):
    """Starts the clients."""
    args = [BIN + '/load'] + ['%s=%s' % kv for kv in kw.items()]
    return start(args, stdout=subprocess.PIPE)


def load_end(process):
    """Waits for them; returns what they measured."""
    out = process.communicate()[0]
    started.remove(process)
    if process.returncode:
        raise RuntimeError('the clients have failed')
    return json.loads(out)


def load(**kw):
    return load_end(load_start(**kw))


HOLD = '''
daemon off;
%(main)s
worker_processes %(workers)d;
worker_rlimit_nofile 20000;
error_log %(dir)s/error.log warn;
pid %(dir)s/nginx.pid;
events { worker_connections 19000; }

http {
    %(http)s
    access_log %(log)s;
    client_body_temp_path %(dir)s/body;
    proxy_temp_path %(dir)s/proxy;
    fastcgi_temp_path %(dir)s/f;
    uwsgi_temp_path %(dir)s/u;
    scgi_temp_path %(dir)s/s;
    keepalive_requests 1000000000;
    client_header_buffer_size %(head)s;
    client_max_body_size 64m;
    client_body_buffer_size 4m;

    upstream engines {
        zone engines 256k;
        %(upstream)s
        %(servers)s
        keepalive 64;
    }

    server {
        listen 127.0.0.1:%(port)d reuseport backlog=4096;

        location / {
            proxy_pass http://engines;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering %(buffering)s;
            proxy_read_timeout 1h;
            %(location)s
        }
    }
}
'''


class Nginx:
    """One nginx before the upstreams: plain=True has least_conn only."""

    core = None

    def __init__(self, engines, plain, workers=1, head='1k', log='off',
                 policy='kvroute kv_cache zone=bench', zone='64m',
                 prefix=(), buffering='off', location='', http='',
                 control=None):

        self.port = ports(1)[0]
        self.dir = tempfile.mkdtemp(prefix='kvroute-bench-')
        atexit.register(shutil.rmtree, self.dir, True)

        servers = ''.join('server 127.0.0.1:%d;' % p for p in engines)

        main = [] if plain else ['load_module %s;' % MODULE]

        if control:
            main.append('load_module %s;' % CONTROL)

        if self.core:
            main.append('worker_cpu_affinity %s;'
                        % (self.core if workers == 1 else 'auto'))

        text = HOLD % {
            'main': ' '.join(main),
            'workers': workers,
            'dir': self.dir,
            'log': log,
            'head': head,
            'http': http if plain else
                    'kvroute_zone zone=bench:%s; %s' % (zone, http),
            'upstream': (('least_conn;' if plain else policy + ';')
                         + ('control %s;' % control if control else '')),
            'servers': servers,
            'port': self.port,
            'buffering': buffering,
            'location': location,
        }

        if prefix:
            text = 'master_process off;\n' + text

        conf = self.dir + '/nginx.conf'

        with open(conf, 'w') as f:
            f.write(text)

        self.process = start(list(prefix) + [NGINX, '-p', self.dir,
                                             '-c', conf],
                             stderr=sys.stderr)
        wait_port(self.port, process=self.process)
        self.pid = self.process.pid

    def stop(self):
        stop(self.process)


def pin():
    """A single worker gets a core to itself, all else what remains.  Returns
    what puts other commands on that core."""
    if len(CORES) == 1:
        return []

    os.sched_setaffinity(0, CORES[1:])
    Nginx.core = bin(1 << CORES[0])[2:]

    return ['taskset', '-c', str(CORES[0])]


def awake():
    """Cores that are not halted between two requests, as those of a machine
    that has them to itself are not: what waits then waits for the router."""
    return [start([BIN + '/awake', str(core), str(os.getpid())],
                  stderr=None) for core in CORES]


def median(values):
    v = sorted(values)
    n = len(v)
    return (v[(n - 1) // 2] + v[n // 2]) / 2


def machine():
    with open('/proc/cpuinfo') as f:
        found = re.search(r'model name\s*:\s*(.*)', f.read())
    return '%s, %d cores' % (found[1] if found else os.uname().machine,
                             os.cpu_count())


def save(name, results):
    results['machine'] = machine()
    path = os.path.join(BUILD, 'bench', name)
    with open(path, 'w') as f:
        json.dump(results, f, indent=1)
        f.write('\n')
