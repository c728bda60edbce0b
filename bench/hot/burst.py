"""make bench-hot: one prompt that 64 clients send at once, to 4 engines.

Emulated engines (t/engine), of a Llama 8B on an A100 each, behind nginx with
the module.  Each row is a burst of 64 streams, 64 tokens each, of one prompt
that no engine has, or that one engine has, under one policy.  Times are seen
by the clients.  Prints a table and writes build/bench/hot.json.

    POLICIES="round_robin kv_cache"   the policies
    RUNS=3                            bursts for each row, all counted
"""

import http.client
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "common"))

from places import BUILD, ENGINE, MODULE, NGINX  # noqa: E402
from ports import free_ports  # noqa: E402

POLICIES = (os.environ.get("POLICIES")
            or "round_robin random least_request prefix kv_cache")
RUNS = int(os.environ.get("RUNS") or 3)

HARDWARE = "llama-8b-bf16-a100"
ENGINES, BURST, TOKENS = 4, 64, 64

CONF = """
load_module %(module)s;
worker_processes 2;
error_log %(dir)s/error.log warn;
pid %(dir)s/nginx.pid;
events { worker_connections 1024; }
http {
    access_log off;
    client_body_temp_path %(dir)s/body;
    proxy_temp_path %(dir)s/proxy;
    fastcgi_temp_path %(dir)s/fastcgi;
    uwsgi_temp_path %(dir)s/uwsgi;
    scgi_temp_path %(dir)s/scgi;

    kvroute_zone zone=llm:16m;

    upstream llm {
        zone llm_peers 256k;
        kvroute %(policy)s zone=llm;
        %(servers)s
    }
    server {
        listen 127.0.0.1:%(port)d backlog=256;
        client_body_buffer_size 1m;
        location /kvroute { kvroute_status; }
        location / {
            proxy_pass http://llm;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
        }
    }
}
"""


def wait_for(port, process):
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.02)

    sys.exit("%s has ended" % process.args[0])


def prompt(seed, size):
    words = random.Random(seed)
    text = ""

    while len(text) < size:
        text += "%x " % words.getrandbits(32)

    return json.dumps({"model": "emulated", "stream": True,
                       "max_tokens": TOKENS, "ignore_eos": True,
                       "messages": [{"role": "user",
                                     "content": text[:size]}]})


def ask(port, body):
    """Seconds to the first token and to the end, and who answered."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    start = time.monotonic()
    first = None

    connection.request("POST", "/v1/chat/completions", body,
                       {"Content-Type": "application/json"})
    response = connection.getresponse()

    if response.status != 200:
        raise RuntimeError("status %d" % response.status)

    for line in response:
        if (first is None and line.startswith(b"data: {")
                and b'"content":"' in line and b'"content":""' not in line):
            first = time.monotonic() - start

    connection.close()

    return first, time.monotonic() - start, response.getheader(
        "X-Engine-Replica")


def burst(port, body):
    results, errors = [], []
    together = threading.Barrier(BURST)

    def client():
        together.wait()
        try:
            results.append(ask(port, body))
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=client) for _ in range(BURST)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    if errors:
        sys.exit("%d requests failed: %s" % (len(errors), errors[0]))

    return results


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))]


def row(policy, size, state, runs):
    first = [r[0] for run in runs for r in run]
    end = [r[1] for run in runs for r in run]
    most = []

    for run in runs:
        count = {}
        for r in run:
            count[r[2]] = count.get(r[2], 0) + 1
        most.append(sorted(count.values(), reverse=True)
                    + [0] * (ENGINES - len(count)))

    return {
        "policy": policy, "prompt_bytes": size, "state": state,
        "requests": len(first),
        "ttft_mean_s": round(sum(first) / len(first), 4),
        "ttft_p95_s": round(quantile(first, 0.95), 4),
        "end_mean_s": round(sum(end) / len(end), 4),
        "end_p95_s": round(quantile(end, 0.95), 4),
        "requests_per_engine": most,
    }


def play(policy, port):
    rows = []

    for size in (8192, 32768):
        for state in ("cold", "warm"):
            runs = []

            for n in range(RUNS):
                body = prompt("%s %d %s %d" % (policy, size, state, n), size)

                if state == "warm":
                    ask(port, body)

                runs.append(burst(port, body))

            rows.append(row(policy, size, state, runs))

    return rows


def main():
    folder = tempfile.mkdtemp(prefix="kvroute-hot-")
    processes, rows = [], []

    def end():
        for process in processes:
            process.terminate()
            process.wait()
        processes.clear()

    try:
        for policy in POLICIES.replace(",", " ").split():
            first = free_ports(ENGINES)
            processes.append(subprocess.Popen([
                ENGINE, "--port", str(first),
                "--count", str(ENGINES), "--hardware", HARDWARE],
                stdout=subprocess.DEVNULL))

            for port in range(first, first + ENGINES):
                wait_for(port, processes[0])

            port = free_ports(1)
            conf = os.path.join(folder, "nginx.conf")

            with open(conf, "w") as f:
                f.write(CONF % {
                    "module": MODULE, "dir": folder, "policy": policy,
                    "port": port, "servers": " ".join(
                        "server 127.0.0.1:%d;" % p
                        for p in range(first, first + ENGINES))})

            processes.append(subprocess.Popen([
                NGINX, "-p", folder + "/", "-c", conf, "-e",
                folder + "/error.log", "-g", "daemon off;"]))
            wait_for(port, processes[1])

            rows += play(policy, port)
            end()

    finally:
        end()
        shutil.rmtree(folder, ignore_errors=True)

    report(rows)


def report(rows):
    print("%d streams of %d tokens at once, %d engines (%s), ms\n"
          % (BURST, TOKENS, ENGINES, HARDWARE))

    head = "%-7s %-5s %-14s %9s %9s %9s %9s   %s"
    print(head % ("prompt", "state", "policy", "TTFT", "P95", "end", "P95",
                  "requests per engine"))

    for r in sorted(rows, key=lambda r: (r["prompt_bytes"], r["state"])):
        print(head % ("%dk" % (r["prompt_bytes"] / 1024), r["state"],
                      r["policy"],
                      *("%.0f" % (1000 * r[k]) for k in (
                          "ttft_mean_s", "ttft_p95_s", "end_mean_s",
                          "end_p95_s")),
                      "  ".join("/".join(map(str, n))
                                for n in r["requests_per_engine"])))

    folder = os.path.join(BUILD, "bench")
    os.makedirs(folder, exist_ok=True)

    with open(os.path.join(folder, "hot.json"), "w") as f:
        json.dump({"engines": ENGINES, "hardware": HARDWARE, "burst": BURST,
                   "tokens": TOKENS, "runs": RUNS, "rows": rows}, f, indent=2)
        f.write("\n")

    print("\n%s" % os.path.relpath(os.path.join(folder, "hot.json")))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda n, frame: sys.exit(128 + n))
    main()
