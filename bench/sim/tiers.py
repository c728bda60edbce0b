#!/usr/bin/env python3
"""Compares the figures before and after the router learned about tiers.

usage: tiers.py NOW.json BEFORE.json FLEET

FLEET is the output of tiers_fleet.pl.
"""

import json
import sys

with open(sys.argv[1]) as f:
    now = json.load(f)

with open(sys.argv[2]) as f:
    before = json.load(f)

now["to_oracle"]["before"] = before["to_oracle"]["learned"]
now["hybrid"]["before"] = before["hybrid"]
now["fleet"] = {"cached_to_oracle": float(sys.argv[3]),
                "before": before["fleet"]["cached_to_oracle"]}
now["before"] = {name: {policy: row["to_oracle"]
                        for policy, row in rows.items()}
                 for name, rows in before.items()
                 if name not in ("to_oracle", "fleet", "hybrid")}

with open(sys.argv[1], "w") as f:
    json.dump(now, f, indent=2)
    f.write("\n")

print(json.dumps({k: now[k] for k in ("to_oracle", "fleet", "hybrid")}, indent=2))
