#!/usr/bin/env python3
"""Writes what is worst of short chats beside long documents.

usage: burst.py SUMMARY.json BURST.json

Each figure is a ratio to the best rival of its point.  "mixed" is that
scenario; "others" are those with other shares and lengths of documents.
"""

import json
import os
import sys

FIGURES = {"ttft": "ttft", "p99": "p99", "e2e": "e2e"}


def ratios(point):
    return {k: point["vs_best_rival"][v]["ratio"] for k, v in FIGURES.items()}


def worst(points):
    return {k: max(p[k] for p in points) for k in FIGURES}


with open(sys.argv[1]) as f:
    points = [(p["scenario"], p["load"], ratios(p))
              for p in json.load(f)["per_scenario"]]

burst = {}

if os.path.exists(sys.argv[2]):
    with open(sys.argv[2]) as f:
        burst = json.load(f)

burst["mixed"] = worst([r for name, load, r in points if name == "mixed"])
burst["others"] = {}

for name, load, r in points:
    print("%-16s %4.2f of the knee: TTFT %.2f, P99 %.2f, end to end %.2f"
          % (name, load, r["ttft"], r["p99"], r["e2e"]))

    if name != "mixed":
        burst["others"].setdefault(name, {})["%.2f" % load] = r

with open(sys.argv[2], "w") as f:
    json.dump(burst, f, indent=2)
    f.write("\n")

print("mixed, worst:", json.dumps(burst["mixed"]))
