"""make bench-signals: what live signals from engines bring, and cost.

PARTS="chunks small_replica" runs some of them only:

    chunks          what the filter costs a streamed chunk: delay and CPU time
    capacity        capacity picked up from metrics, in each dialect
    small_replica   a fleet with one replica of a quarter of the KV, beside the
                    simulator's oracle (real time, five times faster)
    bad_probes      latency while metrics are frozen, garbage, huge or late
    reply_learning  agents in an emulated fleet, replies learned and not
    real            real llama.cpp engines, where the machine can get them:
                    predicted against delivered tokens, and replies learned
    restart         the same engines: one is killed and started again, seen by
                    responses alone and by probes alone

Prints and writes build/bench/signals.json; "aims" says what was to be reached
and whether it was.
"""

import asyncio

import concurrent.futures
import http.client
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.abspath(os.environ.get("BUILD")
                        or os.path.join(ROOT, "build"))
NGINX = (os.environ.get("NGINX_BIN") or shutil.which("nginx")
         or "/usr/sbin/nginx")
MODULE = (os.environ.get("MODULE")
          or os.path.join(BUILD, "ngx_http_kvroute_module.so"))
ENGINE = os.path.join(BUILD, "t/engine")

SIM = os.path.join(BUILD, "bench/sim/sim")

sys.path.insert(0, os.path.join(ROOT, "examples/demo"))
sys.path.insert(0, os.path.join(ROOT, "bench/common"))
sys.path.insert(0, os.path.join(ROOT, "bench/sim"))

from ports import free_ports  # noqa: E402

# what must hold, by its name in "aims"; a check is made of a whole result

AIMS = {
    "chunk_delay_us": lambda r: abs(r["chunk_delay_us"]) <= 50,
    "chunk_cpu_ratio": lambda r: r["chunk_cpu_ratio"] <= 1.04,
    "capacity": lambda r: all(c["told"] == c["is"]
                              for c in r["capacity"].values()),
    "small_replica_points": lambda r: r["small_replica"]["points"] >= -3,
    "bad_probe_failed": lambda r: r["bad_probe_failed"] == 0,
    "bad_probe_latency_ratio":
        lambda r: r["bad_probe_latency_ratio"] <= 1.05,
    "predicted_over_delivered":
        lambda r: abs(r["predicted_over_delivered"] - 1) <= 0.05,
    "flush_usage": lambda r: r["flush_requests"]["usage"] <= 3,
    "flush_probe": lambda r: r["flush_ms"]["probe"] <= 2000,
}

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


def llama():
    """The folder of the real engines; None if there are none here."""
    import engines

    try:
        return engines.get()
    except engines.Unavailable as e:
        print("no real engines here: %s" % e)
        return None


def real(result):
    """Predicted against delivered, and learning of replies."""
    import engines

    folder = llama()
    if folder is None:
        return

    out = {}
    logs = tempfile.mkdtemp()

    for name, learn in (("with", "on"), ("without", "off")):
        fleet = engines.start(3, folder, logs)
        nginx = Nginx({"a": ("kvroute kv_cache zone=z;",
                             [e.address for e in fleet])},
                      {"a": "kvroute_learn_reply %s;" % learn})
        try:
            times, prompts, cached = sessions(
                nginx.port, "/a/v1/chat/completions", 8, 4, 1, 1500, 300, 48,
                3)
            c = [p["cache"] for p in nginx.peers("a")]
            out["predicted_" + name] = sum(p["predicted_tokens"] for p in c)
            out["delivered_" + name] = sum(p["delivered_tokens"] for p in c)
            out["cached_" + name] = cached / prompts
            out["ttft_" + name] = statistics.mean(times)
        finally:
            nginx.stop()
            engines.stop(*(e.process for e in fleet))

    shutil.rmtree(logs)

    result["predicted_over_delivered"] = (out["predicted_with"]
                                          / max(out["delivered_with"], 1))
    result["reply_learning_real"] = out


def restart(result):
    """An engine is killed and started again: who notices, and when."""
    import engines

    folder = llama()
    if folder is None:
        return

    logs = tempfile.mkdtemp()
    requests, ms = {}, {}

    for how in ("usage", "probe"):
        fleet = engines.start(1, folder, logs)
        port = fleet[0].port
        nginx = Nginx({"a": ("kvroute kv_cache zone=z;"
                             + ("kvroute_probe;" if how == "probe" else ""),
                             ["127.0.0.1:%d max_fails=0" % port,
                              "127.0.0.1:1 down"])})
        rng = random.Random(5)
        prompts = [text(rng, 3000) for _ in range(4)]

        def ask(i):
            request(nginx.port, "POST", "/a/v1/chat/completions", {
                "model": "tiny", "max_tokens": 1,
                "messages": [{"role": "user", "content": prompts[i]}]})

        def flushes():
            return nginx.peers("a")[0]["cache"]["flushes_" + how]

        def answers():
            e = nginx.peers("a")[0]["engine"]
            return e["probes"] - e["failed"]

        try:
            for i in range(4):
                ask(i)
                ask(i)

            if how == "probe":
                wait(lambda: answers() > 1)

            engines.stop(fleet[0].process)
            fleet = engines.start(1, folder, logs, ports=[port])
            begun = time.monotonic()
            n = 0

            if how == "usage":
                while not flushes() and n < 4:
                    ask(n)
                    n += 1
            else:
                wait(flushes, 10)

            requests[how] = n if flushes() else None
            ms[how] = (time.monotonic() - begun) * 1000
        finally:
            nginx.stop()
            engines.stop(*(e.process for e in fleet))

    shutil.rmtree(logs)

    result["flush_requests"] = requests
    result["flush_ms"] = ms


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


def capacity(result):
    """What each kind of engine tells, against what it has."""
    tokens = 2048 * 16
    cache = ("--hardware", "none", "--kv-cache-size", "2048", "--block-size",
             "16")
    kinds = {k: Emulated(1, *cache, "--engine", k)
             for k in ("vllm", "vllm-old", "sglang", "trtllm", "tgi")}
    kinds["vllm, two ranks"] = Emulated(1, *cache, "--metrics-engines", "2")
    kinds["sglang, no metrics"] = Emulated(1, *cache, "--engine", "sglang",
                                           "--disable-metrics")
    nginx = Nginx({"k%d" % i: ("kvroute kv_cache zone=z; kvroute_probe;",
                               e.servers())
                   for i, e in enumerate(kinds.values())})
    out = {}

    def told(i):
        p = nginx.peers("k%d" % i)[0]
        return p["engine"].get("capacity_tokens") and p

    try:
        for i, kind in enumerate(kinds):
            p = wait(lambda: told(i))
            out[kind] = {"is": tokens, "told": p["engine"]["capacity_tokens"],
                         "index_bytes": p["capacity_bytes"]}
    finally:
        nginx.stop()
        for e in kinds.values():
            e.stop()

    result["capacity"] = out


def small_replica(result):
    """The cached share beside that of the simulator's oracle."""
    import emulated

    speed = 5
    work = json.loads(subprocess.check_output([SIM, "--emulated"]))
    work = work["small_replica"]
    blocks = work["kv_tokens"] // 16
    out = {"simulated": {k: v["cached"] for k, v in work["policies"].items()}}

    for name, probe in (("probed", "kvroute_probe;"), ("unprobed", "")):
        fleet = Emulated(work["replicas"], "--hardware", work["hardware"],
                         "--speed", str(speed), "--model", "emulated",
                         "--block-size", "16", "--kv-cache-size", str(blocks),
                         "--enable-prompt-tokens-details")
        request(fleet.port, "POST", "/control",
                {"kv_cache_size": int(blocks * work["small"])})
        nginx = Nginx({"v1": ("kvroute kv_cache zone=z; " + probe,
                              fleet.servers())})
        try:
            if probe:
                wait(lambda: all(p["engine"].get("capacity_tokens")
                                 for p in nginx.peers("v1")))

            done = asyncio.run(emulated.play(work, nginx.port, speed))
            out[name] = sum(r[1] for r in done) / sum(r[0] for r in done)
        finally:
            nginx.stop()
            fleet.stop()

    out["points"] = 100 * (out["probed"] - out["simulated"]["oracle"])
    result["small_replica"] = out


def reply_learning(result):
    """Agent sessions on an emulated fleet, with and without."""
    out = {}

    for name, learn in (("with", "on"), ("without", "off")):
        times, prompts, cached = [], 0, 0

        for seed in range(2):
            fleet = Emulated(4, "--hardware", "llama-8b-bf16-a10g",
                             "--speed", "4",
                             "--enable-prompt-tokens-details",
                             "--output-tokens", "400")
            nginx = Nginx({"a": ("kvroute kv_cache zone=z;",
                                 fleet.servers())},
                          {"a": "kvroute_learn_reply %s;" % learn})
            try:
                f, p, c = sessions(nginx.port, "/a/v1/chat/completions", 16,
                                   5, seed, 1500, 300, 400, 16)
                times += f
                prompts += p
                cached += c
            finally:
                nginx.stop()
                fleet.stop()

        out["cached_" + name] = cached / prompts
        out["ttft_" + name] = statistics.mean(times)

    result["reply_learning"] = out


def bad_probes(result):
    """Mean latency while metrics are of no use, beside no probe at all."""
    fleet = Emulated(4, "--hardware", "llama-8b-bf16-a10g", "--speed", "4",
                     "--enable-prompt-tokens-details")

    # metrics by another process: what they cost it to make is not the point

    bad = Emulated(1, "--hardware", "none")
    mean = {}
    modes = ["none", "frozen", "garbage", "huge", "late"]
    failed = 0

    try:
        for round_ in range(10):
            for mode in random.sample(modes, len(modes)):
                probe = "" if mode == "none" else \
                    "kvroute_probe port=%d;" % bad.port
                fleet.control({"reset_cache": True})
                bad.control({"metrics": "ok", "metrics_delay_ms": 0})
                nginx = Nginx({"a": ("kvroute kv_cache zone=z; " + probe,
                                     fleet.servers())})
                try:
                    # what is frozen was told at least once

                    if probe:
                        wait(lambda: all("running" in p["engine"]
                                         for p in nginx.peers("a")))

                    bad.control({"metrics":
                                 mode if mode in ("frozen", "garbage", "huge")
                                 else "ok",
                                 "metrics_delay_ms":
                                 5000 if mode == "late" else 0})
                    times = []
                    sessions(nginx.port, "/a/v1/chat/completions", 24, 3,
                             round_, 4000, 500, 20, 8, times)
                    mean.setdefault(mode, []).append(statistics.mean(times))
                except Failed as e:
                    print(e)
                    failed += 1
                finally:
                    nginx.stop()
    finally:
        fleet.stop()
        bad.stop()

    # round by round: what else the machine does changes over time

    ratios = {m: statistics.median(a / b for a, b in
                                   zip(mean[m], mean["none"]))
              for m in modes[1:]}
    result["bad_probe"] = ratios
    result["bad_probe_failed"] = failed
    result["bad_probe_latency_ratio"] = max(ratios.values())


SERVER = r"""
import asyncio, sys, time

async def serve(r, w):
    try:
        while True:
            head = await r.readuntil(b"\r\n\r\n")
            n = [l for l in head.split(b"\r\n")
                 if l.lower().startswith(b"content-length:")]
            await r.readexactly(int(n[0].split(b":")[1]))
            count, gap = 200, 0.004
            w.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                    b"Connection: close\r\n\r\n")
            for i in range(count):
                w.write(b'data: {"id":"chatcmpl-8d1","object":"chat.completion'
                        b'.chunk","created":1788626457,"model":"tiny",'
                        b'"choices":[{"index":0,"delta":{"content":" %d"},'
                        b'"logprobs":null,"finish_reason":null}]}\n\n'
                        % time.monotonic_ns())
                await w.drain()
                await asyncio.sleep(gap)
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


def chunks(result):
    """What the filter costs a streamed chunk, in time and CPU."""
    port = free_ports(1)
    server = subprocess.Popen([sys.executable, "-c", SERVER, str(port)],
                              stdout=subprocess.PIPE)
    server.stdout.readline()
    peer = ["127.0.0.1:%d max_fails=0" % port, "127.0.0.2:%d down" % port]
    names = ("off", "twice", "on", "reply")
    nginx = Nginx({"off": ("", peer),
                   "twice": ("", peer),
                   "on": ("kvroute kv_cache zone=z;", peer),
                   "reply": ("kvroute kv_cache zone=z;", peer)},
                  {"on": "kvroute_learn_reply off;"})
    delay = {name: [] for name in names}
    cpu = {name: [] for name in names}
    body = {"messages": [{"role": "user", "content": "x" * 2000}],
            "stream": True}

    def spent():
        with open("/proc/%d/schedstat" % nginx.worker()) as f:
            return int(f.read().split()[0])

    def stream(name):
        c = http.client.HTTPConnection("127.0.0.1", nginx.port)
        c.request("POST", "/%s/v1/chat/completions" % name, json.dumps(body),
                  {"Content-Type": "application/json"})
        r = c.getresponse()
        late = []
        for line in r:
            if line.startswith(b"data: {"):
                now = time.monotonic_ns()
                late.append(now - int(line.split(b'"content":" ')[1]
                                      .split(b'"')[0]))
        c.close()
        return late

    try:
        for _ in range(16):
            for name in random.sample(names, len(names)):
                before = spent()
                with concurrent.futures.ThreadPoolExecutor(6) as pool:
                    late = sum(pool.map(stream, [name] * 6), [])
                delay[name].append(statistics.median(late))
                cpu[name].append((spent() - before) / len(late))
    finally:
        nginx.stop()
        server.kill()
        server.wait()

    # pair by pair: what else the machine does changes over time

    def ratio(a, b):
        return statistics.median(x / y for x, y in zip(cpu[a], cpu[b]))

    def more(a, b):
        return statistics.median(x - y for x, y in
                                 zip(delay[a], delay[b])) / 1000

    result["chunk_delay_off_us"] = statistics.median(delay["off"]) / 1000
    result["chunk_delay_us"] = more("on", "off")
    result["chunk_delay_reply_us"] = more("reply", "off")
    result["chunk_cpu_ns"] = statistics.median(cpu["off"])
    result["chunk_cpu_ratio"] = ratio("on", "off")
    result["chunk_cpu_ratio_reply"] = ratio("reply", "off")

    # nginx against itself: the noise

    result["chunk_delay_twice_us"] = more("twice", "off")
    result["chunk_cpu_ratio_twice"] = ratio("twice", "off")


def main():
    result = {}

    for part in (os.environ.get("PARTS")
                 or "chunks capacity restart real reply_learning bad_probes "
                    "small_replica").split():
        begun = time.monotonic()
        globals()[part](result)
        print("%s: %.0f s" % (part, time.monotonic() - begun), flush=True)

    result["aims"] = {}

    for name, reached in AIMS.items():
        try:
            result["aims"][name] = bool(reached(result))
        except KeyError:
            pass                        # its part has not run
        except TypeError:
            result["aims"][name] = False    # it was not noticed at all

    folder = os.path.join(BUILD, "bench")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "signals.json"), "w") as f:
        json.dump(result, f, indent=2)
        f.write("\n")

    print(json.dumps(result, indent=2))


main()
