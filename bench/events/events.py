"""make bench-events: what KV events improve, and what they cost.

index: the simulator compares the index with a router that sees the true state of all caches
(ratio of mean TTFT).  The index learns by predictions (the default), by events, or by events
with aliases=.  There are rows for caches that are large enough, and for caches that are not
("starved").
attributed: how many requests of a recorded vLLM run could be matched to events by time and
depth (attribute.py).
flood, count: one emulated engine stores and removes 100,000 blocks a second. flood measures
CPU, memory, and the delay of other requests in the same worker; count counts instructions
with callgrind, which other work on the machine does not change.
requests: instructions per request, with events and without.
reloads: nginx is reloaded 20 times while events arrive.
vllm: figures of the last "make test-vllm", if there was one.

Writes build/bench/events.json.  A part that was not measured is null there, and "missing"
gives the reason.

    PARTS="index flood"     runs these parts only, and keeps the earlier
                            figures of the others
    TRACES=folder           Mooncake's traces, for more scenarios
    FULL=1                  three seeds, and runs three times as long
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../common"))
sys.path.insert(0, os.path.join(HERE, "../wire"))
sys.path.insert(0, HERE)

import attribute  # noqa: E402
from places import BUILD  # noqa: E402
from ports import free_ports  # noqa: E402
from rig import (RESULTS, Engines, Nginx, Process, cpu, get, instructions, memory,  # noqa: E402
                 quantile, request, save, totals, wait)

ALL = "index attributed flood count requests reloads vllm"
PARTS = (os.environ.get("PARTS") or ALL).split()

AMPLE = "zipf agents agents_paced people hot_decode_32".split()
STARVED = "zipf_starved agents_starved".split()
TRACED = "conversation synthetic synthetic_starved".split()

ROWS = {"default": "kv_cache", "told": "kv_cache_reported", "events": "kv_cache_events",
        "events_5": "events_5ms", "events_500": "events_500ms",
        "aliases": "kv_cache_aliases", "aliases_5": "aliases_5ms",
        "aliases_500": "aliases_500ms"}

FULL = os.environ.get("FULL")
BLOCKS = 100_000                # a second
ALIASES = " aliases=8m"
SECONDS = 10

HTTP = """
    kvroute_zone zone=llm:8m;

    upstream llm {
        zone llm_peers 256k;
        kvroute kv_cache zone=llm;
        @servers@
        @events@
    }
    server {
        listen 127.0.0.1:@port@;
        location / { proxy_pass http://llm; }
        location = /empty { return 204; }
        location = /kvroute/json { kvroute_status json; }
    }
"""


def index():
    """Returns the mean TTFT over the oracle's, from the simulator."""
    traces = os.environ.get("TRACES")
    names = AMPLE + STARVED + (TRACED if traces else [])
    out = os.path.join(RESULTS, "events-sim.json")
    os.makedirs(RESULTS, exist_ok=True)

    subprocess.run([os.path.join(RESULTS, "sim/sim"), "--full", "--quiet",
                    "--only", ",".join("=" + n for n in names),
                    "--policies", ",".join("=" + p for p in [*ROWS.values(), "oracle"]),
                    *([] if FULL else ["--seeds", "1", "--requests", "2000"]),
                    "--out", out, *(["--traces", traces] if traces else [])],
                   check=True, stdout=subprocess.DEVNULL)

    with open(out) as f:
        loss = json.load(f)["index_loss"]

    result = {}

    for name, policy in ROWS.items():
        result[name] = loss[policy]["ample"]["ttft"]
        result["starved_" + name] = loss[policy]["starved"]["ttft"]

    return result


def latency(port, seconds, found):
    """Returns how long nginx takes for its own answers, sent one after
    another."""
    end = time.monotonic() + seconds

    while time.monotonic() < end:
        found.append(request(port, "GET", "/empty")[2])
        time.sleep(0.002)


def flood(more=""):
    """Runs one engine that stores and removes this many blocks a second."""
    events = free_ports(1)
    engines = Engines(1, "--hardware", "none", "--kv-events", str(events),
                      "--kv-cache-size", "65536")
    nginx = Nginx(HTTP, servers=engines.servers(),
                  events="kvroute_events port=%d%s;" % (events, more))
    worker = wait(nginx.workers)[0]
    told = lambda: json.loads(get(engines.port, "/control"))["kv_events"]  # noqa: E731

    wait(lambda: told()["subscribers"])

    rows = []

    # the first flood fills the tables of fixed size

    for blocks in (BLOCKS, 0, BLOCKS):
        engines.control({"kv_flood": blocks})
        time.sleep(1)

        at, stored = cpu(worker), told()["stored"]
        begun, found = time.monotonic(), []
        thread = threading.Thread(target=latency, args=(nginx.port, SECONDS, found))
        thread.start()
        thread.join()
        seconds = time.monotonic() - begun

        rows.append({"cpu": (cpu(worker) - at) / seconds,
                     "blocks": (told()["stored"] - stored) / seconds,
                     "bytes": memory(worker),
                     "p50": statistics.median(found), "p99": quantile(found, 0.99)})

    engines.control({"kv_flood": 0})

    heard = nginx.peers("llm")[0]["events"]
    nginx.stop()
    engines.stop()

    first, rest, last = rows

    return {
        "blocks_per_s": round(last["blocks"]),
        "cpu_core_share": round(last["cpu"] - rest["cpu"], 4),
        "memory_growth": last["bytes"] - first["bytes"],
        "delay_ms": {p: round(1000 * (last[p] - rest[p]), 3) for p in ("p50", "p99")},
        "lost": heard["lost"],
        "garbled": heard["garbled"],
    }


def counted(blocks, block, more):
    """Returns the instructions of a worker that reads these blocks, and their
    number."""
    port = free_ports(1)
    engines = Engines(1, "--hardware", "none", "--kv-events", str(port),
                      "--kv-cache-size", "4096", "--block-size", str(block))
    told = lambda: json.loads(get(engines.port, "/control"))["kv_events"]  # noqa: E731

    with tempfile.TemporaryDirectory() as folder:
        nginx = Nginx(HTTP, servers=engines.servers(),
                      events="kvroute_events port=%d%s;" % (port, more),
                      prefix=("valgrind", "-q", "--tool=callgrind",
                              "--callgrind-out-file=%s/out" % folder))
        wait(lambda: told()["subscribers"])

        if blocks:
            engines.control({"kv_flood": BLOCKS / 2})
            wait(lambda: told()["stored"] >= blocks)
            engines.control({"kv_flood": 0})

        last = told()

        # a status request costs as much as hundreds of blocks: ask rarely

        while nginx.peers("llm")[0]["events"]["messages"] < last["messages"]:
            time.sleep(2)

        nginx.stop()

        with open(folder + "/out") as f:
            n = totals(f.read())

    engines.stop()

    return n, last["stored"]


def count():
    """Returns instructions per block stored and removed, by block size in
    tokens."""
    result = {}

    for name, block, more in (("16", 16, ""), ("32", 32, ""), ("aliases_16", 16, ALIASES)):
        few, many = counted(20_000, block, more), counted(120_000, block, more)
        result[name] = round((many[0] - few[0]) / (many[1] - few[1]))

    return result


def executed(engines, policy, size, n, unique=0, idle=0):
    """Returns the instructions of a worker for n requests, and its run time."""
    import harness

    def run(prefix):
        nonlocal seconds
        nginx = harness.Nginx(engines, False, policy=policy, prefix=prefix)
        begun = time.monotonic()
        harness.load(port=nginx.port, requests=n, size=size, unique=unique, conns=1)
        time.sleep(idle)
        seconds = time.monotonic() - begun
        nginx.stop()

    seconds = 0
    return instructions(run), seconds


def slope(engines, policy, size, n, unique, second):
    """Returns instructions per request, less those of timers (a rate per
    second)."""
    few, many = (executed(engines, policy, size, k, unique) for k in (4, n + 4))
    return (many[0] - few[0] - second * (many[1] - few[1])) / n


def requests():
    """Returns the ratio of instructions per request with events to those without: for
    events alone, and with aliases.  "new" are prompts that the index does not know; all
    others are known.
    """
    import wire

    engines = wire.upstream(8)
    more = 3000
    publishers = Process([sys.executable, os.path.join(HERE, "publisher.py")]
                         + [str(p + more) for p in engines])
    off = "kvroute kv_cache zone=bench"
    on = off + "; kvroute_events port=+%d" % more
    kinds = {"": on, "aliases_": on + " aliases=1m"}
    second = {}

    for policy in (off, *kinds.values()):
        few, idle = (executed(engines, policy, 2048, 4, idle=s) for s in (0, 20))
        second[policy] = (idle[0] - few[0]) / (idle[1] - few[1])

    result = {}

    for name, size, n in ("2k", 2048, 200), ("32k", 32768, 60):
        for unique in (0, 1):
            without = slope(engines, off, size, n, unique, second[off])

            for kind, policy in kinds.items():
                found = slope(engines, policy, size, n, unique, second[policy])
                result[kind + name + "_new" * unique] = round(found / without, 4)

    publishers.stop()

    return result


def reloads():
    """Reloads nginx 20 times while events arrive; returns what was lost."""
    port, replay = free_ports(1), free_ports(1)
    engines = Engines(1, "--hardware", "none", "--kv-events", str(port),
                      "--kv-replay", str(replay))
    nginx = Nginx(HTTP, servers=engines.servers(),
                  events="kvroute_events port=%d replay=%d;" % (port, replay))
    heard = lambda: nginx.peers("llm")[0]["events"]  # noqa: E731
    told = lambda: json.loads(get(engines.port, "/control"))["kv_events"]  # noqa: E731

    wait(lambda: told()["subscribers"])
    engines.control({"kv_flood": BLOCKS / 10})

    for _ in range(20):
        before = heard()["messages"]
        worker = nginx.workers()
        nginx.process.send_signal(signal.SIGHUP)
        wait(lambda: set(nginx.workers()) - set(worker) and heard()["messages"] > before)

    engines.control({"kv_flood": 0})
    last = told()
    wait(lambda: heard()["messages"] + heard()["lost"] == last["messages"])

    result = {"number": 20, "messages": last["messages"], "lost": heard()["lost"],
              "replayed": heard()["replayed"], "restarts": heard()["restarts"],
              "blocks_missing": max(0, last["stored"] - heard()["stored"]),
              "blocks_twice": max(0, heard()["stored"] - last["stored"])}

    nginx.stop()
    engines.stop()

    return result


def read(path):
    """Returns the JSON of a file, or nothing if there is no file."""
    try:
        with open(path) as f:
            return json.load(f)
    except OSError:
        return {}


def vllm():
    """Returns the figures of the last make test-vllm."""
    told = read(os.path.join(BUILD, "vllm.json"))

    if not told:
        return None

    ratio = lambda name: told.get(name, {}).get("predicted_over_delivered")  # noqa: E731

    return {
        "predicted_over_delivered": ratio("plain"),
        "evicting": ratio("events_evicting"),
        "evicting_without": ratio("evicting"),
        "past": ratio("events_past"),
        "restart_ms": told.get("events_restart_ms"),
    }


# the required figures, and the part that measures each

ASKED = {"index_to_oracle": "index", "attributed": "attributed", "wrong": "attributed",
         "cpu_core_share": "flood", "memory_growth": "flood", "delay_ms": "flood",
         "with_aliases": "flood",
         "instructions_a_block": "count", "instructions_a_request": "requests",
         "reloads": "reloads", "vllm": "vllm"}


def absent(result):
    """Sets missing figures to null; returns the reasons."""
    why = {}

    for name, part in ASKED.items():
        if result.setdefault(name, None) is None:
            why[name] = ("make test-vllm has not run" if part in PARTS
                         else "PARTS does not contain " + part)

    for name, value in (result["vllm"] or {}).items():
        if value is None:
            why["vllm." + name] = "the last make test-vllm did not measure it"

    return why


def main():
    path = os.path.join(RESULTS, "events.json")
    result = read(path)

    if "index" in PARTS:
        result["index_to_oracle"] = index()

    if "attributed" in PARTS:
        n, shares = attribute.attribute()
        result.update(attributed=shares["right"], wrong=shares["wrong"],
                      ambiguous=shares["ambiguous"], requests=n)

    if "flood" in PARTS:
        result.update(flood())
        result["with_aliases"] = flood(ALIASES)

    if "count" in PARTS:
        result["instructions_a_block"] = count()

    if "requests" in PARTS:
        result["instructions_a_request"] = requests()

    if "reloads" in PARTS:
        result["reloads"] = reloads()

    if "vllm" in PARTS:
        result["vllm"] = vllm()

    result["missing"] = absent(result)

    print(json.dumps(result, indent=2))
    save(path, result)


if __name__ == "__main__":
    main()
