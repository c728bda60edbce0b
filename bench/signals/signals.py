"""make bench-signals: what live signals from engines bring, and cost.

PARTS="chunk_cpu small_replica" runs some of them only:

    chunk_delay     what the filter adds to the time that a streamed chunk takes
    chunk_cpu       what it costs in CPU time
    capacity        capacity picked up from metrics, in each dialect
    small_replica   a fleet with one replica of a quarter of the KV, beside the
                    simulator's oracle (real time, five times faster)
    bad_probes      latency while metrics are frozen, garbage, huge or late
    real            real llama.cpp engines, where the machine can get them:
                    predicted against delivered tokens, and replies learned
    restart         the same engines: one is killed and started again, seen by
                    responses alone and by probes alone

Prints and writes build/bench/signals.json; "aims" says what was to be reached
and whether it was.
"""

import json
import os
import time

import chunks
import fleet
import real
from rig import RESULTS, save

PARTS = {f.__name__: f for f in (
    chunks.chunk_delay, chunks.chunk_cpu, fleet.capacity, real.restart,
    real.real, fleet.bad_probes, fleet.small_replica)}

# what must hold, by its name in "aims"; a check is made of a whole result

AIMS = {
    "chunk_delay_us": lambda r: abs(r["chunk_delay_us"]) <= 50,
    "chunk_cpu_ratio": lambda r: r["chunk_cpu_ratio"] <= 1.04,
    "capacity": lambda r: all(c["told"] == c["is"]
                              for c in r["capacity"].values()),
    "small_replica_points": lambda r: r["small_replica"]["points"] >= -3,
    "bad_probe_failed": lambda r: r["bad_probe_failed"] == 0,
    "bad_probe_latency_ratio":
        lambda r: r["bad_probe_latency_ratio"] <= 1.05,
    "predicted_over_delivered":
        lambda r: abs(r["predicted_over_delivered"] - 1) <= 0.05,
    "flush_usage": lambda r: r["flush_requests"]["usage"] <= 3,
    "flush_probe": lambda r: r["flush_ms"]["probe"] <= 2000,
}


def main():
    result = {}

    for part in (os.environ.get("PARTS") or " ".join(PARTS)).split():
        begun = time.monotonic()
        PARTS[part](result)
        print("%s: %.0f s" % (part, time.monotonic() - begun), flush=True)

    result["aims"] = {}

    for name, reached in AIMS.items():
        try:
            result["aims"][name] = bool(reached(result))
        except KeyError:
            pass                        # its part has not run
        except TypeError:
            result["aims"][name] = False    # it was not noticed at all

    save(os.path.join(RESULTS, "signals.json"), result)
    print(json.dumps(result, indent=2))


main()
