#!/usr/bin/env python3
"""Fuzzes code that only nginx can run: requests to the API and the status,
strings for the queue, and the response filter with any cuts, with gzip and
broken gzip.

    t/fuzz/wire.py api|strings|responses SECONDS [SEED]

Every answer must be HTTP, those of the API JSON; responses must pass unchanged;
nginx must not die or log an alert.  Prints the counts as JSON.
"""

import gzip
import json
import os
import random
import re
import socket
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../bench/common"))
sys.dont_write_bytecode = True

import rig                                              # noqa: E402

BATCH = 50           # requests that are sent at once

HTTP = """
    kvroute_zone zone=z:2m;
    client_body_buffer_size 64k;
    upstream u {
        zone u 64k;
        kvroute kv_cache zone=z max_pending=1m;
        @servers@
        keepalive 4;
        kvroute_queue max=4 timeout=10ms;
    }
    server {
        listen 127.0.0.1:@port@;
        large_client_header_buffers 4 16k;
        location / {
            kvroute_request priority=$http_x_class max_priority=high
                            tenant=$http_x_tenant weight=$http_x_weight
                            deadline=$http_x_deadline;
            kvroute_salt $http_x_salt;
            kvroute_pin $http_x_pin;

            proxy_pass http://u;
        }
        location /api/ { kvroute_api write=on; }
        location /look/ { kvroute_api; }
        location /kvroute/ { kvroute_status; }
    }
"""

ODD = (b"%00", b"%", b"%zz", b"%ff%fe", b"+", b"&", b"=", b"?", b"/", b"//",
       b"..", b"%2e%2e", b"-1", b"0", b"99999999999999999999", b"1e9", b"1k",
       b"18446744073709551616k", b"default", b"peer=", b"size=", b"\xc3\xa4",
       b"interactive", b"high", b"normal", b"low", b"batch", b"10ms", b"1h",
       b"0.5", b"NaN", b":", b"::1", b"[::1]:80", b"unix:/x", b"a" * 300)

EVENTS = (b'data: {"choices":[{"delta":{"content":"hello"}}]}\n\n',
          b": ping\n\n", b"event: message_start\ndata: {\"type\":\"ping\"}\n\n",
          b'data: {"usage":{"prompt_tokens":12,"completion_tokens":3,'
          b'"prompt_tokens_details":{"cached_tokens":8}}}\n\n',
          b"data: [DONE]\n\n", b'data: {"error":{"message":"no"}}\n\n',
          b'{"id":"resp_1","usage":{"input_tokens":9}}\n', b"\r\n", b"data:")


def mutated(rng, data):
    """Returns the value with some bytes changed, inserted or removed."""
    data = bytearray(data)

    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(4)
        if kind == 0:
            data[at:at] = rng.choice(ODD)
        elif kind == 1:
            data[at:at + rng.randrange(1, 6)] = b""
        elif kind == 2:
            data[at:at + 1] = bytes((rng.randrange(33, 256),))
        else:
            data[at:at] = data[:rng.randrange(20)]

    return bytes(data)


def header(value):
    return bytes(c for c in value if c >= 32 and c != 127 or c == 9)


def line(value):
    """Escapes a value for a request line; nginx rejects other bytes itself."""
    return bytes(c for c in value if c > 32 and c != 127 and c != ord("#"))


# --- requests

class Client:
    def __init__(self, port):
        self.port = port
        self.s = None
        self.last = None
        self.data = b""

    def send(self, data):
        if self.s is None:
            self.s = socket.create_connection(("127.0.0.1", self.port), 60)
            self.data = b""
        self.s.sendall(data)

    def more(self):
        data = self.s.recv(1 << 16)
        if not data:
            raise EOFError("the connection was closed: %r" % self.data[:200])
        self.data += data

    def close(self):
        if self.s:
            self.s.close()
            self.s = None

    def answer(self):
        """Returns status, headers and body of the next response."""
        while b"\r\n\r\n" not in self.data:
            self.more()

        head, self.data = self.data.split(b"\r\n\r\n", 1)
        lines = head.split(b"\r\n")
        status = int(lines[0].split()[1])
        headers = {k.lower(): v for k, _, v in
                   (s.partition(b": ") for s in lines[1:])}

        if b"content-length" in headers:
            n = int(headers[b"content-length"])
            while len(self.data) < n:
                self.more()
            body, self.data = self.data[:n], self.data[n:]
            return status, headers, body

        if headers.get(b"transfer-encoding") != b"chunked":
            return status, headers, b""

        body = []

        while True:
            while b"\r\n" not in self.data:
                self.more()
            size, self.data = self.data.split(b"\r\n", 1)
            n = int(size, 16)
            while len(self.data) < n + 2:
                self.more()
            body.append(self.data[:n])
            self.data = self.data[n + 2:]
            if n == 0:
                return status, headers, b"".join(body)


def api(rng, client, engine):
    peer = b"127.0.0.1:%d" % engine.port
    requests = []

    for _ in range(BATCH):
        path = rng.choice((b"/api/", b"/look/", b"/kvroute/json/", b"/kvroute/"))
        path += rng.choice((b"flush?peer=" + peer, b"drain?peer=" + peer,
                            b"undrain?peer=" + peer, b"reset", b"upstreams/u",
                            b"capacity?peer=" + peer + b"&size=64m", b"",
                            b"upstreams/u/peers/0/decisions", b"metrics"))
        at = path.index(b"/", 1) + 1
        path = path[:at] + line(mutated(rng, path[at:]))
        more = b""

        if rng.random() < .3:
            more = rng.choice((b"Origin: ", b"Sec-Fetch-Site: ", b"Referer: "))
            more += header(mutated(rng, b"http://127.0.0.1:80")) + b"\r\n"

        requests.append(b"%s %s HTTP/1.1\r\nHost: a\r\n%s"
                        b"Content-Length: 0\r\n\r\n"
                        % (rng.choice((b"POST", b"POST", b"GET")), path, more))

    for request in requests:
        client.send(request)
        client.last = request
        status, headers, body = client.answer()

        if status in (400, 414) and b"<html>" in body:
            client.close()              # nginx's own, which ends it there
            continue

        if headers.get(b"content-type", b"").startswith(b"application/json"):
            json.loads(body)
        elif status >= 500:
            raise ValueError("%r: %d" % (request, status))

    return len(requests)


def strings(rng, client, engine):
    base = (b"interactive", b"3", b"tenant-a", b"4", b"1500ms", b"salt",
            b"127.0.0.1:%d" % engine.port)
    body = b'{"model":"m","service_tier":"%s","priority":%d,"prompt":"%s"}'

    for _ in range(BATCH):
        text = body % (rng.choice((b"default", b"flex", b"priority")),
                       rng.randrange(-5, 20), b"x" * rng.randrange(2000))
        more = b"".join(
            b"%s: %s\r\n" % (name, header(mutated(rng, rng.choice(base))))
            for name in (b"X-Class", b"X-Tenant", b"X-Weight", b"X-Deadline",
                         b"X-Salt", b"X-Pin"))
        client.send(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
                    b"Content-Type: application/json\r\nX-Case: 0\r\n%s"
                    b"Content-Length: %d\r\n\r\n%s"
                    % (more, len(text), text))
        status = client.answer()[0]

        if status == 400:
            client.close()
        elif status not in (200, 429):
            raise ValueError("status %d for %r" % (status, more))

    return BATCH


def responses(rng, client, engine):
    text = b'{"model":"m","stream":true,"prompt":"what is it"}'

    for _ in range(BATCH):
        case = rng.randrange(1, 1 << 40)
        client.send(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\n"
                    b"Content-Type: application/json\r\nX-Case: %d\r\n"
                    b"Content-Length: %d\r\n\r\n%s" % (case, len(text), text))
        status, headers, body = client.answer()
        want = reply(case)

        if status != 200 or body != want[1]:
            raise ValueError("case %d: status %d, %d bytes, not %d"
                             % (case, status, len(body), len(want[1])))

    return BATCH


# --- the engine

def reply(case):
    """Returns headers and body by number."""
    if case == 0:
        return b"Content-Type: application/json\r\n", b'{"ok":1}'

    rng = random.Random(case)
    body = b"".join(rng.choice(EVENTS) for _ in range(rng.randrange(1, 20)))
    head = b"Content-Type: %s\r\n" % rng.choice((
        b"text/event-stream", b"application/json", b"application/x-ndjson",
        b"text/event-stream; charset=utf-8"))

    if rng.random() < .4:
        body = mutated(rng, body)

    if rng.random() < .4:
        body = gzip.compress(body, 1, mtime=0)
        head += b"Content-Encoding: gzip\r\n"
        if rng.random() < .5:
            body = mutated(rng, body)
        if rng.random() < .3:
            body = body[:rng.randrange(len(body) + 1)]

    return head, body


class Engine:
    """Sends the answer that the request names, in pieces of any size."""

    def __init__(self):
        self.listen = socket.create_server(("127.0.0.1", 0))
        self.port = self.listen.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            s, _ = self.listen.accept()
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def serve(self, s):
        data = b""

        while True:
            while b"\r\n\r\n" not in data:
                more = s.recv(1 << 16)
                if not more:
                    return s.close()
                data += more

            head, data = data.split(b"\r\n\r\n", 1)
            head = head.lower()
            n, case = (int((re.findall(name + rb": (\d+)", head) or [0])[-1])
                       for name in (rb"content-length", rb"x-case"))

            while len(data) < n:
                data += s.recv(1 << 16)

            data = data[n:]
            self.send(s, case)

    @staticmethod
    def send(s, case):
        more, body = reply(case)
        rng = random.Random(case + 1)

        if rng.random() < .5:
            out = (b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s"
                   % (more, len(body), body))
        else:
            chunks = b""
            at = 0
            while at < len(body):
                n = rng.randrange(1, 60)
                piece = body[at:at + n]
                chunks += b"%x\r\n%s\r\n" % (len(piece), piece)
                at += n
            out = (b"HTTP/1.1 200 OK\r\n%sTransfer-Encoding: chunked\r\n\r\n"
                   b"%s0\r\n\r\n" % (more, chunks))

        if case == 0 or rng.random() < .5:
            s.sendall(out)
            return

        while out:
            n = rng.randrange(1, 200)
            s.sendall(out[:n])
            out = out[n:]


def main():
    kind, seconds = sys.argv[1], float(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else time.time_ns()
    rng = random.Random(seed)
    engine = Engine()
    nginx = rig.Nginx(HTTP, servers="server 127.0.0.1:%d max_fails=0; "
                      "server 127.0.0.1:%d down;" % (engine.port, engine.port))
    client = Client(nginx.port)
    end = time.monotonic() + seconds
    n = 0

    try:
        while time.monotonic() < end:
            n += {"api": api, "strings": strings,
                  "responses": responses}[kind](rng, client, engine)
    except (ValueError, EOFError, OSError) as e:
        print("seed %d, after %d: %s\n%r\n%r" % (
            seed, n, e, client.last, client.data[:300]), file=sys.stderr)
        raise SystemExit(1)
    finally:
        client.close()
        nginx.stop()

    print(json.dumps({"executions": n, "seed": seed}))


if __name__ == "__main__":
    main()
