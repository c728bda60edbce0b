#!/usr/bin/env python3
"""What the simulator must keep to.  usage: sim_test.py SIM

A run depends on its seed only; a trace that is too short goes on with other
texts; an argument that is none ends the program.
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
      "the same again, by two processes")
check(sim(*few, "--seeds", "2", "--seed", "7")[1] != first,
      "other seeds, other figures")

# what a session has sent before is found again: it is not torn apart

rc, table = sim("--demo", "--policies", "=kv_cache,=kv_cache_usage,=random")

share = {word[0]: float(word[1]) for word in map(str.split, table.splitlines())
         if len(word) > 3 and word[0] in ("kv_cache", "kv_cache_usage",
                                          "random")}

for policy in ("kv_cache", "kv_cache_usage"):
    check(share[policy] >= 0.97, "demo: %s finds %.3f of the ideal"
          % (policy, share[policy]))

check(share["random"] < 0.6, "demo: random finds %.3f" % share["random"])

with tempfile.TemporaryDirectory() as d:

    # 40 prompts of 8 blocks, of which only the first block is shared

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
          "a trace that starts anew has other texts: %.3f cached" % share)

for args in (["--jobs", "-1"], ["--seeds", "x"], ["--seeds", "0"],
             ["--load", "nan"], ["--requests", "-5"], ["--only", "nosuch"],
             ["--only", "=short", "--policies", "nosuch"], ["more"]):
    check(sim(*args)[0] == 2, "refused: " + " ".join(args))

sys.exit(failed != 0)
