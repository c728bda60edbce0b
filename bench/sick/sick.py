"""make bench-sick: one of eight engines is sick, in each way of a list.

The same requests go at a fixed rate through kvroute, round robin and least_conn
at the same time, each with its own engines (t/engine, in real time).  At first
all engines are healthy, then one becomes sick.  From then on a request has
suffered if it failed, or if it took over twice the P95 of the healthy time. No
request is retried (proxy_next_upstream off), and nginx marks no server failed
(max_fails=0), so the figures show the balancer's choice alone.  The engine that
answers 500 at once runs a second time, with the settings for retries in
docs/setup.md.

Then one engine stalls before 1 of 50 first tokens, with kvroute_first_token and
without.  The bench reports the P99.9 of first tokens and the computed prompt
tokens, also in build/bench/unbroken.json.

Prints a table with the aim of each row: at most a quarter of round robin's;
with retries no failed request, except for the first 20 that the sick engine
gets.  Writes build/bench/sick.json.

    KINDS="fail-fast stalled"   runs these kinds only
    RATE=16 SECONDS=30          requests per second, seconds of sickness
    FIRST_RATE=32 FIRST=120     the same for the first tokens
"""

import json
import multiprocessing
import os
import random
import re
import select
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../common"))

from rig import (RESULTS, Engines, Nginx, get, merge, quantile,  # noqa: E402
                 request, save)

ENGINES = 8
HARDWARE = "devstral-24b-fp8-h100"
TOKENS, SYSTEM, OWN = 32, 2048, 4096
HEALTHY = 10                    # seconds before the sickness
TIMEOUT = 5                     # proxy_read_timeout
GIVE_UP = 15                    # timeout of a client

RATE = float(os.environ.get("RATE") or 16)
SECONDS = float(os.environ.get("SECONDS") or 30)

FIRST_RATE = float(os.environ.get("FIRST_RATE") or 32)
FIRST_SECONDS = float(os.environ.get("FIRST") or 120)
STALL = 10                      # seconds of a stall
FIRST = "first token"

POLICIES = {
    "kvroute": "kvroute kv_cache zone=llm;",
    "round_robin": "",
    "least_conn": "least_conn;",
}

NEXT = {
    "off": "proxy_next_upstream off;",
    "on": "proxy_next_upstream error timeout http_500 http_502 http_503"
          " non_idempotent; proxy_next_upstream_tries 2;",
}

# commands for the engine; a list: one after another, 3 seconds each
KINDS = {
    "fail-fast": {"fault": "status=500"},
    "reset": {"fault": "reset-before-headers"},
    "slow": {"replica_speed": 0.1},
    "stalled": {"fault": "stall=3"},
    "flapping": [{"fault": "status=500"}, {"fault": "none"}],
    "half-open": {"fault": "hang"},
    "wrong model": {"fault": "status=404"},
    "wrong key": {"fault": "status=401"},
    "forbidden": {"fault": "status=403"},
    "bad request": {"fault": "status=400"},
    "busy": {"fault": "status=429"},
    "truncating": {"fault": "truncate=3"},
    "error in 200": {"fault": "error-in-stream=3"},
}

HTTP = """
    @zone@

    upstream llm {
        zone llm_peers 256k;
        @balancer@
        @servers@
    }
    server {
        listen 127.0.0.1:@port@ backlog=256;
        location / {
            proxy_pass http://llm;
            proxy_buffering off;
            proxy_read_timeout @timeout@s;
            @next@
            @first@
        }
        location /kvroute/ { kvroute_status; }
    }
"""


def text(seed, size):
    words = random.Random(seed)
    return " ".join("%x" % words.getrandbits(32)
                    for _ in range(size // 8))[:size]


def requests(kind, rate=RATE, seconds=SECONDS):
    """Returns (seconds, body) of each request: a shared system prompt, and its
    own."""
    r = random.Random(kind)
    at, due = 0, []

    while True:
        at += r.expovariate(rate)
        if at > HEALTHY + seconds:
            return due
        due.append((at, json.dumps({
            "model": "emulated", "stream": True, "max_tokens": TOKENS,
            "ignore_eos": True,
            "messages": [
                {"role": "system", "content": text("system", SYSTEM)},
                {"role": "user",
                 "content": text("%s %d" % (kind, len(due)), OWN)}],
        }).encode()))


class Request:
    """A client that is polled."""

    def __init__(self, port, data, due):
        self.due = due
        self.start = time.monotonic()
        self.end = None
        self.first = None
        self.got = b""
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\n"
            b"Content-Type: application/json\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self.socket.setblocking(False)

    def read(self, now):
        """Reads what has arrived; returns whether the answer is complete or too
        late."""
        try:
            part = self.socket.recv(1 << 18)
            self.got += part
            if self.first is None and b"\ndata: {" in self.got:
                self.first = time.monotonic() - self.start
            if part:
                return False
        except BlockingIOError:
            if now - self.start < GIVE_UP:
                return False
        except OSError:
            pass

        self.end = time.monotonic()
        self.socket.close()
        return True

    def good(self):
        return (self.got.startswith(b"HTTP/1.1 200") and b"[DONE]" in self.got
                and b'{"error"' not in self.got)

    def took(self):
        return self.end - self.start


def play(port, due):
    begin = time.monotonic()
    made, opened = [], []

    while len(made) < len(due) or opened:
        now = time.monotonic()

        while len(made) < len(due) and due[len(made)][0] <= now - begin:
            made.append(Request(port, due[len(made)][1], due[len(made)][0]))
            opened.append(made[-1])

        opened = [r for r in opened if not r.read(now)]
        select.select([r.socket for r in opened], [], [], 0.005)

    return made


def fall_sick(port, what, over):
    time.sleep(HEALTHY)
    parts = what if isinstance(what, list) else [what]
    n = 0

    while not over.is_set():
        request(port, "POST", "/control", parts[n % len(parts)])
        n += 1
        over.wait(3 if len(parts) > 1 else None)


def run(policy, kind, following, results):
    engines = Engines(ENGINES, "--hardware", HARDWARE)
    nginx = Nginx(HTTP, workers=2, connections=1024, timeout=TIMEOUT,
                  balancer=POLICIES[policy], servers=engines.servers("max_fails=0"),
                  next=NEXT[following], first="",
                  zone="kvroute_zone zone=llm:16m;"
                       if "kvroute" in POLICIES[policy] else "")

    # making the bodies takes time: both clocks start after it

    due = requests(kind)
    over = threading.Event()
    sick = threading.Thread(target=fall_sick,
                            args=(engines.port, KINDS[kind], over))
    sick.start()

    made = play(nginx.port, due)

    over.set()
    sick.join()

    before = [r for r in made if r.due < HEALTHY - 1 and r.good()]
    after = [r for r in made if r.due >= HEALTHY]
    usual = quantile([r.took() for r in before], 0.95)
    failed = [r for r in after if not r.good()]
    late = [r for r in after if r.good() and r.took() > 2 * usual]

    row = {"policy": policy, "requests": len(after), "failed": len(failed),
           "late": len(late), "healthy_p95_s": round(usual, 4),
           "share": round((len(failed) + len(late)) / len(after), 4)}

    if policy == "kvroute":
        peer = nginx.peers("llm")[0]
        row["ejections"] = peer["ejections"]
        row["reason"] = peer.get("ejected", {}).get("reason")

    nginx.stop()
    engines.stop()
    results.put((policy, row))


def computed(engines):
    """Returns the prompt tokens that engines have computed or begun to
    compute."""
    text = "".join(get(p, "/metrics").decode() for p in engines.ports)

    def total(name):
        return sum(float(v) for v in re.findall(
            r"^vllm:prefix_cache_%s_total\S* (\S+)$" % name, text, re.M))

    return total("queries") - total("hits")


def first_tokens(first, results):
    engines = Engines(ENGINES, "--hardware", HARDWARE)
    nginx = Nginx(HTTP, workers=2, connections=1024, timeout=60, first=first,
                  balancer=POLICIES["kvroute"],
                  servers=engines.servers("max_fails=0"), next=NEXT["off"],
                  zone="kvroute_zone zone=llm:16m;")
    due = requests(FIRST, FIRST_RATE, FIRST_SECONDS)

    request(engines.port, "POST", "/control",
            {"fault": "stall=0", "fault_rate": 0.02, "stall_ms": 1000 * STALL})

    made = play(nginx.port, due)
    after = [r for r in made if r.due >= HEALTHY]
    late = nginx.status()["upstreams"]["llm"].get("late", {})

    row = {"requests": len(after), "late": late,
           "failed": sum(not r.good() for r in after),
           "computed_tokens": computed(engines)}

    for q in (0.5, 0.99, 0.999):
        row["ttft_p%g_s" % (100 * q)] = round(
            quantile([r.first or GIVE_UP for r in after], q), 4)

    nginx.stop()
    engines.stop()
    results.put((first, row))


def at_once(target, seconds, runs):
    """Calls target(*run, results) for all runs at once; returns the (name,
    figures) pairs that they put into results, as a dictionary."""
    results = multiprocessing.Queue()
    processes = [multiprocessing.Process(target=target, args=run + (results,))
                 for run in runs]

    for process in processes:
        process.start()

    found = dict(results.get(timeout=HEALTHY + seconds + 120)
                 for _ in processes)

    for process in processes:
        process.join()

    return found


def first_token():
    """Runs the same requests with the directive and without."""
    ways = ("kvroute_first_token auto;", "")
    found = at_once(first_tokens, FIRST_SECONDS, [(way,) for way in ways])
    on, off = (found[way] for way in ways)

    return {"p999_ratio": round(on["ttft_p99.9_s"] / off["ttft_p99.9_s"], 4),
            "extra_prefill": round(on["computed_tokens"]
                                   / off["computed_tokens"] - 1, 5),
            "with": on, "without": off}


def together(kind, following):
    found = at_once(run, SECONDS, [(policy, kind, following)
                                   for policy in POLICIES])

    return [dict(found[policy], kind=kind, retries=following)
            for policy in POLICIES]


def main():
    kinds = [k for k in KINDS if k in os.environ["KINDS"]] \
        if os.environ.get("KINDS") else list(KINDS)

    if not os.environ.get("KINDS") or FIRST in os.environ["KINDS"]:
        first = first_token()
        merge(os.path.join(RESULTS, "unbroken.json"), first_token=first)
        print("a stall before 1 of 50 first tokens of one engine:\n%s\n"
              % json.dumps(first, indent=1))

        if not kinds:
            return

    rows, aims = [], {}

    head = "%-13s %-8s %9s   %s"
    print("one of %d engines is sick; share of %.0f requests that failed or "
          "took over 2 x the healthy P95\n" % (ENGINES, RATE * SECONDS))
    print(head % ("kind", "retries", "", "  ".join("%-18s" % p
                                                   for p in POLICIES)))

    for kind, following in [(k, "off") for k in kinds] \
            + [("fail-fast", "on")] * ("fail-fast" in kinds):
        part = together(kind, following)
        rows += part

        print(head % (kind, following, "", "  ".join(
            "%-18s" % ("%5.1f %% (%d+%d late)"
                       % (100 * r["share"], r["failed"], r["late"]))
            for r in part)))
        sys.stdout.flush()

        if following == "off":
            aims[kind] = [round(part[1]["share"] / 4, 4), part[0]["share"]]
        else:
            aims["failed with retries"] = [0, part[0]["failed"]]

    print("\n%-20s %9s %9s" % ("", "aim", "measured"))

    for key, (aim, have) in aims.items():
        print("%-20s %9g %9g%s" % (key, aim, have,
                                   "" if have <= aim else "  missed"))

    path = os.path.join(RESULTS, "sick.json")
    save(path, {"engines": ENGINES, "rate": RATE, "seconds": SECONDS,
                "rows": rows, "aims": aims})
    print("\n%s" % os.path.relpath(path))


if __name__ == "__main__":
    main()
