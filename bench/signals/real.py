"""Real llama.cpp engines: what they report as cached, and a restart."""

import random
import shutil
import statistics
import tempfile
import time

from agents import front, sessions, text
from rig import request, wait

import engines


def llama():
    """Returns the folder of real engines, or None if there are none."""
    try:
        return engines.get()
    except engines.Unavailable as e:
        print("no real engines here: %s" % e)
        return None


def real(result):
    """Compares predicted with delivered tokens."""
    folder = llama()
    if folder is None:
        return

    logs = tempfile.mkdtemp()
    fleet = engines.start(3, folder, logs)
    nginx = front({"a": ("kvroute kv_cache zone=z;",
                         " ".join("server %s;" % e.address for e in fleet))})
    try:
        sessions(nginx.port, "/a/v1/chat/completions", 8, 4, 1, 1500, 300, 48, 3)
        c = [p["cache"] for p in nginx.peers("a")]
    finally:
        nginx.stop()
        engines.stop(*(e.process for e in fleet))

    shutil.rmtree(logs)

    result["predicted_over_delivered"] = (
        sum(p["predicted_tokens"] for p in c)
        / max(sum(p["delivered_tokens"] for p in c), 1))


def restart(result):
    """An engine is killed and started again: measures what finds it, and
    when."""
    folder = llama()
    if folder is None:
        return

    logs = tempfile.mkdtemp()
    requests, ms = {}, {}

    for how in ("usage", "probe"):
        fleet = engines.start(1, folder, logs)
        port = fleet[0].port
        nginx = front({"a": ("kvroute kv_cache zone=z;"
                             + ("kvroute_probe;" if how == "probe" else ""),
                             "server 127.0.0.1:%d max_fails=0; "
                             "server 127.0.0.1:1 down;" % port)})
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
