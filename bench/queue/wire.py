"""The queue through nginx: 10,000 requests that wait in two workers.

What each of them takes beyond nginx's own, how soon room made in one worker
lets one in that waits in the other, what it costs those that never wait; and
whether any is lost or served twice while clients leave, nginx is reloaded and a
worker is killed.  Its results and those of the simulator make queue.json.
"""

import argparse
import asyncio
import json
import os
import random
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time

CONF = """
load_module {module};
{user}
worker_processes 2;
worker_rlimit_nofile 40000;
pid {dir}/nginx.pid;
error_log {dir}/error.log warn;
events {{ worker_connections 20000; }}
http {{
    access_log off;
    client_body_temp_path {dir}/b; proxy_temp_path {dir}/p;
    fastcgi_temp_path {dir}/f; uwsgi_temp_path {dir}/u;
    scgi_temp_path {dir}/s;
    proxy_read_timeout 600s;
    keepalive_requests 1000000;
    kvroute_zone zone=z:4m;
    limit_req_zone $server_name zone=r:1m rate=1r/m;
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
    upstream queued {{
        zone queued 64k;
        kvroute kv_cache zone=z max_pending=auto;
        kvroute_queue max=1000 timeout=600s;
        server 127.0.0.1:{peer} max_fails=0;
        server 127.0.0.2:{peer} max_fails=0;
        keepalive 64;
    }}
    upstream plain {{
        zone plain 64k;
        kvroute kv_cache zone=z;
        server 127.0.0.1:{peer} max_fails=0;
        server 127.0.0.2:{peer} max_fails=0;
        keepalive 64;
    }}
    server {{
        listen 127.0.0.1:{port} backlog=16384 reuseport;
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_set_header X-Worker $pid;
        location /held/ {{ proxy_pass http://held; }}
        location /one/ {{ proxy_pass http://one; }}
        location /queued/ {{ proxy_pass http://queued; }}
        location /plain/ {{ proxy_pass http://plain; }}
        location /limited/ {{
            limit_req zone=r burst=100000;
            proxy_pass http://plain;
        }}
        location /kvroute/ {{ kvroute_status; }}
    }}
}}
"""


def free_port():
    s = socket.socket()
    s.bind(('127.0.0.1', 0))
    port = s.getsockname()[1]
    s.close()
    return port


def chat(n, text='hello'):
    return json.dumps({'model': 'm', 'messages': [
        {'role': 'user', 'content': '%d %s' % (n, text)}]}).encode()


class Peer:
    """Answers at once, or when it is told to; notes who came when."""

    def __init__(self):
        self.seen = {}
        self.log = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.inside = []
        self.single = False

    async def serve(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b'\r\n\r\n')
                now = time.monotonic()
                fields = dict(
                    line.split(': ', 1)
                    for line in head.decode().split('\r\n')[1:] if line)
                await reader.readexactly(int(fields.get('Content-Length', 0)))
                path = head.split(b' ', 2)[1].decode()
                self.seen[path] = self.seen.get(path, 0) + 1

                if self.single:
                    self.log.append((now, fields['X-Worker']))
                    await asyncio.sleep(0.02)
                    self.log[-1] += (time.monotonic(),)
                else:
                    await self.gate.wait()

                writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


class Client:
    def __init__(self, port):
        self.port = port

    async def open(self, path, body):
        for _ in range(50):
            try:
                r, w = await asyncio.open_connection('127.0.0.1', self.port)
                break
            except OSError:
                await asyncio.sleep(0.05)
        w.write(b'POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json'
                b'\r\nContent-Length: %d\r\n\r\n'
                % (path.encode(), len(body)) + body)
        return r, w

    @staticmethod
    async def status(r):
        try:
            head = await r.readuntil(b'\r\n\r\n')
            for line in head.split(b'\r\n'):
                if line.lower().startswith(b'content-length:'):
                    await r.readexactly(int(line.split(b':')[1]))
            return int(head.split(b' ', 2)[1])
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0

    async def json(self):
        r, w = await asyncio.open_connection('127.0.0.1', self.port)
        w.write(b'GET /kvroute/json HTTP/1.0\r\n\r\n')
        data = await r.read()
        w.close()
        return json.loads(data.split(b'\r\n\r\n', 1)[1])


def workers(master):
    with open('/proc/%d/task/%d/children' % (master, master)) as f:
        return [int(p) for p in f.read().split()]


def memory(master):
    total = 0
    for pid in workers(master):
        with open('/proc/%d/smaps_rollup' % pid) as f:
            for line in f:
                if line.startswith('Private_Dirty:'):
                    total += int(line.split()[1]) * 1024
    return total


def cpu(master):
    total = 0
    for pid in workers(master):
        with open('/proc/%d/schedstat' % pid) as f:
            total += int(f.read().split()[0])
    return total


async def until(fn, timeout=120):
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if await fn():
            return
        await asyncio.sleep(0.05)
    raise RuntimeError('waited in vain')


async def park(client, path, n):
    """n requests, some at a time, so that the backlog holds them"""
    out = []
    for i in range(0, n, 200):
        out += await asyncio.gather(*(
            client.open('%s%d' % (path, k), chat(k))
            for k in range(i, min(n, i + 200))))
    return out


async def run(args, start):
    peer = Peer()
    res = {}
    n = args.parked
    server = await asyncio.start_server(peer.serve, '127.0.0.1', args.peer,
                                        backlog=4096)
    other = await asyncio.start_server(peer.serve, '127.0.0.2', args.peer,
                                       backlog=4096)
    client = Client(args.port)

    # memory: beside limit_req, whose requests wait in nginx's own way

    sizes = {}

    for kind in 'limited', 'held':
        master = start()
        await until(lambda: asyncio.sleep(0, os.path.exists(args.pidfile)))
        await asyncio.sleep(0.3)
        if kind == 'held':
            peer.gate.clear()
        before = memory(master.pid)
        conns = await park(client, '/%s/m' % kind, n)
        if kind == 'held':
            async def parked():
                s = await client.json()
                return s['upstreams']['held']['queue']['size'] \
                    >= n - args.conns
            await until(parked)
        await asyncio.sleep(0.5)
        sizes[kind] = (memory(master.pid) - before) / n

        for _, w in conns:
            w.close()
        peer.gate.set()
        await asyncio.sleep(0.5)
        master.send_signal(signal.SIGTERM)
        master.wait()
        if os.path.exists(args.pidfile):
            os.unlink(args.pidfile)

    res['bytes_of_nginx'] = round(sizes['limited'])
    res['bytes_per_parked'] = round(sizes['held'] - sizes['limited'])

    master = start()
    await until(lambda: asyncio.sleep(0, os.path.exists(args.pidfile)))
    await asyncio.sleep(0.3)

    # accounting

    peer.seen.clear()
    peer.gate.clear()
    rnd = random.Random(args.seed)
    conns = await park(client, '/held/a', n)
    gone, cut, ok, lost = set(), 0, 0, 0

    for k in range(n):
        if rnd.random() < 0.1:
            conns[k][1].close()
            gone.add(k)

    old = set(workers(master.pid))
    os.kill(master.pid, signal.SIGHUP)

    async def reloaded():
        return len(set(workers(master.pid)) - old) == 2
    await until(reloaded)

    conns += await park(client, '/held/b', 500)
    os.kill(rnd.choice(sorted(set(workers(master.pid)) - old)), signal.SIGKILL)
    begin = time.monotonic()
    peer.gate.set()

    for k, (r, w) in enumerate(conns):
        if k in gone:
            continue
        status = await client.status(r)
        w.close()
        if status == 200:
            ok += 1
        elif status == 0 and k >= n:
            cut += 1            # of the new worker that was killed
        else:
            lost += 1

    res['drained_per_s'] = round(ok / (time.monotonic() - begin))

    async def idle():
        s = await client.json()
        u = s['upstreams']['held']
        return u['queue']['size'] == 0 and u['peers'][0]['active'] == 0
    await until(idle)

    res['parked'] = n + 500
    res['left'] = len(gone)
    res['of_killed_worker'] = cut
    res['lost'] = lost
    res['doubled'] = sum(c > 1 for c in peer.seen.values())

    # from one worker to another

    peer.single = True
    conns = await park(client, '/one/', args.wakes)
    for r, w in conns:
        await client.status(r)
        w.close()

    peer.log.sort()
    gaps = {'same': [], 'other': []}
    for a, b in zip(peer.log, peer.log[1:]):
        gaps['same' if a[1] == b[1] else 'other'].append(
            1000 * (b[0] - a[2]))
    peer.single = False

    res['wakes'] = len(gaps['other'])
    res['wake_ms_p50'] = round(statistics.median(gaps['other']), 3) \
        if gaps['other'] else None
    res['wake_ms_p50_same_worker'] = round(statistics.median(gaps['same']), 3) \
        if gaps['same'] else None

    # CPU of those that never wait: in turns, the least of each

    used = {'plain': [], 'queued': []}

    async def some(kind, text, count):
        r, w = await client.open('/%s/' % kind, chat(0, text))
        await client.status(r)
        for k in range(count):
            body = chat(k % 50, text)
            w.write(b'POST /%s/ HTTP/1.1\r\nHost: x\r\nContent-Type: '
                    b'application/json\r\nContent-Length: %d\r\n\r\n'
                    % (kind.encode(), len(body)) + body)
            await client.status(r)
        w.close()

    text = 'word ' * 1200

    for _ in range(args.rounds):
        for kind in used:
            before = cpu(master.pid)
            await asyncio.gather(*(some(kind, text, 100) for _ in range(8)))
            used[kind].append((cpu(master.pid) - before) / 800 / 1000)

    res['cpu_us_plain'] = round(min(used['plain']), 2)
    res['cpu_us_queued'] = round(min(used['queued']), 2)
    res['cpu_ratio'] = round(min(used['queued']) / min(used['plain']), 4)

    master.send_signal(signal.SIGTERM)
    master.wait()
    server.close()
    other.close()

    return res


def main():
    p = argparse.ArgumentParser()
    p.add_argument('--simulated')
    p.add_argument('--out', required=True)
    p.add_argument('--engine')
    p.add_argument('--parked', type=int, default=10000)
    p.add_argument('--wakes', type=int, default=300)
    p.add_argument('--rounds', type=int, default=12)
    p.add_argument('--conns', type=int, default=64)
    p.add_argument('--seed', type=int, default=1)
    args = p.parse_args()

    resource.setrlimit(resource.RLIMIT_NOFILE, (
        resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)

    top = tempfile.mkdtemp(prefix='kvroute-queue-')
    os.chmod(top, 0o755)
    args.port, args.peer = free_port(), free_port()
    args.pidfile = top + '/nginx.pid'

    with open(top + '/nginx.conf', 'w') as f:
        f.write(CONF.format(
            module=os.environ['MODULE'], dir=top, port=args.port,
            peer=args.peer, conns=args.conns,
            user='user root;' if os.getuid() == 0 else ''))

    masters = []

    def start():
        m = subprocess.Popen(
            os.environ.get('NGINX_BIN', 'nginx').split()
            + ['-p', top, '-c', top + '/nginx.conf', '-e', top + '/error.log',
               '-g', 'daemon off;'])
        masters.append(m)
        return m

    try:
        wire = asyncio.run(run(args, start))
    finally:
        for m in masters:
            if m.poll() is None:
                m.kill()
                m.wait()
        with open(top + '/error.log') as f:
            bad = [x for x in f if '[alert]' in x or '[crit]' in x]
        for x in bad:
            if 'exited on signal 9' not in x:
                print(x, end='')
        shutil.rmtree(top, ignore_errors=True)

    out = {}

    if args.simulated and os.path.exists(args.simulated):
        with open(args.simulated) as f:
            sim = json.load(f)
        out = {
            'interactive_p99_ratio':
                max(x['interactive_p99_ratio'] for x in sim['tail']),
            'batch_throughput_ratio':
                min(x['batch_throughput_ratio'] for x in sim['tail']),
            'below_knee_ttft_ratio': sim['below_knee_ttft_ratio'],
            'goodput': {'1.5': sim['goodput_1.5'], '3': sim['goodput_3']},
            'tenant_share_error': sim['tenant_share_error'],
        }

    for key in 'wake_ms_p50', 'bytes_per_parked', 'lost', 'doubled':
        out[key] = wire[key]

    if args.simulated and os.path.exists(args.simulated):
        out['simulated'] = sim

    out['wire'] = wire

    with open(args.out, 'w') as f:
        json.dump(out, f, indent=2)
        f.write('\n')

    print(json.dumps({k: v for k, v in out.items() if k != 'simulated'},
                     indent=2))


main()
