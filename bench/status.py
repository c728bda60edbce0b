#!/usr/bin/env python3
"""Cost of the status for 64 and 512 peers with 4 workers, as JSON and as
Prometheus text; and cost of probes and health checks of engines.

Prints a table and writes build/bench/status.json: milliseconds of an answer at
the client, and the CPU share of one worker for one request per second.  Fails if
the JSON of 64 peers takes more than 20 ms or 1 %.
Environment: MODULE, NGINX_BIN.
"""

import http.client
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "common"))

from ports import free_ports  # noqa: E402
from rig import (RESULTS, Nginx, Process, cpu, median,  # noqa: E402
                 quantile, save)

PEERS, MANY = 64, 512
WORKERS = 4
REQUESTS = 400
SECONDS = 20
LIMIT_MS, LIMIT_CPU = 20, .01

HTTP = """
    kvroute_zone zone=llm:16m max_peers=@peers@;
    upstream llm {
        zone llm_peers 4m;
        kvroute kv_cache zone=llm max_pending=1m;
        kvroute_queue max=64;
        @servers@
    }
    proxy_next_upstream off;
    server {
        listen 127.0.0.1:@port@;
        location / { proxy_pass http://llm; }
        location /kvroute/ { kvroute_status; }
    }
"""

PROBED = """
    kvroute_zone zone=llm:16m max_peers=@peers@;
    upstream llm {
        zone llm_peers 4m;
        kvroute kv_cache zone=llm;
        kvroute_probe;
        kvroute_health;
        @servers@
    }
    server {
        listen 127.0.0.1:@port@;
        location / { proxy_pass http://llm; }
        location /kvroute/ { kvroute_status; }
    }
"""


def ask(conn, uri, body=None):
    conn.request("POST" if body else "GET", uri, body,
                 {"Content-Type": "application/json"})
    return conn.getresponse().read()


def measure(conn, nginx, uri, requests):
    times = []
    size = 0
    ask(conn, uri)
    before = cpu(nginx.pid)
    for _ in range(requests):
        start = time.perf_counter()
        size = len(ask(conn, uri))
        times.append(time.perf_counter() - start)
    used = (cpu(nginx.pid) - before) / requests
    return {"bytes": size,
            "median_ms": round(1e3 * median(times), 3),
            "p99_ms": round(1e3 * quantile(times, .99), 3),
            "cpu_at_1hz": round(used, 6)}


def measure_all(peers, requests):
    nginx = Nginx(HTTP, workers=WORKERS, peers=str(peers),
                  servers=servers(peers, 9))
    conn = http.client.HTTPConnection("127.0.0.1", nginx.port)

    # no server answers, but decisions are made

    for i in range(200):
        ask(conn, "/", json.dumps({"model": "m", "messages": [
            {"role": "user", "content": f"word{i} " * 500}]}))

    result = {"peers": peers, "workers": WORKERS, "requests": requests,
              "json": measure(conn, nginx, "/kvroute/json", requests),
              "prometheus": measure(conn, nginx, "/kvroute/metrics", requests),
              "page": measure(conn, nginx, "/kvroute/", requests)}
    nginx.stop()

    print(f"{peers} peers, {WORKERS} workers")
    print("             bytes   median      P99   CPU at 1 Hz")
    for name in ("json", "prometheus", "page"):
        r = result[name]
        print(f"{name:<10} {r['bytes']:>7} {r['median_ms']:>5.2f} ms "
              f"{r['p99_ms']:>5.2f} ms   {100 * r['cpu_at_1hz']:.3f} %")

    return result


def servers(peers, port):
    return "\n".join(f"server 127.0.{1 + i // 250}.{1 + i % 250}:{port} max_fails=0;"
                     for i in range(peers))


def measure_probes(peers):
    """One engine listens on all addresses and stands for all servers."""
    port = free_ports(1)
    engine = Process([os.environ["BUILD"] + "/t/engine", "--host", "0.0.0.0",
                      "--port", str(port)], stderr=subprocess.DEVNULL)
    nginx = Nginx(PROBED, peers=str(peers), servers=servers(peers, port))

    time.sleep(3)
    spent, start = cpu(nginx.pid), time.time()
    time.sleep(SECONDS)
    spent = (cpu(nginx.pid) - spent) / (time.time() - start)

    nginx.stop()
    engine.stop()

    print(f"{peers} peers, asked once a second: {100 * spent:.2f} % of a core")
    return round(spent, 6)


def main():
    result = measure_all(PEERS, REQUESTS)
    result["many"] = measure_all(MANY, REQUESTS // 8)
    result["probes_cpu"] = {str(n): measure_probes(n) for n in (PEERS, MANY)}

    kept = (result["json"]["median_ms"] <= LIMIT_MS
            and result["json"]["cpu_at_1hz"] <= LIMIT_CPU)
    result["limits"] = {"median_ms": LIMIT_MS, "cpu_at_1hz": LIMIT_CPU,
                        "kept": kept}
    print(f"JSON of {PEERS} within {LIMIT_MS} ms and {100 * LIMIT_CPU:.0f} % of a worker: "
          + ("yes" if kept else "no"))

    save(f"{RESULTS}/status.json", result)

    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
