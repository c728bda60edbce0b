"""The queue through nginx: 10,000 requests that wait in two workers.

Measures the memory of a waiting request beyond nginx's own, and how soon a
request in one worker is admitted when room is made in the other.  Checks that
no request is lost or served twice while clients leave, nginx is reloaded and a
worker is killed.

Clients are sockets that are written at first and read at the end, so they use
no CPU during the measurement.  The peer is a process of its own.
"""

import argparse
import json
import os
import random
import selectors
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                '../common'))

import rig  # noqa: E402
from rig import FILES, Fork, free_ports, median, quantile, wait  # noqa: E402
from serve import listen, requests  # noqa: E402

HTTP = """
    client_header_timeout 600s; client_body_timeout 600s;
    log_format wake "$pid $msec $upstream_response_time $kvroute_queue_status";
    kvroute_zone zone=z:4m;
    limit_req_zone $server_port zone=r:1m rate=1r/m;
    upstream held {
        zone held 64k;
        kvroute kv_cache zone=z;
        kvroute_queue max=100000 timeout=600s;
        server 127.0.0.1:@peer@ max_conns=@conns@ max_fails=0;
    }
    upstream one {
        zone one 64k;
        kvroute kv_cache zone=z;
        kvroute_queue max=100000 timeout=600s;
        server 127.0.0.1:@peer@ max_conns=1 max_fails=0;
    }
    server {
        listen 127.0.0.1:@port@ backlog=16384 reuseport;
        location /held/ { proxy_pass http://held; }
        location /one/ {
            access_log @dir@/wake.log wake;
            proxy_pass http://one;
        }
        location /plain/ {
            limit_req zone=r burst=100000;
            limit_req_log_level notice;
            proxy_pass http://127.0.0.1:@peer@;
        }
        location /kvroute/ { kvroute_status; }
    }
"""


def chat(n, text='hello'):
    return json.dumps({'model': 'm', 'messages': [
        {'role': 'user', 'content': '%d %s' % (n, text)}]}).encode()


class Peer(Fork):
    """Answers at once, or when the gate is opened; counts each request's
    visits."""

    def __init__(self):
        self.port = free_ports(1)
        self.near, far = socket.socketpair()
        super().__init__(self.loop, far)
        self.say('ready')

    def say(self, word):
        """Commands: close, open (the gate); twice (requests that came more than
        once)."""
        self.near.sendall(word.encode() + b'\n')
        return int(self.near.recv(64))

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


class Nginx(rig.Nginx):
    def __init__(self, args, peer):
        super().__init__(HTTP, workers=2, peer=peer.port, conns=args.conns,
                         connections=args.parked + args.late + 1000,
                         expected='exited on signal 9')
        self.wakes = self.dir + '/wake.log'
        wait(lambda: len(self.workers()) == 2)

    def memory(self):
        """Returns the private bytes of the workers."""
        return rig.memory(*self.workers(), what='Private_Dirty')

    def files(self):
        return sum(len(os.listdir('/proc/%d/fd' % p)) for p in self.workers())

    def parked(self, upstream):
        return self.status()['upstreams'][upstream]['queue']['size']

    def idle(self, upstream):
        u = self.status()['upstreams'][upstream]
        return u['queue']['size'] == 0 and u['peers'][0]['active'] == 0

    def post(self, path, body):
        """Returns a connection on which a request was sent."""
        s = socket.create_connection(('127.0.0.1', self.port))
        self.send(s, path, body)
        return s

    @staticmethod
    def send(s, path, body):
        s.sendall(b'POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: '
                  b'application/json\r\nContent-Length: %d\r\n\r\n'
                  % (path.encode(), len(body)) + body)


def answer(s):
    """Returns the status of a response, or 0 if there is none."""
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
    """Returns a value as soon as it does not change any more."""
    last = fn()
    while True:
        time.sleep(0.3)
        now = fn()
        if now == last:
            return now
        last = now


def waiting(nginx, kind, n, conns):
    """Parks n requests; returns the private bytes per request."""
    before, files = settled(nginx.memory), nginx.files()
    out = [nginx.post('/%s/%d' % (kind, k), chat(k)) for k in range(n)]
    if kind == 'plain':
        wait(lambda: nginx.files() >= files + n)
    else:
        wait(lambda: nginx.parked(kind) == n - conns)
    return out, (settled(nginx.memory) - before) / n


def accounting(nginx, peer, conns, args):
    """All but the first n requests wait.  Some clients leave, nginx is
    reloaded, and one of its new workers is killed."""
    res = {}
    n = args.parked
    rnd = random.Random(args.seed)
    gone = {k for k in range(n) if rnd.random() < 0.1}

    for k in gone:
        conns[k].close()

    old = set(nginx.workers())
    os.kill(nginx.pid, signal.SIGHUP)
    wait(lambda: len(set(nginx.workers()) - old) == 2)

    # the first ones are served, not waiting: they make room when they leave

    left = n - len(gone) - args.conns
    wait(lambda: nginx.parked('held') == left)

    conns += [nginx.post('/held/b%d' % k, chat(k)) for k in range(args.late)]
    wait(lambda: nginx.parked('held') == left + args.late)

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
            cut += 1            # a request of the killed new worker
        else:
            lost += 1

    res['drained_per_s'] = round(ok / (time.monotonic() - begin))
    wait(lambda: nginx.idle('held'))

    res['parked'] = n + args.late
    res['answered'] = ok
    res['left'] = len(gone)
    res['of_killed_worker'] = cut
    res['lost'] = lost
    res['doubled'] = peer.say('twice')
    return res


def wakes(nginx, peer, args):
    """Returns from the access log the delay between the end of a request and
    the start of the next one, in the same worker and in the other."""

    peer.say('close')
    conns = [nginx.post('/one/%d' % k, chat(k)) for k in range(args.parked)]
    wait(lambda: nginx.parked('one') == args.parked - 1)
    peer.say('open')

    def lines():
        with open(nginx.wakes) as f:
            return [x.split() for x in f if x.endswith('\n')]

    wait(lambda: len(lines()) >= args.wakes)

    seen = [(float(m) - float(t), float(m), pid)
            for pid, m, t, q in lines() if q in ('passed', 'waited')]

    for s in conns:
        s.close()
    wait(lambda: nginx.idle('one'))

    seen.sort()
    gaps = {'same': [], 'other': []}
    for a, b in zip(seen, seen[1:]):
        gaps['same' if a[2] == b[2] else 'other'].append(
            1000 * (b[0] - a[1]))

    res = {'wakes': len(gaps['other'])}
    for kind, name in (('other', 'wake_ms_p50'),
                       ('same', 'wake_ms_p50_same_worker')):
        res[name] = round(median(gaps[kind]), 3) if gaps[kind] else None
    if gaps['other']:
        res['wake_ms_p99'] = round(quantile(gaps['other'], 0.99), 3)
    return res


def run(args):
    res, sizes = {}, {}
    peer = Peer()

    # memory, compared with limit_req, whose requests wait in nginx's own way

    nginx = Nginx(args, peer)
    conns, sizes['plain'] = waiting(nginx, 'plain', args.parked, args.conns)
    for s in conns:
        s.close()
    nginx.stop()

    nginx = Nginx(args, peer)
    peer.say('close')
    conns, sizes['held'] = waiting(nginx, 'held', args.parked, args.conns)

    res['bytes_of_nginx'] = round(sizes['plain'])
    res['bytes_per_parked'] = round(sizes['held'] - sizes['plain'])

    res.update(accounting(nginx, peer, conns, args))
    nginx.stop()

    nginx = Nginx(args, peer)
    res.update(wakes(nginx, peer, args))
    nginx.stop()
    peer.stop()

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

    if FILES < args.parked + args.late + 100:
        raise SystemExit('%d descriptors are too few for --parked %d'
                         % (FILES, args.parked))

    res = run(args)
    rig.save(args.out, res)
    print('5 %s' % json.dumps(res))


main()
