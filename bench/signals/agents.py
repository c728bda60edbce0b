"""The common part: nginx before several upstreams, and sessions of agents."""

import concurrent.futures
import json
import os
import random
import sys
import threading
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))

for room in ("examples/demo", "bench/common", "bench/sim"):
    sys.path.insert(0, os.path.join(ROOT, room))

from places import BUILD  # noqa: E402
from rig import Engines, Nginx, request  # noqa: E402

SIM = os.path.join(BUILD, "bench/sim/sim")

HTTP = """
    client_body_buffer_size 1m;
    proxy_buffering off;
    kvroute_zone zone=z:8m;
    @upstreams@
    server {
        listen 127.0.0.1:@port@ reuseport backlog=1024;
        location = /kvroute/json { kvroute_status json; }
        @locations@
    }
"""

WORDS = ("the", "model", "returns", "a", "list", "of", "open", "files", "and",
         "their", "sizes", "in", "order", "please", "check", "error", "line")


class Failed(Exception):
    """A request was not served."""


def front(upstreams, learn=None):
    """nginx with a location for each of the upstreams {name: (lines,
    servers)}."""
    ups, locs = "", ""

    for name, (lines, peers) in upstreams.items():
        ups += "upstream %s { zone %s 128k; %s %s }\n" % (
            name, name, lines, peers)
        locs += "location /%s/ { %s proxy_pass http://%s%s; }\n" % (
            name, (learn or {}).get(name, ""), name,
            "" if name == "v1" else "/")

    return Nginx(HTTP, upstreams=ups, locations=locs)


def replicas(count, *flags):
    return Engines(count, "--model", "tiny", *flags)


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
    """Runs agent sessions; returns TTFTs, prompt tokens and cached tokens."""
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
