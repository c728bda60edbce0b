"""The queue past the knee through nginx, with t/engine's emulated replicas.

The load is the simulator's point 1: one request in five has 1k tokens and the
rest 30k.  The fleet and the load relative to its capacity are the same, but
there are real sockets, and real time, in which engines run --speed times
faster; the queue's target is scaled alike.  Three runs: 0.7 and 1.3 times
capacity with the queue, 1.3 without.

One process sends and reads.  The report has the CPU time of this process, nginx
and the engines, to show that none of them was the bottleneck.
"""

import argparse
import heapq
import json
import os
import random
import selectors
import socket
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                '../common'))

from rig import Engines, Nginx, cpu, quantile, save  # noqa: E402

HARDWARE = 'llama-8b-bf16-h100'
REPLICAS = 4
TARGET = 1000               # ms, as in bench.c, before scaling
WARM = 50                   # s in which the engines' caches fill up

# core/queue/kvr_queue.h: bytes of work per ms of age; passing: ms, share of the
# wait, limit

AGING, PASS, SHARE, PASS_MAX = 64, 2000, 0.5, 30000

# kinds: share of requests, tokens, shared tokens, number of texts, output,
# class

KINDS = {
    'interactive': (0.2, 1000, 700, 20, 150, 'interactive'),
    'batch': (0.8, 30000, 10000, 40, 300, 'batch'),
}

HTTP = """
    client_max_body_size 1m;
    client_body_buffer_size 256k;
    log_format queue "$args $kvroute_prompt_bytes $kvroute_queue_time "
                     "$kvroute_queue_status $msec $request_time";
    kvroute_zone zone=z:16m;
    upstream llm {
        zone llm 256k;
        kvroute kv_cache zone=z @cap@;
        @queue@
        kvroute_probe interval=@probe@ms;
        @servers@
        keepalive 256;
        keepalive_timeout 4s;
    }
    kvroute_request priority=$http_x_class;
    server {
        listen 127.0.0.1:@port@ backlog=16384 reuseport;
        proxy_buffering off;
        location / { proxy_pass http://llm; }
        location /kvroute/ { access_log off; kvroute_status; }
    }
"""


def words(seed, tokens):
    """Returns text of four bytes per token."""
    return random.Random(seed).randbytes(2 * tokens).hex()


def schedule(rate, n, seed):
    """Returns the requests with their times, kinds and prompts."""
    rnd = random.Random(seed)
    names = list(KINDS)
    now, out = 0.0, []

    for k in range(n):
        now += rnd.expovariate(rate)
        kind = rnd.choices(names, [KINDS[x][0] for x in names])[0]
        out.append((now, k, kind, rnd.randrange(KINDS[kind][3])))
    return out


class Bodies:
    def __init__(self, seed):
        self.seed = seed
        self.shared = {}

    def make(self, k, kind, text):
        _, tokens, shared, _, output, _ = KINDS[kind]

        if (kind, text) not in self.shared:
            self.shared[kind, text] = words('%d %s %d' % (self.seed, kind,
                                                          text), shared)
        return json.dumps({
            'model': 'emulated', 'stream': True, 'max_tokens': output,
            'ignore_eos': True, 'messages': [
                {'role': 'system', 'content': self.shared[kind, text]},
                {'role': 'user', 'content':
                    words('%d %d' % (self.seed, k), tokens - shared)}]
        }).encode()


class Client:
    """Sends each request at its time, and records when its answer begins."""

    def __init__(self, nginx, plan, seed):
        self.nginx, self.plan = nginx, plan
        self.bodies = Bodies(seed)
        self.sel = selectors.DefaultSelector()
        self.rows = []
        self.seen = []
        self.open = 0

    def send(self, start, due, k, kind, text):
        body = self.bodies.make(k, kind, text)
        s = socket.create_connection(('127.0.0.1', self.nginx.port))
        s.setblocking(False)
        row = {'kind': kind, 'k': k, 'due': due, 'start': start + due,
               'first': None, 'end': None, 'status': 0}
        data = [b'POST /v1/chat/completions?%s-%d HTTP/1.1\r\nHost: x\r\n'
                b'Connection: close\r\nX-Class: %s\r\n'
                b'Content-Type: application/json\r\n'
                b'Content-Length: %d\r\n\r\n'
                % (kind.encode(), k, KINDS[kind][5].encode(), len(body))
                + body, b'']
        self.rows.append(row)
        self.open += 1
        self.sel.register(s, selectors.EVENT_WRITE, (row, data))

    def event(self, key, mask):
        row, data = key.data
        s = key.fileobj

        if mask & selectors.EVENT_WRITE:
            n = s.send(data[0])
            data[0] = data[0][n:]
            if not data[0]:
                self.sel.modify(s, selectors.EVENT_READ, key.data)
            return

        try:
            new = s.recv(1 << 18)
        except OSError:
            new = b''

        if not new:
            row['end'] = time.monotonic()
            self.open -= 1
            self.sel.unregister(s)
            s.close()
            return

        if row['first'] is None:
            data[1] += new
            head, end, rest = data[1].partition(b'\r\n\r\n')
            if end:
                row['status'] = int(head.split(b' ', 2)[1])
            if b'data: ' in rest:
                row['first'] = time.monotonic()

    def look(self):
        """Returns the mean load of the peers, by the status."""
        u = self.nginx.status()['upstreams']['llm']
        loads = [p.get('load') or {} for p in u['peers']]
        return {'waiting': u.get('queue', {}).get('size', 0),
                **{name: sum(x.get(name) or 0 for x in loads) / len(loads)
                   for name in ('prefill_rate', 'utilization')}}

    def run(self, drain):
        """Runs until all requests are answered, or only until the last
        arrival."""
        todo = list(self.plan)
        heapq.heapify(todo)
        start = time.monotonic()

        while todo or (drain and self.open):
            now = time.monotonic() - start
            if now > len(self.seen):
                self.seen.append(self.look())
            while todo and todo[0][0] <= now:
                self.send(start, *heapq.heappop(todo))
            wait = min(todo[0][0] - now, 1) if todo else 1
            for key, mask in self.sel.select(max(wait, 0)):
                self.event(key, mask)

        for key in list(self.sel.get_map().values()):
            key.fileobj.close()
        return self.rows


def late(log):
    """Counts batch requests that were admitted before an earlier one by more
    than the bound.  What the peers had cached at that time is unknown, so a
    request counts only if it is too early for any state of the caches."""
    shared = 4 * KINDS['batch'][2]
    rows = []

    for line in log:
        uri, size, wait, state, end, took = line.split()
        if uri.startswith('batch') and state in ('passed', 'waited'):
            came = 1000 * (float(end) - float(took))
            rows.append((came + 1000 * float(wait), came, int(size)))

    rows.sort()
    n = 0

    for i, (when, came, size) in enumerate(rows):
        due = came + (size - shared) / AGING
        for other, first, bytes_ in rows[i + 1:]:
            bound = first + bytes_ / AGING + min(
                PASS + SHARE * (when - first), PASS_MAX)
            if first < when < other and due > bound + 10:
                n += 1
                break
    return n


def run(args, capacity, load, queue, drain=True):
    """Makes one run; times are the engines': real times by --speed."""
    rate = load * capacity * args.speed
    plan = schedule(rate, int(args.requests * min(load, 1.3) / 1.3),
                    args.seed)

    engines = Engines(REPLICAS, '--hardware', HARDWARE, '--speed',
                      str(args.speed), '--enable-prompt-tokens-details')
    nginx = Nginx(
        HTTP, workers=2, access='@dir@/access.log queue',
        cap='max_pending=%dms' % (TARGET / args.speed / 2)
            if queue else '',
        probe=max(round(1000 / args.speed), 100),
        queue='kvroute_queue max=100000 timeout=600s;' if queue else '',
        servers=engines.servers('max_fails=0'))

    def spent():
        return [cpu(engines.pid), cpu(nginx.pid), sum(os.times()[:2]),
                time.monotonic()]

    before = spent()
    client = Client(nginx, plan, args.seed)
    rows = client.run(drain)
    after = spent()

    with open(nginx.dir + '/access.log') as f:
        log = f.readlines()

    nginx.stop()
    engines.stop()

    # as in the simulator, the first requests are not measured

    length = plan[-1][0]
    begin = rows[0]['start'] + WARM / args.speed
    end = rows[0]['start'] + length
    span = after[3] - before[3]

    res = {'load': load, 'queue': queue, 'requests': len(plan),
           'rate': round(rate, 2),
           'cores': {name: round((b - a) / span, 3) for name, a, b
                     in zip(('engines', 'nginx', 'client'), before, after)}}

    for kind in KINDS:
        mine = [r for r in rows if r['kind'] == kind and r['start'] >= begin]
        # a request without an answer has waited at least until the end
        ttft = [args.speed * ((r['first'] or after[3]) - r['start'])
                for r in mine]
        res[kind] = {
            'p50': round(quantile(ttft, 0.5), 4),
            'p99': round(quantile(ttft, 0.99), 4),
            'longest': round(max(ttft), 3),
            'unanswered': sum(r['first'] is None for r in mine),
            'refused': sum(r['status'] not in (0, 200) for r in rows
                           if r['kind'] == kind),
            'per_s': round(sum(r['end'] is not None and r['first'] is not None
                               and begin <= r['end'] < end for r in rows
                               if r['kind'] == kind)
                           / (end - begin) / args.speed, 4)}

    if queue:
        res['out_of_order'] = late(log)
    res['seen'] = client.seen
    return res


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--simulated', help='has the capacity')
    p.add_argument('--capacity', type=float)
    p.add_argument('--out', required=True)
    p.add_argument('--speed', type=float, default=8)
    p.add_argument('--requests', type=int, default=1200)
    p.add_argument('--seed', type=int, default=1)
    args = p.parse_args()

    capacity = args.capacity

    if capacity is None:
        with open(args.simulated) as f:
            capacity = next(x['capacity'] for x in json.load(f)['tail']
                            if x['hardware'] == HARDWARE)

    out = {'hardware': HARDWARE, 'replicas': REPLICAS, 'speed': args.speed,
           'capacity': capacity}

    for name, load, queue in (('below', 0.7, True), ('queued', 1.3, True),
                              ('unqueued', 1.3, False)):
        r = out[name] = run(args, capacity, load, queue, queue)
        print('1 emulated %-9s interactive P99 %.2f s, batch %.3f/s, longest '
              '%.0f s; cores: %s'
              % (name, r['interactive']['p99'], r['batch']['per_s'],
                 r['batch']['longest'], r['cores']), flush=True)

    below, queued, bare = out['below'], out['queued'], out['unqueued']

    out['interactive_p99_ratio'] = round(
        queued['interactive']['p99'] / below['interactive']['p99'], 4)
    out['interactive_p99_ratio_without'] = round(
        bare['interactive']['p99'] / below['interactive']['p99'], 4)
    out['batch_throughput_ratio'] = round(
        queued['batch']['per_s'] / bare['batch']['per_s'], 4)
    out['out_of_order'] = queued['out_of_order']

    save(args.out, out)

    print('1 emulated: interactive P99 %.2f of that at 0.7, %.0f without; '
          'batch %.3f of without; %d out of order'
          % (out['interactive_p99_ratio'],
             out['interactive_p99_ratio_without'],
             out['batch_throughput_ratio'], out['out_of_order']))


main()
