"""The load: agents, and long prefixes with a Zipf distribution, as in the
simulator (bench/sim/contest/scenario.c).  Each request goes to a random
host."""

import asyncio
import bisect
import itertools
import json
import math
import random
import re
import time

LETTERS = "abcdefghijklmnopqrstuvwxyz  "

# engines of each kind, and how many times faster than real time they run

KINDS = {
    "agents": dict(hardware="devstral-24b-fp8-h100", replicas=4, rate=6.5,
                   speed=5, prefixes=4, prefix=(3000, 5000), question=400,
                   output=60, steps=15, pause=2),
    "zipf": dict(hardware="llama-8b-bf16-l40s", replicas=8, rate=17,
                 speed=2.5, prefixes=400, prefix=(1000, 8000), question=200,
                 output=50, steps=1, pause=0),
}


def text(seed, tokens):
    rng = random.Random(seed)
    return "".join(rng.choices(LETTERS, k=4 * tokens))


def spread(rng, mean, sigma, least, most):
    """Returns a log-normal value with this mean, between two bounds."""
    v = math.exp(rng.gauss(math.log(mean) - sigma * sigma / 2, sigma))
    return int(min(max(v, least), most))


def sessions(kind, seconds, seed, part):
    """Returns (arrival, prefix, its tokens, [(new tokens, output, pause)]) for
    these seconds of clock time, in the model's time.  Parts of one seed share
    the prefixes only."""
    k = KINDS[kind]
    rng = random.Random("%s/%d/%d" % (kind, seed, part))
    shares = list(itertools.accumulate(1 / (i + 1)
                                       for i in range(k["prefixes"])))
    now, end = 0, seconds * k["speed"]

    while True:
        now += rng.expovariate(k["rate"] / k["steps"])
        if now >= end:
            return

        number = bisect.bisect(shares, rng.uniform(0, shares[-1]))
        low, high = k["prefix"]
        tokens = low + random.Random(number).randrange(high - low + 1)
        steps = (1 if k["steps"] == 1
                 else spread(rng, k["steps"], 0.6, 2, 60))

        yield now, "%d/%d" % (number, seed), tokens, [
            (spread(rng, k["question"], 1.0, 20, 4000),
             spread(rng, k["output"], 0.8, 5, 400),
             spread(rng, 1000 * k["pause"], 0.8, 50, 60000) / 1000
             if k["pause"] else 0)
            for _ in range(steps)]


class Answer:
    """An answer as the client sees it."""

    def __init__(self, host, prompt):
        self.host, self.prompt = host, prompt
        self.start = time.monotonic()
        self.first = self.end = None
        self.status, self.cached, self.peer, self.reply = 0, 0, "", ""

    def good(self):
        return self.status == 200 and self.first is not None


async def ask(address, port, host, prompt, output):
    """Requests a completion of this many tokens."""
    a = Answer(host, len(prompt) // 4)
    body = json.dumps({
        "model": "emulated", "prompt": prompt, "max_tokens": output,
        "ignore_eos": True, "stream": True,
        "stream_options": {"include_usage": True}}).encode()
    parts = []

    # HTTP/1.0: an answer without chunks can be searched directly

    try:
        reader, writer = await asyncio.open_connection(address, port,
                                                       limit=1 << 22)
        writer.write(b"POST /v1/completions HTTP/1.0\r\nHost: kvroute\r\n"
                     b"Content-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(body) + body)

        while True:
            data = await reader.read(1 << 16)
            if not data:
                break
            parts.append(data)
            if a.first is None and b'"text"' in data:
                a.first = time.monotonic() - a.start

        writer.close()
    except OSError:
        pass

    a.end = time.monotonic() - a.start
    answer = b"".join(parts).decode()

    found = re.match(r"HTTP/1.[01] (\d+)", answer)
    a.status = int(found[1]) if found else 0

    found = re.search(r"X-Peer: (\S+)", answer)
    a.peer = found[1] if found else ""

    found = re.findall(r'"cached_tokens":(\d+)', answer)
    a.cached = int(found[-1]) if found else 0

    if '"finish_reason":"length"' not in answer.replace(" ", ""):
        a.first = None                    # the answer is incomplete

    a.reply = "".join(json.loads('"%s"' % t) for t in
                      re.findall(r'"text":"((?:[^"\\]|\\.)*)"', answer))

    return a


class Clients:
    """Plays sessions to hosts; hosts can be added and removed meanwhile."""

    def __init__(self, hosts, kind, seconds, seed=1, part=1):
        self.hosts, self.kind = hosts, kind
        self.seconds, self.seed, self.part = seconds, seed, part
        self.answers = []
        self.rng = random.Random(seed)

    def play(self):
        """Runs in this thread until the last session ends."""
        asyncio.run(self.all())
        return self.answers

    async def all(self):
        began = time.monotonic() + 0.2
        await asyncio.gather(*(self.session(i, began, *s) for i, s in
                               enumerate(sessions(self.kind, self.seconds,
                                                  self.seed, self.part))))

    async def session(self, number, began, arrival, prefix, tokens, steps):
        speed = KINDS[self.kind]["speed"]
        end = began + self.seconds

        await asyncio.sleep(max(0, began + arrival / speed
                                - time.monotonic()))
        prompt = text(prefix, tokens)

        for n, (fresh, output, pause) in enumerate(steps):
            if n:
                await asyncio.sleep(pause / speed)

            if time.monotonic() > end:
                return

            prompt += text("%d/%d/%d/%d" % (self.seed, self.part, number, n),
                           fresh)
            h = self.rng.choice(self.hosts)
            a = await ask(h.address, h.port, h, prompt, output)
            self.answers.append(a)

            if not a.good():
                return

            prompt += a.reply
            prompt = prompt[:len(prompt) // 4 * 4]
