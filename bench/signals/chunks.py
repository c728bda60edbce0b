"""Cost of the filter for a streamed chunk: delay and CPU time."""

import concurrent.futures
import http.client
import json
import os
import random
import selectors
import subprocess
import sys
import time

from agents import front

import rig
from rig import Process, free_ports, median

SERVER = r"""
import asyncio, random, sys, time

async def serve(r, w):
    try:
        while True:
            head = await r.readuntil(b"\r\n\r\n")
            n = [l for l in head.split(b"\r\n")
                 if l.lower().startswith(b"content-length:")]
            await r.readexactly(int(n[0].split(b":")[1]))
            count, gap = int(sys.argv[2]), 0.004
            w.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                    b"Connection: close\r\n\r\n")
            for i in range(count):
                w.write(b'data: {"id":"chatcmpl-8d1","object":"chat.completion'
                        b'.chunk","created":1788626457,"model":"tiny",'
                        b'"choices":[{"index":0,"delta":{"content":" %d"},'
                        b'"logprobs":null,"finish_reason":null}]}\n\n'
                        % time.monotonic_ns())
                await w.drain()
                await asyncio.sleep(gap * random.uniform(0.5, 1.5))
            w.close()
            return
    except Exception:
        w.close()

async def main():
    s = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]))
    print("ready", flush=True)
    async with s:
        await s.serve_forever()

asyncio.run(main())
"""


class Chunks:
    """A server of streams, and nginx before it with and without kvroute."""

    NAMES = {"off": ("", ""), "twice": ("", ""),
             "on": ("kvroute kv_cache zone=z;", "")}
    BODY = {"messages": [{"role": "user", "content": "x" * 2000}],
            "stream": True}

    def __init__(self, count, *groups):
        """Runs streams of count chunks, through an nginx for each group of
        names."""
        port = free_ports(1)
        self.server = Process(
            [sys.executable, "-c", SERVER, str(port), str(count)],
            stdout=subprocess.PIPE)
        self.server.process.stdout.readline()
        peer = ("server 127.0.0.1:%d max_fails=0; "
                "server 127.0.0.2:%d down;" % (port, port))
        self.nginx = {}
        for names in groups:
            nginx = front({n: (self.NAMES[n][0], peer) for n in names},
                          {n: self.NAMES[n][1] for n in names})
            self.nginx.update((n, nginx) for n in names)

    def stop(self):
        for nginx in set(self.nginx.values()):
            nginx.stop()
        self.server.stop()

    def post(self, name):
        c = http.client.HTTPConnection("127.0.0.1", self.nginx[name].port)
        c.request("POST", "/%s/v1/chat/completions" % name,
                  json.dumps(self.BODY), {"Content-Type": "application/json"})
        return c

    def spent(self, name):
        return 1e9 * rig.cpu(self.nginx[name].pid)


def chunk_delay(result):
    """Measures the delay that the filter adds to a streamed chunk."""
    chunks = Chunks(200, tuple(Chunks.NAMES))
    delay = {name: [] for name in Chunks.NAMES}

    def stream(name):
        c = chunks.post(name)
        r = c.getresponse()
        late = []
        for line in r:
            if line.startswith(b"data: {"):
                now = time.monotonic_ns()
                late.append(now - int(line.split(b'"content":" ')[1]
                                      .split(b'"')[0]))
        c.close()
        return late

    for _ in range(16):
        for name in random.sample(list(delay), len(delay)):
            with concurrent.futures.ThreadPoolExecutor(6) as pool:
                late = sum(pool.map(stream, [name] * 6), [])
            delay[name].append(median(late))
    chunks.stop()

    # in pairs, because other work on the machine changes over time

    def more(a, b):
        return median(x - y for x, y in zip(delay[a], delay[b])) / 1000

    result["chunk_delay_off_us"] = median(delay["off"]) / 1000
    result["chunk_delay_us"] = more("on", "off")
    result["chunk_delay_twice_us"] = more("twice", "off")   # the noise


def chunk_cpu(result):
    """Measures the CPU time that the filter adds to a streamed chunk.

    All nginxes serve at once, on one core, so that other work affects all
    alike.
    """
    rounds, each, seconds = 15, 8, 2
    chunks = Chunks(round(2 * seconds / 0.004),
                    *((name,) for name in Chunks.NAMES))
    cpu = {name: [] for name in Chunks.NAMES}
    core = min(os.sched_getaffinity(0))

    def read(poll, seen, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for key, _ in poll.select(0.1):
                seen[key.data] += key.fileobj.recv(65536).count(b"data: {")

    for nginx in chunks.nginx.values():
        for worker in nginx.workers():
            os.sched_setaffinity(worker, {core})

    # new streams, in another order: no nginx keeps an advantage because its
    # chunks arrive together

    for _ in range(rounds):
        poll = selectors.DefaultSelector()
        order = list(cpu) * each
        random.shuffle(order)
        for name in order:
            poll.register(chunks.post(name).sock, selectors.EVENT_READ, name)

        read(poll, dict.fromkeys(cpu, 0), 0.5)
        before = {name: chunks.spent(name) for name in cpu}
        seen = dict.fromkeys(cpu, 0)
        read(poll, seen, seconds)
        for name in cpu:
            cpu[name].append((chunks.spent(name) - before[name]) / seen[name])

        for key in list(poll.get_map().values()):
            key.fileobj.close()
        poll.close()
    chunks.stop()

    def ratio(a, b):
        return median(x / y for x, y in zip(cpu[a], cpu[b]))

    result["chunk_cpu_ns"] = median(cpu["off"])
    result["chunk_cpu_ratio"] = ratio("on", "off")
    result["chunk_cpu_ratio_twice"] = ratio("twice", "off")     # the noise
