#!/usr/bin/env python3
"""Writes the worst results of short chats beside long documents, and the gains
by fetching and by waiting for a sibling.

usage: burst.py SUMMARY.json FURTHER.json BURST.json

"mixed" is that scenario; "others" are those with other shares and lengths of
documents.  Both have ratios to the best rival of their point.  "further" has
ratios to the same router without fetching and waiting, by scenario and load.
"forks", "documents" and "siblings" are the worst of these with fetching.
"""

import json
import sys

FIGURES = {"ttft": "ttft", "p99": "p99", "e2e": "e2e"}
FURTHER = {"ttft": "ttft_mean", "p90": "ttft_p90", "p99": "ttft_p99",
           "e2e": "e2e_mean"}


def ratios(point):
    return {k: point["vs_best_rival"][v]["ratio"] for k, v in FIGURES.items()}


def worst(points):
    return {k: max(p[k] for p in points) for k in points[0]}


def load(path):
    with open(path) as f:
        return json.load(f)["per_scenario"]


points = [(p["scenario"], p["load"], ratios(p)) for p in load(sys.argv[1])]
burst = {"mixed": worst([r for name, _, r in points if name == "mixed"]),
         "others": {}, "further": {}}

for name, at, r in points:
    print("%-16s %4.2f of the knee: TTFT %.2f, P99 %.2f, end to end %.2f"
          % (name, at, r["ttft"], r["p99"], r["e2e"]))

    if name != "mixed":
        burst["others"].setdefault(name, {})["%.2f" % at] = r

print("mixed, worst:", json.dumps(burst["mixed"]))

for p in load(sys.argv[2]):
    rows = p["policies"]
    plain = rows["knows"]
    point = {}

    for policy in "fetch", "wait", "both":
        row = rows[policy]
        point[policy] = r = {k: row[v] / plain[v] for k, v in FURTHER.items()}
        r["prefills"] = row["prefills"]
        r["fetched"] = row["fetched"]

        print("%-14s %4.2f %-6s TTFT %.2f, P90 %.2f, P99 %.2f, end to end %.2f,"
              " prefills %.2f (%.2f)"
              % (p["scenario"], p["load"], policy, r["ttft"], r["p90"],
                 r["p99"], r["e2e"], r["prefills"], plain["prefills"]))

    point["fetch"]["vs_best_rival"] = rows["fetch"]["ttft_mean"] / min(
        row["ttft_mean"] for name, row in rows.items()
        if name not in ("knows", "fetch", "wait", "both"))
    burst["further"].setdefault(p["scenario"], {})["%.2f" % p["load"]] = point


def fetching(scenario, figure):
    return max(p["fetch"][figure] for p in burst["further"][scenario].values())


burst["forks"] = {"prefills": fetching("forks", "prefills"),
                  "p90_ratio": fetching("forks", "p90")}
burst["siblings"] = {"ttft": fetching("siblings_new", "vs_best_rival")}
burst["documents"] = {"p99_ratio": fetching("documents", "p99")}

with open(sys.argv[3], "w") as f:
    json.dump(burst, f, indent=2)
    f.write("\n")

for name in "forks", "siblings", "documents":
    print(name, json.dumps(burst[name]))
