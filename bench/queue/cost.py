"""Cost of the queue for a request that does not wait: nginx with and without
kvroute_queue, on one connection, in short turns.

Two loads.  "mix" is the simulator's point 1: one request in five has 1k tokens
and the rest 30k, with replies of 150 and 300 events.  "small" is the worst
case: 6 KB and a reply of two bytes.

CPU time is the scheduler's.  The figure is the median ratio of pairs.  The same
upstream is also compared with itself, which shows the noise.  Instructions are
callgrind's, without the kernel, if valgrind is installed: the slope between few
and many requests.
"""

import argparse
import json
import os
import selectors
import shutil
import socket
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                '../common'))

import rig  # noqa: E402
from rig import Fork, free_ports, instructions, median, save  # noqa: E402
from serve import listen, requests  # noqa: E402

# events of a reply, by the least body size that gets them

EVENT = (b'data: {"id":"c","object":"chat.completion.chunk","model":"m",'
         b'"choices":[{"index":0,"delta":{"content":" word"}}]}\n\n')
SSE = (b'HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n'
       b'Content-Length: %d\r\n\r\n')

HTTP = """
    client_body_buffer_size 256k;
    kvroute_zone zone=z:4m;
    upstream queued {
        zone queued 64k;
        kvroute kv_cache zone=z max_pending=auto;
        kvroute_queue max=1000 timeout=600s;
        @servers@
        keepalive 64;
    }
    upstream unqueued {
        zone unqueued 64k;
        kvroute kv_cache zone=z max_pending=auto;
        @servers@
        keepalive 64;
    }
    server {
        listen 127.0.0.1:@port@;
        location /queued { proxy_pass http://queued; }
        location /unqueued { proxy_pass http://unqueued; }
    }
"""


def reply(size):
    body = EVENT * (300 if size > 50000 else 150) + b'data: [DONE]\n\n{}'
    return SSE % len(body) + body


def peers(ports):
    """Answers each request at once."""
    sel = selectors.DefaultSelector()
    for port in ports:
        listen(sel, '127.0.0.1', port, 64)

    for c, head, size in requests(sel):
        c.sendall(reply(size) if b'/mix ' in head else
                  b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}')


class Nginx(rig.Nginx):
    def __init__(self, prefix=()):
        first = free_ports(2)
        ports = first, first + 1

        self.answers = Fork(peers, ports)
        super().__init__(HTTP, alone=True, prefix=prefix,
                         servers=rig.servers(ports, 'max_fails=0'))
        self.conn = socket.create_connection(('127.0.0.1', self.port))

    def stop(self):
        super().stop()
        self.answers.stop()

    def send(self, kind, n):
        for k in range(n):
            size = 6000

            if kind.endswith('/mix'):
                size = 4000 if k % 5 == 0 else 120000

            body = json.dumps({'model': 'm', 'stream': True, 'messages': [
                {'role': 'user', 'content': '%d %s'
                    % (k % 50, 'word ' * (size // 5))}]})
            self.conn.sendall(
                b'POST /%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n'
                % (kind.encode(), len(body)) + body.encode())
            data = b''
            while not data.endswith(b'{}'):
                more = self.conn.recv(1 << 18)
                if not more:
                    raise RuntimeError('no answer')
                data = data[-2:] + more


def turns(nginx, a, b, args):
    """Returns us per request of both, the ratio, and its standard error."""
    used, ratios = {0: [], 1: []}, []

    for i in range(args.pairs):
        for k in (0, 1) if i % 2 else (1, 0):
            before = rig.cpu(nginx.pid)
            nginx.send((a, b)[k], args.calls)
            used[k].append(1e6 * (rig.cpu(nginx.pid) - before) / args.calls)
        ratios.append(used[1][-1] / used[0][-1])

    return (median(used[0]), median(used[1]), median(ratios),
            1.25 * statistics.stdev(ratios) / len(ratios) ** 0.5)


def counted(kind, n):
    def run(prefix):
        nginx = Nginx(prefix)
        nginx.send(kind, n)
        nginx.stop()

    return instructions(run)


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--out', required=True)
    p.add_argument('--pairs', type=int, default=200)
    p.add_argument('--calls', type=int, default=50)
    args = p.parse_args()

    out = {}
    nginx = Nginx()

    for work in 'mix', 'small':
        a, b = 'unqueued/' + work, 'queued/' + work
        for kind in a, b:
            nginx.send(kind, 200)
        noise = turns(nginx, a, a, args)
        cost = turns(nginx, a, b, args)
        out[work] = {'cpu_us_unqueued': round(cost[0], 2),
                     'cpu_us_queued': round(cost[1], 2),
                     'cpu_ratio': round(cost[2], 4),
                     'cpu_ratio_error': round(cost[3], 4),
                     'cpu_ratio_of_itself': round(noise[2], 4)}
    nginx.stop()

    for work in out if shutil.which('valgrind') else ():
        for kind in 'unqueued', 'queued':
            out[work]['instructions_' + kind] = round(
                (counted(kind + '/' + work, 120)
                 - counted(kind + '/' + work, 20)) / 100)

    save(args.out, out)

    for work, x in out.items():
        print('2 CPU a request, %-5s %.4f (+- %.4f; of itself %.4f) of %.1f us'
              % (work, x['cpu_ratio'], x['cpu_ratio_error'],
                 x['cpu_ratio_of_itself'], x['cpu_us_unqueued'])
              + (', instructions %.4f' % (x['instructions_queued']
                                          / x['instructions_unqueued'])
                 if 'instructions_queued' in x else ''))


main()
