"""The queue through nginx: 10,000 requests that wait in two workers.

What each of them takes beyond nginx's own, how soon room made in one worker
lets one in that waits in the other; and whether any is lost or served twice
while clients leave, nginx is reloaded and a worker is killed.

Clients are sockets that are written to and read in the end, so that they take
no time while something is measured; the peer is a process of its own.
"""

import argparse
import json
import os
import random
import resource
import selectors
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                '../common'))

from places import MODULE, NGINX  # noqa: E402
from ports import free_ports  # noqa: E402
from serve import listen, requests  # noqa: E402

CONF = """
load_module {module};
{user}
worker_processes 2;
worker_rlimit_nofile {files};
pid {dir}/nginx.pid;
error_log {dir}/error.log warn;
events {{ worker_connections {connections}; }}
http {{
    client_body_temp_path {dir}/b; proxy_temp_path {dir}/p;
    fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u;
    scgi_temp_path {dir}/s;
    client_header_timeout 600s; client_body_timeout 600s;
    proxy_read_timeout 600s;
    keepalive_requests 1000000;
    log_format wake "$pid $msec $upstream_response_time $kvroute_queue_status";
    access_log off;
    kvroute_zone zone=z:4m;
    limit_req_zone $server_port zone=r:1m rate=1r/m;
    upstream held {{
        zone held 64k;
        kvroute kv_cache zone=z;
        kvroute_queue max=100000 timeout=600s;
        server 127.0.0.1:{peer} max_conns={conns} max_fails=0;
    }}
    upstream one {{
        zone one 64k;
        kvroute kv_cache zone=z;
        kvroute_queue max=100000 timeout=600s;
        server 127.0.0.1:{peer} max_conns=1 max_fails=0;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=16384 reuseport;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        location /held/ {{ proxy_pass http://held; }}
        location /one/ {{
            access_log {dir}/wake.log wake;
            proxy_pass http://one;
        }}
        location /plain/ {{
            limit_req zone=r burst=100000;
            limit_req_log_level notice;
            proxy_pass http://127.0.0.1:{peer};
        }}
        location /kvroute/ {{ kvroute_status; }}
    }}
}}
"""


def chat(n, text='hello'):
    return json.dumps({'model': 'm', 'messages': [
        {'role': 'user', 'content': '%d %s' % (n, text)}]}).encode()


class Peer:
    """Answers at once, or when it is told to; knows who came how often."""

    def __init__(self, port):
        self.port = port
        self.near, far = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            self.near.close()
            try:
                self.loop(far)
            finally:
                os._exit(0)
        far.close()
        self.say('ready')

    def say(self, word):
        """close, open: the gate; twice: how many came more than once"""
        self.near.sendall(word.encode() + b'\n')
        return int(self.near.recv(64))

    def stop(self):
        self.near.close()
        os.waitpid(self.pid, 0)

    def loop(self, far):
        sel = selectors.DefaultSelector()
        seen, held = {}, []
        shut = False

        for host in '127.0.0.1', '127.0.0.2':
            listen(sel, host, self.port, 4096)
        sel.register(far, selectors.EVENT_READ, 'control')

        def answer(c):
            try:
                c.send(b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
            except OSError:
                pass

        for c, head, _ in requests(sel):
            if head is None:
                word = far.recv(64).strip().decode()
                if not word:
                    return
                if word == 'close':
                    shut, seen = True, {}
                if word == 'open':
                    shut = False
                    for h in held:
                        answer(h)
                    held = []
                far.sendall(b'%d' % sum(n > 1 for n in seen.values()))
                continue

            path = head.split(b' ', 2)[1]
            seen[path] = seen.get(path, 0) + 1
            if shut:
                held.append(c)
            else:
                answer(c)


class Nginx:
    def __init__(self, args, top):
        self.port, self.top = args.port, top
        self.log = top + '/wake.log'
        self.master = subprocess.Popen(
            [NGINX, '-p', top, '-c', top + '/nginx.conf',
             '-e', top + '/error.log', '-g', 'daemon off;'],
            stdout=subprocess.DEVNULL)
        until(lambda: self.status() and len(self.workers()) == 2)

    def stop(self):
        self.master.terminate()
        self.master.wait()

    def workers(self):
        path = '/proc/%d/task/%d/children' % (self.master.pid,
                                              self.master.pid)
        with open(path) as f:
            return [int(p) for p in f.read().split()]

    def memory(self):
        """private bytes of the workers"""
        total = 0
        for pid in self.workers():
            with open('/proc/%d/smaps_rollup' % pid) as f:
                for line in f:
                    if line.startswith('Private_Dirty:'):
                        total += int(line.split()[1]) * 1024
        return total

    def files(self):
        return sum(len(os.listdir('/proc/%d/fd' % p)) for p in self.workers())

    def status(self):
        try:
            with socket.create_connection(('127.0.0.1', self.port)) as s:
                s.sendall(b'GET /kvroute/json HTTP/1.0\r\n\r\n')
                data = b''
                while True:
                    more = s.recv(1 << 20)
                    if not more:
                        break
                    data += more
            return json.loads(data.split(b'\r\n\r\n', 1)[1])
        except (OSError, ValueError, IndexError):
            return None

    def parked(self, upstream):
        s = self.status()
        return s['upstreams'][upstream]['queue']['size'] if s else -1

    def idle(self, upstream):
        s = self.status()
        if not s:
            return False
        u = s['upstreams'][upstream]
        return u['queue']['size'] == 0 and u['peers'][0]['active'] == 0

    def post(self, path, body):
        """a connection with a request on it"""
        s = socket.create_connection(('127.0.0.1', self.port))
        self.send(s, path, body)
        return s

    @staticmethod
    def send(s, path, body):
        s.sendall(b'POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: '
                  b'application/json\r\nContent-Length: %d\r\n\r\n'
                  % (path.encode(), len(body)) + body)


def until(fn, timeout=180):
    end = time.monotonic() + timeout
    while not fn():
        if time.monotonic() > end:
            raise RuntimeError('waited in vain')
        time.sleep(0.05)


def answer(s):
    """the status of a response, 0: there is none"""
    data = b''
    try:
        while b'\r\n\r\n' not in data:
            more = s.recv(4096)
            if not more:
                return 0
            data += more
        head, _, body = data.partition(b'\r\n\r\n')
        for line in head.split(b'\r\n'):
            if line.lower().startswith(b'content-length:'):
                while len(body) < int(line.split(b':')[1]):
                    more = s.recv(4096)
                    if not more:
                        return 0
                    body += more
        return int(head.split(b' ', 2)[1])
    except OSError:
        return 0


def settled(fn):
    """a reading, when it does not change any more"""
    last = fn()
    while True:
        time.sleep(0.3)
        now = fn()
        if now == last:
            return now
        last = now


def waiting(nginx, kind, n, conns):
    """n requests that wait, and the private bytes that each takes"""
    before, files = settled(nginx.memory), nginx.files()
    out = [nginx.post('/%s/%d' % (kind, k), chat(k)) for k in range(n)]
    if kind == 'plain':
        until(lambda: nginx.files() >= files + n)
    else:
        until(lambda: nginx.parked(kind) == n - conns)
    return out, (settled(nginx.memory) - before) / n


def accounting(nginx, peer, conns, args):
    """all but the first n were parked; some leave, nginx is reloaded, and one
    of its new workers is killed"""
    res = {}
    n = args.parked
    rnd = random.Random(args.seed)
    gone = {k for k in range(n) if rnd.random() < 0.1}

    for k in gone:
        conns[k].close()

    old = set(nginx.workers())
    nginx.master.send_signal(signal.SIGHUP)
    until(lambda: len(set(nginx.workers()) - old) == 2)

    # the first of them are inside and not parked, and leave room by leaving

    left = n - len(gone) - args.conns
    until(lambda: nginx.parked('held') == left)

    conns += [nginx.post('/held/b%d' % k, chat(k)) for k in range(args.late)]
    until(lambda: nginx.parked('held') == left + args.late)

    os.kill(rnd.choice(sorted(set(nginx.workers()) - old)), signal.SIGKILL)

    begin = time.monotonic()
    peer.say('open')
    ok = cut = lost = 0

    for k, s in enumerate(conns):
        if k in gone:
            continue
        status = answer(s)
        s.close()
        if status == 200:
            ok += 1
        elif status == 0 and k >= n:
            cut += 1            # of the new worker that was killed
        else:
            lost += 1

    res['drained_per_s'] = round(ok / (time.monotonic() - begin))
    until(lambda: nginx.idle('held'))

    res['parked'] = n + args.late
    res['answered'] = ok
    res['left'] = len(gone)
    res['of_killed_worker'] = cut
    res['lost'] = lost
    res['doubled'] = peer.say('twice')
    return res


def wakes(nginx, peer, args):
    """From the access log: when a request with the only place ended, and when
    the next one began, in the same worker or the other."""

    peer.say('close')
    conns = [nginx.post('/one/%d' % k, chat(k)) for k in range(args.parked)]
    until(lambda: nginx.parked('one') == args.parked - 1)
    peer.say('open')

    def lines():
        with open(nginx.log) as f:
            return [x.split() for x in f if x.endswith('\n')]

    until(lambda: len(lines()) >= args.wakes)

    seen = [(float(m) - float(t), float(m), pid)
            for pid, m, t, q in lines() if q in ('passed', 'waited')]

    for s in conns:
        s.close()
    until(lambda: nginx.idle('one'))

    seen.sort()
    gaps = {'same': [], 'other': []}
    for a, b in zip(seen, seen[1:]):
        gaps['same' if a[2] == b[2] else 'other'].append(
            1000 * (b[0] - a[1]))

    res = {'wakes': len(gaps['other'])}
    for kind, name in (('other', 'wake_ms_p50'),
                       ('same', 'wake_ms_p50_same_worker')):
        res[name] = round(statistics.median(gaps[kind]), 3) \
            if gaps[kind] else None
    if gaps['other']:
        res['wake_ms_p99'] = round(
            sorted(gaps['other'])[int(0.99 * (len(gaps['other']) - 1))], 3)
    return res


def run(args, start, peer):
    res, sizes = {}, {}

    # memory: beside limit_req, whose requests wait in nginx's own way

    nginx = start()
    conns, sizes['plain'] = waiting(nginx, 'plain', args.parked, args.conns)
    for s in conns:
        s.close()
    nginx.stop()

    nginx = start()
    peer.say('close')
    conns, sizes['held'] = waiting(nginx, 'held', args.parked, args.conns)

    res['bytes_of_nginx'] = round(sizes['plain'])
    res['bytes_per_parked'] = round(sizes['held'] - sizes['plain'])

    res.update(accounting(nginx, peer, conns, args))
    nginx.stop()

    nginx = start()
    res.update(wakes(nginx, peer, args))
    nginx.stop()

    return res


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--out', required=True)
    p.add_argument('--parked', type=int, default=10000)
    p.add_argument('--late', type=int, default=500)
    p.add_argument('--wakes', type=int, default=1000)
    p.add_argument('--conns', type=int, default=64)
    p.add_argument('--seed', type=int, default=1)
    args = p.parse_args()

    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if files == resource.RLIM_INFINITY:
        files = 1 << 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    if files < args.parked + args.late + 100:
        raise SystemExit('%d descriptors are too few for --parked %d'
                         % (files, args.parked))

    top = tempfile.mkdtemp(prefix='kvroute-queue-')
    os.chmod(top, 0o755)
    args.port = free_ports(2)
    args.peer = args.port + 1

    with open(top + '/nginx.conf', 'w') as f:
        f.write(CONF.format(
            module=MODULE, dir=top, port=args.port,
            peer=args.peer, conns=args.conns, files=files,
            connections=min(files, args.parked + args.late + 1000),
            user='user root;' if os.getuid() == 0 else ''))

    peer = Peer(args.peer)
    started = []

    def start():
        if os.path.exists(top + '/wake.log'):
            os.unlink(top + '/wake.log')
        started.append(Nginx(args, top))
        return started[-1]

    try:
        wire = run(args, start, peer)
    finally:
        for n in started:
            if n.master.poll() is None:
                n.stop()
        peer.stop()
        with open(top + '/error.log') as f:
            bad = [x for x in f if '[alert]' in x or '[crit]' in x]
        for x in bad:
            if 'exited on signal 9' not in x:
                print(x, end='')
        shutil.rmtree(top, ignore_errors=True)

    with open(args.out, 'w') as f:
        json.dump(wire, f, indent=2)
        f.write('\n')

    print('5 %s' % json.dumps(wire))


main()
