"""What the parts share: nginx before engines, emulated engines, sessions."""

import concurrent.futures
import http.client
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))

for room in ("examples/demo", "bench/common", "bench/sim"):
    sys.path.insert(0, os.path.join(ROOT, room))

from places import BUILD, ENGINE, MODULE, NGINX  # noqa: E402
from ports import free_ports  # noqa: E402

SIM = os.path.join(BUILD, "bench/sim/sim")

CONF = """
load_module {module};
{user}
worker_processes 1;
daemon off;
pid {dir}/nginx.pid;
error_log {dir}/error.log notice;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {dir}/a; proxy_temp_path {dir}/b;
    fastcgi_temp_path {dir}/c; uwsgi_temp_path {dir}/d; scgi_temp_path {dir}/e;
    client_body_buffer_size 1m;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_buffering off;
    kvroute_zone zone=z:8m;
    {upstreams}
    server {{
        listen 127.0.0.1:{port} reuseport backlog=1024;
        location = /kvroute/json {{ kvroute_status json; }}
        {locations}
    }}
}}
"""

WORDS = ("the", "model", "returns", "a", "list", "of", "open", "files", "and",
         "their", "sizes", "in", "order", "please", "check", "error", "line")


class Failed(Exception):
    """A request was not served."""


class Nginx:
    """One nginx with upstreams {name: (lines, servers)}, each a location."""

    def __init__(self, upstreams, learn=None):
        self.dir = tempfile.mkdtemp(prefix="kvroute-bench-")
        os.chmod(self.dir, 0o755)
        self.port = free_ports(1)
        ups, locs = "", ""

        for name, (lines, servers) in upstreams.items():
            ups += "upstream %s { zone %s 128k; %s %s }\n" % (
                name, name, lines,
                " ".join("server %s;" % s for s in servers))
            extra = (learn or {}).get(name, "")
            locs += "location /%s/ { %s proxy_pass http://%s%s; }\n" % (
                name, extra, name, "" if name == "v1" else "/")

        conf = os.path.join(self.dir, "nginx.conf")
        with open(conf, "w") as f:
            f.write(CONF.format(module=MODULE, dir=self.dir, port=self.port,
                                upstreams=ups, locations=locs,
                                user="user root;" if os.getuid() == 0 else ""))

        self.process = subprocess.Popen(
            [NGINX, "-p", self.dir, "-c", conf, "-e",
             os.path.join(self.dir, "error.log")])
        wait(lambda: self.status() is not None)

    def status(self):
        try:
            return json.loads(request(self.port, "GET", "/kvroute/json")[1])
        except (OSError, ValueError, http.client.HTTPException):
            return None

    def peers(self, name):
        return self.status()["upstreams"][name]["peers"]

    def worker(self):
        with open("/proc/%d/task/%d/children" % ((self.process.pid,) * 2)) \
                as f:
            return int(f.read().split()[0])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()
        with open(os.path.join(self.dir, "error.log")) as f:
            bad = [s for s in f if "[alert]" in s or "[crit]" in s]
        if bad:
            raise SystemExit("".join(bad))
        shutil.rmtree(self.dir)


class Emulated:
    def __init__(self, count, *args):
        self.port = free_ports(count)
        self.count = count
        self.process = subprocess.Popen(
            [ENGINE, "--port", str(self.port), "--count", str(count),
             "--model", "tiny", *args], stdout=subprocess.PIPE)
        self.process.stdout.readline()

    def servers(self):
        return ["127.0.0.1:%d" % (self.port + i) for i in range(self.count)]

    def control(self, what):
        for i in range(self.count):
            request(self.port + i, "POST", "/control", what)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def wait(what, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = what()
        if value:
            return value
        time.sleep(0.01)
    raise SystemExit("waited in vain")


def request(port, method, path, body=None):
    """Returns status, body and the time to the first byte of it."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    start = time.monotonic()
    c.request(method, path, body and json.dumps(body),
              {"Content-Type": "application/json"})
    r = c.getresponse()
    data = r.read(1)
    first = time.monotonic() - start
    data += r.read()
    c.close()
    return r.status, data, first


def text(rng, n):
    s = ""
    while len(s) < n:
        s += rng.choice(WORDS) + " "
    return s[:n]


def content(data):
    out = ""
    for line in data.decode("utf-8", "replace").splitlines():
        if line.startswith("data: {"):
            for c in json.loads(line[6:]).get("choices", []):
                out += c.get("delta", {}).get("content") or ""
    return out


def sessions(port, path, count, turns, seed, prompt, more, tokens, threads,
             times=None):
    """Agent sessions; returns times to first token, prompt, cached tokens."""
    lock = threading.Lock()
    first, prompts, cached = [], [0], [0]
    whole = times if times is not None else []

    def session(i):
        rng = random.Random(seed * 1000 + i)
        messages = [{"role": "system", "content": "You are an agent."},
                    {"role": "user", "content": text(rng, prompt)}]

        for turn in range(turns):
            begun = time.monotonic()
            status, data, t = request(port, "POST", path, {
                "model": "tiny", "messages": messages, "stream": True,
                "max_tokens": tokens, "temperature": 0,
                "stream_options": {"include_usage": True}})
            if status != 200:
                raise Failed("status %d: %s" % (status, data[:200]))

            usage = [json.loads(s[6:])["usage"] for s in
                     data.decode("utf-8", "replace").splitlines()
                     if s.startswith("data: {") and '"usage":{' in s]
            with lock:
                first.append(t)
                whole.append(time.monotonic() - begun)
                if usage:
                    prompts[0] += usage[-1]["prompt_tokens"]
                    cached[0] += ((usage[-1].get("prompt_tokens_details")
                                   or {}).get("cached_tokens") or 0)

            messages.append({"role": "assistant", "content": content(data)})
            messages.append({"role": "user", "content": text(rng, more)})

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        list(pool.map(session, range(count)))

    return first, prompts[0], cached[0]
