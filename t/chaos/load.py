"""The clients: streams, whole answers, aborts at any point, 1 KB to 4 MB.

Each request has its own connection: the port identifies the worker.
"""

import asyncio
import json
import os
import time

SIZES = ((1_000, 30), (4_000, 25), (20_000, 20), (80_000, 12), (300_000, 8),
         (1_000_000, 3), (4_000_000, 2))

KINDS = (("stream", 30), ("whole", 30), ("slow", 10), ("get", 5),
         ("abort_at_once", 8), ("abort_body", 5), ("abort_late", 12))

PLACES = (("plain", 30), ("buffered", 15), ("queued", 25), ("legs", 15),
          ("turns", 5), ("rooms", 5), ("other", 10), ("unbroken", 15),
          ("pull", 15))

# faults of first parts, if they are continued

BREAKS = ("truncate=4", "reset-mid-stream=2", "error-in-stream=6")

FAMILIES = 40        # groups of prompts that share a prefix

# mostly for two servers: prompts that are not cached

if os.environ.get("LEGS"):
    FAMILIES = 1 << 30
    SIZES = ((3_000, 60), (6_000, 30), (20_000, 8), (80_000, 1.6),
             (300_000, .4))
    PLACES = (("plain", 5), ("queued", 5), ("legs", 45), ("turns", 30),
              ("rooms", 15), ("pull", 15))

PATIENCE = 45        # s without a byte: longer than any wait in nginx

WORDS = ("the of and to in is that for it as was with be by on not he his but "
         "at are this have from or had an they which one you were all her she "
         "there would their we him been has when who will no more if out so up"
         ).split()


def pick(rng, table):
    n = rng.random() * sum(w for _, w in table)
    for value, w in table:
        n -= w
        if n < 0:
            break
    return value


class Request:
    """One request and its result."""

    def __init__(self, place, kind):
        self.place, self.kind = place, kind
        self.start = time.monotonic()
        self.end = None
        self.port = 0
        self.status = 0
        self.headers = {}
        self.body = b""
        self.how = "none"       # ok, status, broken, none, gone, stuck

    def __str__(self):
        return "%s %s port %d: %s, status %d, %d bytes, %.2f s" % (
            self.place, self.kind, self.port, self.how, self.status,
            len(self.body), (self.end or time.monotonic()) - self.start)


class Bank:
    """Returns a prompt; prompts of one family share a prefix."""

    def __init__(self, rng, size=6_000_000):
        line = " ".join(rng.choice(WORDS) for _ in range(60_000))
        self.text = (line * (size // len(line) + 2)).encode()

    def chat(self, family, size, stream, question=0):
        own = b"%d " % question
        content = (b"family %d " % family
                   + self.text[family * 7919 % 300_000:][:size] + own)
        return (b'{"model":"m","stream":%s,"max_tokens":20,"messages":['
                b'{"role":"system","content":"You help."},'
                b'{"role":"user","content":"%s"}]}'
                % (b"true" if stream else b"false", content))


async def send(r, port, head, body, abort=None, patience=PATIENCE):
    """Sends a request and reads its answer, or leaves early."""
    writer = None

    try:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, limit=1 << 20)
        r.port = writer.get_extra_info("sockname")[1]

        if abort == "body":
            body = body[:len(body) // 2]

        writer.write(head + body)
        await asyncio.wait_for(writer.drain(), patience)

        if abort in ("body", "at_once"):
            r.how = "gone"
            return r

        lines = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), patience)
        lines = lines.decode("latin1").split("\r\n")
        r.status = int(lines[0].split()[1])
        r.headers = {k.lower(): v for k, v in
                     (s.split(": ", 1) for s in lines[1:] if ": " in s)}
        r.how = "broken"

        if abort == "late":
            await asyncio.wait_for(reader.read(100), patience)
            r.how = "gone"
            return r

        pieces = []

        while True:
            data = await asyncio.wait_for(reader.read(1 << 16), patience)
            if not data:
                break
            pieces.append(data)

        r.body = b"".join(pieces)

        if "content-length" in r.headers:
            whole = len(r.body) == int(r.headers["content-length"])
        else:
            whole = r.body.endswith(b"0\r\n\r\n")

        if whole:
            r.how = "ok" if r.status < 400 else "status"

    except asyncio.TimeoutError:
        r.how = "stuck"
    except asyncio.IncompleteReadError as e:
        r.how = "broken" if e.partial else "none"
    except (ValueError, IndexError):
        r.how = "broken"                # an engine's garbage
    except OSError:
        pass
    finally:
        r.end = time.monotonic()
        if writer:
            writer.transport.abort()

    return r


def head(method, path, body, *more):
    return ("\r\n".join((
        "%s %s HTTP/1.1" % (method, path), "Host: chaos", "Connection: close",
        "Content-Type: application/json", "Content-Length: %d" % len(body),
        *more)) + "\r\n\r\n").encode()


async def client(rng, bank, port, judge, gate):
    """Sends requests one by one while the gate is open."""
    while True:
        await gate.wait()

        place, kind = pick(rng, PLACES), pick(rng, KINDS)
        size = pick(rng, SIZES)
        family = rng.randrange(FAMILIES)
        body = bank.chat(family, size, kind not in ("whole", "get"),
                         rng.randrange(5))
        more = ["X-Session: s%d" % (family % 40),
                "X-Class: %s" % rng.choice(("interactive", "normal", "batch"))]
        method, path = "POST", "/%s/v1/chat/completions" % place

        if kind == "get":
            method, path, body = "GET", "/%s/v1/models" % place, b""
        elif kind == "slow":
            more.append("X-Engine-Fault: slow=%d" % rng.choice((10, 40)))
        elif kind == "stream" and rng.random() < .3:
            more.append("X-Break: " + rng.choice(BREAKS))

        r = Request(place, kind)
        judge.begin(r)
        await send(r, port, head(method, path, body, *more), body,
                   kind[6:] if kind.startswith("abort_") else None)
        judge.finish(r)

        if rng.random() < .2:
            await asyncio.sleep(rng.random() * .05)


def parse(r):
    """The JSON of an answer."""
    data = r.body
    if "content-length" not in r.headers:
        out = []
        while data:
            n, _, data = data.partition(b"\r\n")
            n = int(n, 16)
            out.append(data[:n])
            data = data[n + 2:]
        data = b"".join(out)
    return json.loads(data)
