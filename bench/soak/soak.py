#!/usr/bin/env python3
"""Sends millions of prompts that never repeat, and measures memory.

    MINUTES=30 PROMPTS=10000000 bench/soak/soak.py       (make soak)

Runs until all prompts are sent or the time is over.  The zone is small: it is
full after some ten thousand prompts, and then each prompt replaces another one.
Writes build/soak.json: for each step the private memory of the workers and of
the master in kB, their descriptors, and the fill of the index.  Growth is the
difference between the end of the first tenth and the last step.
"""

import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../common"))
sys.dont_write_bytecode = True

import harness                                          # noqa: E402
import rig                                              # noqa: E402
from places import BUILD                                # noqa: E402

MINUTES = float(os.environ.get("MINUTES") or 30)
PROMPTS = int(os.environ.get("PROMPTS") or 10_000_000)
STEPS = 100


def files(pid):
    return sum(len(os.listdir("/proc/%d/fd" % p)) for p in rig.family(pid))


def state(nginx, prompts):
    status = nginx.status()
    zone = status["zones"]["bench"]

    return {"prompts": prompts,
            "master_kb": rig.memory(nginx.pid) // 1024
            - sum(rig.memory(p) for p in nginx.workers()) // 1024,
            "workers_kb": sum(rig.memory(p) for p in nginx.workers()) // 1024,
            "files": files(nginx.pid),
            "fill": round(zone["fill"], 3), "evicted": zone["evicted"],
            "requests": sum(p["requests"] for p in
                            status["upstreams"]["engines"]["peers"])}


def main():
    engines = harness.upstream(4)
    nginx = harness.Nginx(engines, False, workers=2, zone="16m",
                          location="} location /kvroute/ { kvroute_status;")
    start = time.monotonic()
    end = start + 60 * MINUTES
    first, errors = 1, 0
    steps = []

    while first <= PROMPTS and time.monotonic() < end:
        n = min(max(PROMPTS // STEPS, 1000), PROMPTS - first + 1)
        found = harness.load(port=nginx.port, conns=16, requests=n, size=2048,
                             unique=1, first=first)
        errors += found["errors"]
        first += n
        steps.append(state(nginx, first - 1))

    tenth = steps[(len(steps) + 9) // 10 - 1]
    last = steps[-1]
    result = {"prompts": first - 1, "errors": errors,
              "seconds": round(time.monotonic() - start, 1),
              "counted": last["requests"], "fill": last["fill"],
              "evicted": last["evicted"],
              "workers_kb": last["workers_kb"],
              "workers_growth_kb": last["workers_kb"] - tenth["workers_kb"],
              "master_growth_kb": last["master_kb"] - tenth["master_kb"],
              "files_growth": last["files"] - tenth["files"], "steps": steps}

    nginx.stop()
    rig.save(os.path.join(BUILD, "soak.json"), result)
    print(", ".join("%s %s" % (k, v) for k, v in result.items()
                    if k != "steps"))

    return errors != 0 or last["requests"] != first - 1


if __name__ == "__main__":
    sys.exit(main())
