"""All requests share one system prompt, and go to eight engines at a fixed rate.

600 requests (REQUESTS).  Each has the shared system prompt of 16 KB and 1.6 KB
of its own, and an answer of 400 tokens.  The engines emulate a 24B model on
H100s, in real time.  All policies run at the same time, each with its own
engines, so that the machine is equally busy for all of them.
"""

import os
import random

from clients import body, play, text
from front import Front, together

HARDWARE = "devstral-24b-fp8-h100"
ENGINES, SYSTEM, OWN, TOKENS = 8, 16384, 1600, 400

REQUESTS = int(os.environ.get("REQUESTS") or 600)
RATES = [float(r) for r in (os.environ.get("RATES") or "2 8 20").split()]

POLICIES = {
    "least_conn": "least_conn;",
    "round_robin": "",
    "kv_cache": "kvroute kv_cache zone=llm;",
}

FIRST = 20              # requests after which all replicas should have work

# aims: end to end over least_conn's, busiest engine over the mean, cached share
END, BUSIEST, CACHED = 1.05, 1.3, 0.97


def requests(rate):
    r = random.Random("shared %g" % rate)
    at = 0
    due = []

    for n in range(REQUESTS):
        at += r.expovariate(rate)
        due.append((at, body([
            {"role": "system", "content": text("system %g" % rate, SYSTEM)},
            {"role": "user", "content": text("own %g %d" % (rate, n), OWN)}],
            TOKENS)))

    return due


def run(policy, rate, results):
    with Front(POLICIES[policy], ENGINES, "--hardware", HARDWARE) as front:
        results.put((policy, play(front.port, requests(rate))))


def row(policy, rate, answers):
    n = len(answers)
    later = [a.who for a in answers[FIRST:]]
    count = sorted((later.count(w) for w in set(later)), reverse=True)

    # one replica would find the system prompt cached for all but the first

    most = max(a.cached for a in answers)

    return {
        "policy": policy, "rate": rate, "requests": n,
        "ttft_mean_s": round(sum(a.first for a in answers) / n, 4),
        "end_mean_s": round(sum(a.end for a in answers) / n, 4),
        "end_p95_s": round(sorted(a.end for a in answers)[int(0.95 * n)], 4),
        "token_ms": round(1000 * sum((a.end - a.first) / (TOKENS - 1)
                                     for a in answers) / n, 3),
        "requests_per_engine": count + [0] * (ENGINES - len(count)),
        "busiest": round(count[0] * ENGINES / len(later), 3),
        "cached": round(sum(a.cached for a in answers)
                        / sum(a.prompt for a in answers), 4),
        "cached_of_one": round(sum(a.cached for a in answers)
                               / (most * (n - 1)), 4),
    }


def bench():
    rows = []

    for rate in RATES:
        found = together(run, POLICIES, rate, seconds=REQUESTS / rate + 300)
        part = [row(policy, rate, found[policy]) for policy in POLICIES]

        for r in part:
            r["end_of_least_conn"] = round(r["end_mean_s"]
                                           / part[0]["end_mean_s"], 3)

        rows += part

    aims = {
        "end_of_least_conn": [END, max(r["end_of_least_conn"] for r in rows
                                       if r["policy"] == "kv_cache")],
        "busiest": [BUSIEST, max(r["busiest"] for r in rows
                                 if r["policy"] == "kv_cache")],
        "cached_of_one": [CACHED, min(r["cached_of_one"] for r in rows
                                      if r["policy"] == "kv_cache")],
    }

    return {"engines": ENGINES, "hardware": HARDWARE, "system_bytes": SYSTEM,
            "own_bytes": OWN, "tokens": TOKENS, "rows": rows, "aims": aims}


def report(result):
    print("a shared system prompt of %d KB, then %.1f KB of a request's own, "
          "%d tokens of answer; %d engines\n(%s)\n"
          % (SYSTEM / 1024, OWN / 1024, TOKENS, ENGINES, HARDWARE))

    head = "%5s  %-12s %7s %7s %7s %9s %9s %9s %9s   %s"
    print(head % ("/s", "policy", "TTFT", "end", "P95", "ms/token",
                  "vs least", "cached", "vs one", "requests per engine"))

    for r in result["rows"]:
        print(head % ("%g" % r["rate"], r["policy"],
                      "%.0f" % (1000 * r["ttft_mean_s"]),
                      "%.0f" % (1000 * r["end_mean_s"]),
                      "%.0f" % (1000 * r["end_p95_s"]),
                      "%.2f" % r["token_ms"],
                      "%.2f" % r["end_of_least_conn"],
                      "%.3f" % r["cached"], "%.3f" % r["cached_of_one"],
                      "/".join(map(str, r["requests_per_engine"]))))
