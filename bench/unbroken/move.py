"""make bench-unbroken, the part "move": an engine with 100 streams is drained.

Three emulated engines (t/engine, in real time) stream to 300 clients, 100 each.
One is drained with move=1.  Measures the seconds until it has no request, the
cut answers, and the P99 of the time between two events of the other streams,
before and during the move.  Writes "move" of build/bench/unbroken.json.

    STREAMS=100 of the engine that is drained
"""

import json
import os
import selectors
import socket
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "common"))

from rig import (RESULTS, Engines, Nginx, merge, quantile,  # noqa: E402
                 request, wait)

ENGINES = 3
HARDWARE = "devstral-24b-fp8-h100"
STREAMS = int(os.environ.get("STREAMS") or 100)
TOKENS = 1500
PROMPT = 4096
BEFORE = 10                     # seconds

HTTP = """
    kvroute_zone zone=llm:16m;

    upstream llm {
        zone llm_peers 256k;
        kvroute least_request zone=llm;
        @servers@
    }
    server {
        listen 127.0.0.1:@port@ backlog=1024;
        location / {
            proxy_pass http://llm;
            proxy_buffering off;
            kvroute_continue on;
            add_header X-Peer $kvroute_peer;
        }
        location /kvroute/ { kvroute_status; }
        location /api/ { kvroute_api write=on; }
    }
"""


class Stream:
    """An answer that is read as it arrives."""

    def __init__(self, port, n):
        data = json.dumps({
            "model": "emulated", "stream": True, "max_tokens": TOKENS,
            "ignore_eos": True, "messages": [
                {"role": "user", "content": ("%d " % n) * (PROMPT // 4)}]})
        self.got = b""
        self.peer = None
        self.events = []        # times
        self.open = True
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\n"
            b"Content-Type: application/json\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(data), data.encode()))
        self.socket.setblocking(False)

    def read(self):
        part = self.socket.recv(1 << 16)
        now = time.monotonic()

        if not part:
            self.open = False
            self.socket.close()
            return

        self.got += part

        if self.peer is None and b"\r\n\r\n" in self.got:
            self.peer = self.got.split(b"X-Peer: ")[1].split(b"\r\n")[0].decode()

        self.events += [now] * part.count(b"\ndata: {")

    def cut(self):
        return b"data: [DONE]" not in self.got or b'{"error"' in self.got


def gaps(streams, begin, end):
    """Returns the P99 of the seconds between events in this period."""
    return quantile([b - a for s in streams
                     for a, b in zip(s.events, s.events[1:])
                     if begin <= b < end], 0.99)


def main():
    engines = Engines(ENGINES, "--hardware", HARDWARE, "--continue",
                      "--max-num-seqs", "1000")
    nginx = Nginx(HTTP, connections=4096,
                  servers=engines.servers("max_fails=0"))
    address = "127.0.0.1:%d" % engines.port
    selector = selectors.DefaultSelector()
    streams = []

    def read(until):
        while not until():
            for key, _ in selector.select(0.01):
                key.data.read()
                if not key.data.open:
                    selector.unregister(key.fileobj)

    for n in range(ENGINES * STREAMS):
        streams.append(Stream(nginx.port, n))
        selector.register(streams[-1].socket, selectors.EVENT_READ, streams[-1])

    read(lambda: all(len(s.events) > 2 for s in streams))

    begin = time.monotonic()
    read(lambda: time.monotonic() > begin + BEFORE)

    leaving = [s for s in streams if s.peer == address]
    staying = [s for s in streams if s.peer != address]
    asked = {"at": 0}

    def empty():
        """Reads the status ten times a second."""
        if time.monotonic() < asked["at"]:
            return False
        asked["at"] = time.monotonic() + 0.1
        return nginx.peers("llm")[0]["active"] == 0

    drained = time.monotonic()
    request(nginx.port, "POST", "/api/drain?peer=%s&move=1" % address)
    read(empty)
    emptied = time.monotonic()

    read(lambda: not any(s.open for s in streams))

    upstream = nginx.status()["upstreams"]["llm"]
    before = gaps(staying, begin, drained)
    during = gaps(staying, drained, emptied + 1)

    out = {"streams": len(leaving), "others": len(staying),
           "seconds": round(emptied - drained, 2),
           "cut": sum(s.cut() for s in streams),
           "moved": upstream["continued"]["moved"],
           "p99_gap_before_ms": round(1000 * before, 1),
           "p99_gap_during_ms": round(1000 * during, 1),
           "added_p99_ms": round(1000 * (during - before), 1)}

    nginx.stop()
    engines.stop()

    merge(os.path.join(RESULTS, "unbroken.json"), move=out)
    print(json.dumps({"move": out}, indent=1))

    return out["cut"] > 0 or out["seconds"] > 5


if __name__ == "__main__":
    sys.exit(main())
