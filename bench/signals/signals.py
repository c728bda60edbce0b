"""make bench-signals: what live signals from engines improve, and cost.

PARTS="chunk_cpu small_replica" runs these parts only:

    chunk_delay     delay that the filter adds to a streamed chunk
    chunk_cpu       CPU time of the filter for a streamed chunk
    capacity        capacity read from metrics, in each dialect
    small_replica   a fleet in which one replica has a quarter of the KV
                    memory, compared with the simulator's oracle (real time,
                    five times faster)
    bad_probes      latency while metrics are frozen, garbage, huge or late
    real            real llama.cpp engines, if the machine can get them:
                    predicted and delivered tokens, and learned replies
    restart         one of these engines is killed and started again; found
                    by responses alone, and by probes alone

Prints the results and writes build/bench/signals.json; "aims" says for each aim
whether it was reached.
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

# aims by name: a check of the whole result

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
            pass                        # the part of this aim has not run
        except TypeError:
            result["aims"][name] = False    # the restart was not found at all

    save(os.path.join(RESULTS, "signals.json"), result)
    print(json.dumps(result, indent=2))


main()
