"""Agents that fork from one long prompt: what fetching the KV cache improves.

One of eight emulated engines (a 24B model on an H100 each) has a prompt of 40,000 tokens
cached.  43 agents continue it at the same time.  Each row is a location: with
kvroute_prefill connector=pull, and without.  Adds "fleet" to a JSON file:

    bench/hot/forks.py build/bench/burst.json
"""

import json
import os
import sys

from clients import ask, at_once, body, text
from front import Engines, Front
from rig import get, merge, quantile

HARDWARE = "devstral-24b-fp8-h100"
ENGINES, FORKS, PREFIX, OWN, TOKENS = 8, 43, 160000, 1200, 64
LINK = 25e9                             # bytes/s

RUNS = int(os.environ.get("RUNS") or 5)

PLACES = {"fetch": "kvroute_prefill llm connector=pull transfer=25g/160k;",
          "plain": ""}


class Fleet(Engines):
    """Starts engines with an address each: "pull" names a source by its address
    only."""

    def servers(self, *params):
        return " ".join("server 127.0.0.%d:%d;" % (i + 1, port)
                        for i, port in enumerate(self.ports))

    def transferred(self):
        return sum(json.loads(get(port, "/control"))["transferred"]
                   for port in self.ports)


def fork(port, seed):
    """Returns the answers to the first request and to the agents."""
    messages = [{"role": "user", "content": text(seed, PREFIX)}]

    return ask(port, body(messages, 1)), at_once(port, [
        body(messages + [{"role": "assistant", "content": "ok"},
                         {"role": "user",
                          "content": text("%s %d" % (seed, i), OWN)}], TOKENS)
        for i in range(FORKS)])


def row(runs, fetched):
    answers = [a for _, agents in runs for a in agents]
    first = [a.first for a in answers]
    computed = sum(a.prompt - a.cached
                   for a in answers + [begun for begun, _ in runs])
    own = len(answers) * OWN // 4

    return {
        "ttft_mean_s": sum(first) / len(first),
        "ttft_p90_s": quantile(first, 0.9),
        "end_mean_s": sum(a.end for a in answers) / len(answers),
        "fetched_tokens": fetched,
        "prefills": (computed - own) / (PREFIX / 4) / len(runs)}


def measure(place):
    with Front("kvroute kv_cache zone=llm; kvroute_probe interval=500ms;",
               ENGINES, "--host", "0.0.0.0", "--hardware", HARDWARE,
               "--kv-bandwidth", str(LINK), fleet=Fleet,
               location=PLACES[place]) as front:

        runs = [fork(front.port, "%s %d" % (place, n)) for n in range(RUNS)]
        fetched = front.engines.transferred()

    return row(runs, fetched)


def main():
    rows = {place: measure(place) for place in PLACES}
    fetch, plain = rows["fetch"], rows["plain"]
    ratio = {k: fetch[k + "_s"] / plain[k + "_s"]
             for k in ("ttft_mean", "ttft_p90", "end_mean")}

    print("%d agents fork through nginx, %d times: TTFT %.2f, P90 %.2f, end to end "
          "%.2f, relative to no fetching; prefix computed %.2f times (%.2f)"
          % (FORKS, RUNS, ratio["ttft_mean"], ratio["ttft_p90"],
             ratio["end_mean"], fetch["prefills"], plain["prefills"]))

    merge(sys.argv[1], fleet={"forks": dict(rows, ratio=ratio)})


if __name__ == "__main__":
    main()
