"""make bench-hot: beginnings that many requests share, in real time.

    burst     one prompt that 64 clients send at once (burst.py)
    shared    a system prompt that all share, at a rate (shared.py)
    agents    on engines that hold a third of the sessions each (agents.py)

Emulated engines (t/engine) behind nginx with the module.  Times are seen by
the clients.  Prints tables, then each aim beside what was measured, and writes
build/bench/hot.json.

    PARTS="burst shared"              these parts only
    POLICIES="round_robin kv_cache"   the policies of the bursts
    RUNS=3                            bursts for each row, all counted
    RATES="2 8 20" REQUESTS=600       of the shared system prompt
    SEEDS=3                           runs of the agents
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
