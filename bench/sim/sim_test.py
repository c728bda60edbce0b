#!/usr/bin/env python3
"""Tests of the simulator.  usage: sim_test.py SIM

A run depends on its seed only.  A trace that is too short is repeated with
other texts.  A wrong argument ends the program.
"""

import json
import os
import subprocess
import sys
import tempfile

SIM = sys.argv[1]
failed = 0


def sim(*args):
    r = subprocess.run([SIM, *args], capture_output=True, text=True)
    return r.returncode, r.stdout


def check(ok, what):
    global failed
    failed += not ok
    print("ok" if ok else "not ok", "-", what)


def cached(table, policy):
    for line in table.splitlines():
        word = line.split()
        if len(word) > 6 and word[0] == policy:
            return float(word[6])
    return -1.0


few = ("--only", "=zipf,=agents_restart", "--load", "1.1", "--requests", "400",
       "--policies", "=kv_cache,=lmetric,=random", "--quiet")

rc, first = sim(*few, "--seeds", "2", "--jobs", "1")
check(rc == 0 and "lmetric" in first, "runs")
check(sim(*few, "--seeds", "2", "--jobs", "2")[1] == first,
      "two processes give the same result")
check(sim(*few, "--seeds", "2", "--seed", "7")[1] != first,
      "other seeds give other figures")

# sessions are not torn apart: their earlier turns are found cached

rc, tables = sim("--demo", "--policies",
                 "=kv_cache,=kv_cache_usage,=random,=sticky")
demo, thirds = tables.split("\n24 agents")


def figures(table):
    return {word[0]: [float(v) for v in word[1:]]
            for word in map(str.split, table.splitlines())
            if word and word[0] in ("kv_cache", "kv_cache_usage", "random",
                                    "sticky")}


share = {policy: row[0] for policy, row in figures(demo).items()}

for policy in ("kv_cache", "kv_cache_usage"):
    check(share[policy] >= 0.97, "demo: %s finds %.3f of the ideal"
          % (policy, share[policy]))

check(share["random"] < 0.6, "demo: random finds %.3f" % share["random"])

# nor are they packed on few engines, whose caches are too small for them

thirds = figures(thirds)

for policy in ("kv_cache", "kv_cache_usage"):
    check(thirds[policy][0] >= 0.97 * thirds["sticky"][0]
          and thirds[policy][1] <= 1.05 * thirds["sticky"][1]
          and thirds[policy][3] <= 1.3,
          "thirds: %s finds %.3f, busiest %.2f, TTFT %.3f of sticky's"
          % (policy, thirds[policy][0], thirds[policy][3],
             thirds[policy][1] / thirds["sticky"][1]))

# a hot prefix spreads to other servers

table = sim("--only", "=hot_16k_100_400", "--load", "0.3", "--seeds", "1",
            "--policies", "=kv_cache,=least_request", "--quiet")[1]
rows = {word[0]: word for word in map(str.split, table.splitlines())
        if len(word) == 17}
check(float(rows["kv_cache"][12]) >= 0.5
      and float(rows["kv_cache"][15]) <= 1.1,
      "hot: the least busy has %s of the mean, end to end %s"
      % (rows["kv_cache"][12], rows["kv_cache"][15]))

# requests so rare and long that the count of a minute misses the last one

table = sim("--only", "=hot_16k_400_2000", "--load", "0.1", "--seeds", "1",
            "--quiet", "--policies", "=kv_cache")[1]
rows = {word[0]: word for word in map(str.split, table.splitlines())
        if len(word) == 13 and "(0.0" not in word}
check(float(rows["kv_cache"][12]) >= 0.5,
      "hot and few: the least busy has %s of the mean" % rows["kv_cache"][12])

table = sim("--only", "=thirds_idle", "--seeds", "2", "--quiet",
            "--policies", "=kv_cache,=sticky")[1]
rows = {word[0]: word
        for word in map(str.split, table.split("\ngeometric")[0].splitlines())
        if word and word[0] in ("kv_cache", "sticky")}
check(float(rows["kv_cache"][11]) <= 1.3
      and float(rows["kv_cache"][6]) >= 0.97 * float(rows["sticky"][6]),
      "few agents at a time: busiest %s, cached %s, sticky %s"
      % (rows["kv_cache"][11], rows["kv_cache"][6], rows["sticky"][6]))

def queued(scenario, load):
    """Returns the rows of kv_cache without the queue and with it."""
    table = sim("--only", "=" + scenario, "--load", load, "--seeds", "1",
                "--policies", "=kv_cache,=kv_cache_queued", "--quiet",
                "--requests", "1000")[1]
    return [word[1:7] for word in map(str.split, table.splitlines())
            if word and word[0] in ("kv_cache", "kv_cache_queued")
            and len(word) > 12][:2]


without, within = queued("agents", "1.15")
check(without == within,
      "the queue changes nothing if no request waits")

# 64 replicas fill all bits of a set; one or two replicas are full

without, within = queued("agents_64", "1.01")
check(without[5] == within[5], "the model with the queue, 64 replicas: "
      "%s cached, %s without it" % (within[5], without[5]))

# several hosts: sharing is as good as one host, homes are better than nothing

table = sim("--hosts", "--only", "=zipf", "--requests", "800", "--seeds", "1",
            "--quiet")[1]


def of_one(*row):
    """Returns the cached share over one host's, from the row that begins like
    this."""
    for word in map(str.split, table.splitlines()):
        if tuple(word[:len(row)]) == row:
            return float(word[len(row) + 1])
    return -1.0


apart = of_one("8", "apart", "0.000", "0.00", "none", "0.00")
homes = of_one("8", "apart", "0.000", "0.00", "none", "0.80", "crowd")
shared = of_one("8", "shared", "0.005", "0.00", "thin", "0.00")
check(apart < homes - 0.05 and homes > 0.9 and shared > 0.97,
      "eight hosts find %.3f of what one does apart, %.3f with homes, %.3f "
      "sharing" % (apart, homes, shared))

# with KV events the prediction is what is cached

with tempfile.TemporaryDirectory() as d:
    out = os.path.join(d, "out.json")
    sim("--only", "=zipf_starved,=agents_restart", "--load", "0.9",
        "--seeds", "1", "--requests", "1500", "--quiet", "--out", out,
        "--policies",
        "=kv_cache_reported,=kv_cache_events,=kv_cache_aliases,=oracle")

    with open(out) as f:
        points = {p["scenario"]: p["policies"]
                  for p in json.load(f)["per_scenario"]}

    rows = points["zipf_starved"]
    ratio = {name: row["predicted"] / row["cached"] for name, row in rows.items()}

    # the oracle's prediction is right, except for changes until admission
    # let in

    for scenario, policies in points.items():
        row = policies["oracle"]
        check(abs(row["predicted"] / row["cached"] - 1) < 0.0002,
              "%s: the oracle sees %.5f, and %.5f is cached"
              % (scenario, row["predicted"], row["cached"]))

    for name in ("kv_cache_events", "kv_cache_aliases"):
        check(0.97 <= ratio[name] <= 1.03,
              "%s: predicted %.3f of the cached" % (name, ratio[name]))

    check(ratio["kv_cache_reported"] > 1.03,
          "no events: predicted %.3f of the cached" % ratio["kv_cache_reported"])

with tempfile.TemporaryDirectory() as d:

    # 40 prompts of 8 blocks; only the first block is shared

    with open(os.path.join(d, "conversation_trace.jsonl"), "w") as f:
        for i in range(40):
            ids = [0] + [1 + i * 7 + k for k in range(7)]
            f.write(json.dumps({"timestamp": i * 1000, "input_length": 4096,
                                "output_length": 20, "hash_ids": ids}) + "\n")

    table = sim("--traces", d, "--only", "=conversation_ample", "--load", "0.3",
                "--requests", "400", "--seeds", "1", "--quiet",
                "--policies", "=kv_cache")[1]
    share = cached(table, "kv_cache")
    check(0.10 < share < 0.14,
          "a trace that is repeated has other texts: %.3f cached" % share)

for args in (["--jobs", "-1"], ["--seeds", "x"], ["--seeds", "0"],
             ["--load", "nan"], ["--requests", "-5"], ["--only", "nosuch"],
             ["--only", "=short", "--policies", "nosuch"], ["more"]):
    check(sim(*args)[0] == 2, "refused: " + " ".join(args))

sys.exit(failed != 0)
