"""Fleets of emulated replicas: what their metrics report, and what it
improves."""

import asyncio
import json
import random
import statistics
import subprocess

from agents import SIM, Failed, front, replicas, sessions
from rig import request, wait

import emulated


def capacity(result):
    """Compares the reported capacity of each kind of engine with the true
    one."""
    tokens = 2048 * 16
    cache = ("--hardware", "none", "--kv-cache-size", "2048", "--block-size",
             "16")
    kinds = {k: replicas(1, *cache, "--engine", k)
             for k in ("vllm", "vllm-old", "sglang", "trtllm", "tgi")}
    kinds["vllm, two ranks"] = replicas(1, *cache, "--metrics-engines", "2")
    kinds["sglang, no metrics"] = replicas(1, *cache, "--engine", "sglang",
                                           "--disable-metrics")
    nginx = front({"k%d" % i: ("kvroute kv_cache zone=z; kvroute_probe;",
                               e.servers())
                   for i, e in enumerate(kinds.values())})
    out = {}

    def told(i):
        p = nginx.peers("k%d" % i)[0]
        return p["engine"].get("capacity_tokens") and p

    for i, kind in enumerate(kinds):
        p = wait(lambda: told(i))
        out[kind] = {"is": tokens, "told": p["engine"]["capacity_tokens"],
                     "index_bytes": p["capacity_bytes"]}
    nginx.stop()
    for e in kinds.values():
        e.stop()

    result["capacity"] = out


def small_replica(result):
    """Compares the cached share with that of the simulator's oracle."""
    speed = 5
    work = json.loads(subprocess.check_output([SIM, "--emulated"]))
    work = work["small_replica"]
    blocks = work["kv_tokens"] // 16
    out = {"simulated": {k: v["cached"] for k, v in work["policies"].items()}}

    for name, probe in (("probed", "kvroute_probe;"), ("unprobed", "")):
        fleet = replicas(work["replicas"], "--hardware", work["hardware"],
                         "--speed", str(speed), "--model", "emulated",
                         "--block-size", "16", "--kv-cache-size", str(blocks),
                         "--enable-prompt-tokens-details")
        request(fleet.port, "POST", "/control",
                {"kv_cache_size": int(blocks * work["small"])})
        nginx = front({"v1": ("kvroute kv_cache zone=z; " + probe,
                              fleet.servers())})
        if probe:
            wait(lambda: all(p["engine"].get("capacity_tokens")
                             for p in nginx.peers("v1")))

        done = asyncio.run(emulated.play(work, nginx.port, speed))
        out[name] = sum(r[1] for r in done) / sum(r[0] for r in done)
        nginx.stop()
        fleet.stop()

    out["points"] = 100 * (out["probed"] - out["simulated"]["oracle"])
    result["small_replica"] = out


def bad_probes(result):
    """Compares the mean latency while metrics are useless with that without
    probes."""
    fleet = replicas(4, "--hardware", "llama-8b-bf16-a10g", "--speed", "4",
                     "--enable-prompt-tokens-details")

    # another process answers with the metrics: their own cost must not count

    bad = replicas(1, "--hardware", "none")
    mean = {}
    modes = ["none", "frozen", "garbage", "huge", "late"]
    failed = 0

    try:
        for round_ in range(10):
            for mode in random.sample(modes, len(modes)):
                probe = "" if mode == "none" else \
                    "kvroute_probe url=:%d;" % bad.port
                fleet.control({"reset_cache": True})
                bad.control({"metrics": "ok", "metrics_delay_ms": 0})
                nginx = front({"a": ("kvroute kv_cache zone=z; " + probe,
                                     fleet.servers())})
                try:
                    # engines report once before their metrics are frozen

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

    # in rounds, because other work on the machine changes over time

    ratios = {m: statistics.median(a / b for a, b in
                                   zip(mean[m], mean["none"]))
              for m in modes[1:]}
    result["bad_probe"] = ratios
    result["bad_probe_failed"] = failed
    result["bad_probe_latency_ratio"] = max(ratios.values())
