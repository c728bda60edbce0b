"""make bench-hot: prefixes that many requests share, in real time.

    burst     64 clients send one prompt at once (burst.py)
    shared    all requests share a system prompt, at a fixed rate (shared.py)
    agents    each engine can cache a third of the agents' sessions (agents.py)

Emulated engines (t/engine) run behind nginx with the module.  The clients
measure the times.  Prints tables, then each aim beside the measured value, and
writes build/bench/hot.json.

    PARTS="burst shared"              runs these parts only
    POLICIES="round_robin kv_cache"   policies of the part "burst"
    RUNS=3                            bursts per row of "burst"
    RATES="2 8 20" REQUESTS=600       rates (per second) and requests of "shared"
    SEEDS=3                           runs of "agents"
"""

import os
import sys

import agents
import burst
import shared

from rig import RESULTS, save

PARTS = {"burst": burst, "shared": shared, "agents": agents}


def main():
    result = {}

    for name in (os.environ.get("PARTS") or " ".join(PARTS)).split():
        result[name] = PARTS[name].bench()
        PARTS[name].report(result[name])
        sys.stdout.flush()

    print("\n%-8s %-20s %9s %9s" % ("part", "", "aim", "measured"))

    for name, part in result.items():
        for key, (aim, have) in part["aims"].items():
            print("%-8s %-20s %9g %9g" % (name, key, aim, have))

    path = os.path.join(RESULTS, "hot.json")
    save(path, result)

    print("\n%s" % os.path.relpath(path))


if __name__ == "__main__":
    main()
