#!/usr/bin/env python3
"""What the status costs: 64 peers, 4 workers, JSON and Prometheus text.

Prints a table and writes build/bench/status.json: milliseconds of an answer as
the client sees it, and the share of one worker's CPU that asking once a second
takes.  Says whether the JSON keeps to 20 ms and 1 %; ends with 1 if it does not.
Environment: MODULE, NGINX_BIN.
"""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "common"))

from places import BUILD, MODULE, NGINX  # noqa: E402
from ports import free_ports  # noqa: E402

PEERS = 64
WORKERS = 4
REQUESTS = 400
LIMIT_MS, LIMIT_CPU = 20, .01

CONF = """
load_module {module};
{user}
worker_processes {workers};
pid {dir}/nginx.pid;
error_log {dir}/error.log crit;
events {{ worker_connections 512; }}
http {{
    access_log off;
    {temp}
    kvroute_zone zone=llm:16m;
    upstream llm {{
        zone llm_peers 512k;
        kvroute kv_cache zone=llm max_pending=1m;
        kvroute_queue max=64;
        {servers}
    }}
    proxy_next_upstream off;
    server {{
        listen 127.0.0.1:{port};
        location / {{ proxy_pass http://llm; }}
        location /kvroute/ {{ kvroute_status; }}
    }}
}}
"""


def ask(conn, uri, body=None):
    conn.request("POST" if body else "GET", uri, body,
                 {"Content-Type": "application/json"})
    return conn.getresponse().read()


def cpu(pids):
    ticks = 0
    for pid in pids:
        with open(f"/proc/{pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def workers(master):
    with open(f"/proc/{master}/task/{master}/children") as f:
        return f.read().split()


def measure(conn, pids, uri):
    times = []
    size = 0
    ask(conn, uri)
    before = cpu(pids)
    for _ in range(REQUESTS):
        start = time.perf_counter()
        size = len(ask(conn, uri))
        times.append(time.perf_counter() - start)
    used = (cpu(pids) - before) / REQUESTS
    times.sort()
    return {"bytes": size,
            "median_ms": round(1e3 * times[len(times) // 2], 3),
            "p99_ms": round(1e3 * times[int(len(times) * .99)], 3),
            "cpu_at_1hz": round(used, 6)}


def main():
    tmp = tempfile.mkdtemp(prefix="kvroute-status-")
    port = free_ports(1)
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    with open(f"{tmp}/nginx.conf", "w") as f:
        f.write(CONF.format(
            module=MODULE, dir=tmp, port=port, workers=WORKERS,
            user="user root;" if os.getuid() == 0 else "",
            temp=" ".join(f"{n}_temp_path {tmp}/{n};" for n in names),
            servers="\n".join(f"server 127.0.1.{i + 1}:9 max_fails=0;"
                              for i in range(PEERS))))
    nginx = subprocess.Popen([NGINX, "-p", tmp, "-c", f"{tmp}/nginx.conf",
                                      "-e", f"{tmp}/error.log",
                                      "-g", "daemon off;"])
    try:
        for _ in range(500):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(.01)

        conn = http.client.HTTPConnection("127.0.0.1", port)

        # nobody is there to answer, but decisions are made

        for i in range(200):
            ask(conn, "/", json.dumps({"model": "m", "messages": [
                {"role": "user", "content": f"word{i} " * 500}]}))

        pids = workers(nginx.pid)
        result = {"peers": PEERS, "workers": WORKERS, "requests": REQUESTS,
                  "json": measure(conn, pids, "/kvroute/json"),
                  "prometheus": measure(conn, pids, "/kvroute/metrics"),
                  "page": measure(conn, pids, "/kvroute/")}
    finally:
        nginx.send_signal(signal.SIGTERM)
        nginx.wait()
        shutil.rmtree(tmp)

    print(f"{PEERS} peers, {WORKERS} workers")
    print("             bytes   median      P99   CPU at 1 Hz")
    for name in ("json", "prometheus", "page"):
        r = result[name]
        print(f"{name:<10} {r['bytes']:>7} {r['median_ms']:>5.2f} ms "
              f"{r['p99_ms']:>5.2f} ms   {100 * r['cpu_at_1hz']:.3f} %")

    kept = (result["json"]["median_ms"] <= LIMIT_MS
            and result["json"]["cpu_at_1hz"] <= LIMIT_CPU)
    result["limits"] = {"median_ms": LIMIT_MS, "cpu_at_1hz": LIMIT_CPU,
                        "kept": kept}
    print(f"JSON within {LIMIT_MS} ms and {100 * LIMIT_CPU:.0f} % of a worker: "
          + ("yes" if kept else "no"))

    os.makedirs(f"{BUILD}/bench", exist_ok=True)
    with open(f"{BUILD}/bench/status.json", "w") as f:
        json.dump(result, f, indent=2)
        f.write("\n")

    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
