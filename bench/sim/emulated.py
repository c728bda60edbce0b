#!/usr/bin/env python3
"""The simulator compared with the emulated engine behind nginx.

The same sessions run once in the simulator and once in (scaled) real time: a
client for each session -> nginx with the module -> engines with the same
replica model.  The script uses the standard library only.
"""

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../common"))

from rig import Engines, Nginx, quantile, save  # noqa: E402

LETTERS = "abcdefghijklmnopqrstuvwxyz  "

HTTP = """
    kvroute_zone zone=llm:16m;
    upstream llm {
        zone llm_peers 256k;
        kvroute @policy@ zone=llm;
        @servers@
    }
    server {
        listen 127.0.0.1:@port@;
        location / {
            client_max_body_size 64m;
            client_body_buffer_size 1m;
            proxy_buffering off;
            proxy_pass http://llm;
        }
    }
"""


def text(seed, tokens):
    rng = random.Random(seed)
    return "".join(rng.choices(LETTERS, k=4 * tokens))


async def request(port, prompt, output):
    """Sends one completion: returns (TTFT, total time, cached tokens,
    reply)."""
    body = json.dumps({
        "model": "emulated", "prompt": prompt, "max_tokens": output,
        "ignore_eos": True, "stream": True,
        "stream_options": {"include_usage": True}}).encode()

    # HTTP/1.0: an answer without chunks can be searched directly

    start = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port,
                                                   limit=1 << 24)
    writer.write(b"POST /v1/completions HTTP/1.0\r\nHost: kvroute\r\n"
                 b"Content-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(body) + body)

    first = None
    parts = []

    while True:
        data = await reader.read(1 << 16)
        if not data:
            break
        parts.append(data)
        if first is None and b'"text"' in data:
            first = time.monotonic() - start

    total = time.monotonic() - start
    writer.close()

    answer = b"".join(parts).decode()

    if " 200 " not in answer[:20] or first is None:
        raise SystemExit("bad answer: " + answer[:300])

    reply = "".join(json.loads('"%s"' % t) for t in
                    re.findall(r'"text":"((?:[^"\\]|\\.)*)"', answer))
    cached = re.findall(r'"cached_tokens":(\d+)', answer)

    return first, total, int(cached[-1]) if cached else 0, reply


async def session(number, s, prefix, port, speed, began, results):
    await asyncio.sleep(max(0, began + s["arrival"] / speed
                            - time.monotonic()))
    prompt = prefix
    have = len(prefix) // 4

    for n, step in enumerate(s["steps"]):
        if n:
            await asyncio.sleep(step["pause"] / speed)

        prompt += text(f"{number}/{n}", step["prompt"] - have)
        first, total, cached, reply = await request(port, prompt,
                                                    step["output"])
        prompt += reply
        have = step["prompt"] + step["output"]

        if len(prompt) != 4 * have:
            raise SystemExit("a reply does not have the requested length")

        if step["measured"]:
            results.append((step["prompt"], cached, first * speed,
                            total * speed))


async def play(work, port, speed):
    results = []
    prefix = text("prefix", work["prefix"])
    began = time.monotonic() + 0.2

    tasks = [asyncio.create_task(session(i, s, prefix, port, speed, began,
                                         results))
             for i, s in enumerate(work["sessions"])]

    # as in the simulator, the run ends with the last measured request

    left = sum(step["measured"] for s in work["sessions"]
               for step in s["steps"])
    waiting = set(tasks)

    while waiting and len(results) < left:
        done, waiting = await asyncio.wait(waiting, timeout=0.2)
        for task in done:
            task.result()

    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)

    return results


def run(work, policy, args):
    engines = Engines(work["replicas"], "--hardware", work["hardware"],
                      "--speed", str(args.speed), "--model", "emulated",
                      "--enable-prompt-tokens-details")
    nginx = Nginx(HTTP, policy=policy, servers=engines.servers())

    results = asyncio.run(play(work, nginx.port, args.speed))

    nginx.stop()
    engines.stop()

    e2e = [r[3] for r in results]
    ttft = [r[2] for r in results]

    return {"requests": len(results),
            "cached": sum(r[1] for r in results) / sum(r[0] for r in results),
            "ttft_mean": sum(ttft) / len(ttft),
            "ttft_p95": quantile(ttft, 0.95),
            "e2e_mean": sum(e2e) / len(e2e),
            "e2e_p95": quantile(e2e, 0.95)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--sim", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--merge", help="summary.json to add the result to")
    p.add_argument("--speed", type=float, default=3)
    p.add_argument("--policies", default="random,least_request,kv_cache")
    args = p.parse_args()

    work = json.loads(subprocess.check_output([args.sim, "--emulated"]))
    out = {}

    print(f"{'':16}{'cached':>15}{'TTFT':>16}{'P95':>16}{'E2E':>16}"
          f"{'P95':>16}   (simulated, emulated)")

    for policy in args.policies.split(","):
        simulated = work["policies"][policy]
        emulated = run(work, policy, args)

        out[policy] = {"simulated": simulated, "emulated": emulated,
                       "cached_points": 100 * (emulated["cached"]
                                               - simulated["cached"])}

        for k in ("ttft_mean", "ttft_p95", "e2e_mean", "e2e_p95"):
            out[policy][k + "_ratio"] = emulated[k] / simulated[k]

        print(f"{policy:16}" + "".join(
            f"{simulated[k]:8.3f} {emulated[k]:7.3f}" for k in
            ("cached", "ttft_mean", "ttft_p95", "e2e_mean", "e2e_p95")),
            flush=True)

    save(args.out, out)

    if args.merge and os.path.exists(args.merge):
        with open(args.merge) as f:
            summary = json.load(f)
        summary["sim_vs_emulated"] = out
        save(args.merge, summary)
        print(f"added to {args.merge}")


if __name__ == "__main__":
    main()
