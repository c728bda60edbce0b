#!/usr/bin/env python3
"""Several nginx hosts before one fleet of emulated engines: what they find
cached with separate indexes, with homes, and with sharing; and what happens to
requests and sharing when something breaks.  Writes hosts.json.

    hosts.py --out FILE [--only CASE,...] [--seconds N] [--plain]

README.md in this folder says what is measured.
"""

import argparse
import json
import os
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../common"))

from rig import machine, quantile, save  # noqa: E402

import faults  # noqa: E402
from fleet import Fleet  # noqa: E402
from work import Clients, KINDS  # noqa: E402

# a quarter of the time that the caches take to fill

WARM = 0.25

CASES = [("one", 1, "apart"), ("apart", 2, "apart"), ("apart", 4, "apart"),
         ("apart", 8, "apart"), ("home", 8, "home"), ("shared", 8, "shared")]


def figures(answers, seconds):
    """Returns the figures of the requests after the caches were warm."""
    began = min(a.start for a in answers)
    late = [a for a in answers if a.start > began + WARM * seconds]
    good = [a for a in late if a.good()]
    peers = {}

    for a in good:
        peers[a.peer] = peers.get(a.peer, 0) + 1

    return {"requests": len(late), "failed": len(late) - len(good),
            "cached": sum(a.cached for a in good) / sum(a.prompt for a in good),
            "ttft_s": sum(a.first for a in good) / len(good),
            "ttft_p99_s": quantile([a.first for a in good], 0.99),
            "imbalance": max(peers.values()) * len(peers) / len(good)}


def compare(args, result):
    """Returns cached share, TTFT and balance, of one host and of several."""
    for kind in KINDS:
        rows = result.setdefault("kinds", {}).setdefault(kind, {})

        for name, count, mode in CASES:

            if not args.wants(name):
                continue

            with Fleet(count, mode, kind, plain=args.plain) as fleet:
                lag = Lag(fleet) if mode == "shared" else None

                row = figures(Clients(fleet.hosts, kind, args.seconds).play(),
                              args.seconds)

                if lag:
                    row.update(shares(fleet), lag_ms=lag.end())

            rows["%s_%d" % (name, count)] = row

            print("%-8s %-6s %d  cached %.3f  TTFT %.0f ms  P99 %.0f ms  "
                  "imbalance %.2f  failed %d of %d"
                  % (kind, name, count, row["cached"], 1000 * row["ttft_s"],
                     1000 * row["ttft_p99_s"], row["imbalance"],
                     row["failed"], row["requests"]), flush=True)


def shares(fleet):
    """Checks that sharing was on: each host has applied updates of each
    other."""
    taken = [o["lessons"] for h in fleet.hosts for o in h.share()["hosts"]]
    states = [h.share() for h in fleet.hosts]

    if len(taken) < fleet.count * (fleet.count - 1) or not all(taken):
        raise SystemExit("sharing was not on: %s" % taken)

    return {"lessons_least": min(taken),
            "dropped": sum(s["dropped"] for s in states),
            "gaps": sum(s["gaps"] for s in states)}


class Lag(threading.Thread):
    """Returns the lag of batches, which hosts report in their status."""

    def __init__(self, fleet):
        super().__init__()
        self.fleet, self.seen, self.over = fleet, [], threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(0.05):
            for h in self.fleet.hosts:
                self.seen.append(h.share()["lag_last"])

    def end(self):
        self.over.set()
        self.join()
        return {"p50": quantile(self.seen, 0.5),
                "p99": quantile(self.seen, 0.99)}


def summary(result):
    """Computes the keys of the result, as means over the kinds of load."""
    kinds = result.get("kinds", {})

    def mean(row, key="cached"):
        values = [k[row][key] for k in kinds.values() if row in k]
        return sum(values) / len(values) if values else None

    result["one"] = mean("one_1")
    result["apart"] = {n: mean("apart_" + n) for n in "248"}
    result["home"] = {"8": mean("home_8")}
    result["shared"] = {"8": mean("shared_8")}

    for kind, rows in kinds.items():
        one = rows.get("one_1")

        for name, row in rows.items() if one else ():
            for key, to in (("cached", "cached_of_one"),
                            ("ttft_s", "ttft_of_one"),
                            ("imbalance", "imbalance_of_one")):
                row[to] = row[key] / one[key]

            print("%-8s %-10s of one's: cached %.3f  TTFT %.2f  imbalance "
                  "%.2f" % (kind, name, row["cached_of_one"],
                            row["ttft_of_one"], row["imbalance_of_one"]))

    for k in kinds.values():
        if "lag_ms" in k.get("shared_8", {}):
            result["lag_ms"] = k["shared_8"]["lag_ms"]

    return result


# aims: name, value, sign (+1: at least, -1: at most), where the figure is

AIMS = [("cached, 8 sharing, over one host's", 0.98, +1,
         lambda r: least(r, "shared_8", "cached_of_one")),
        ("cached, 8 with homes, over one host's", 0.90, +1,
         lambda r: least(r, "home_8", "cached_of_one")),
        ("TTFT, 8 sharing, over one host's", 1.05, -1,
         lambda r: most(r, "shared_8", "ttft_of_one")),
        ("imbalance, 8 sharing, over one host's", 1.1, -1,
         lambda r: most(r, "shared_8", "imbalance_of_one")),
        ("lag, ms, median", 5, -1, lambda r: r["lag_ms"]["p50"]),
        ("lag, ms, P99", 15, -1, lambda r: r["lag_ms"]["p99"]),
        ("CPU of reading, share of a core", 0.01, -1, lambda r: r["cpu_core_share"]),
        ("cached, ninth host, over the others'", 0.95, +1,
         lambda r: r["joiner"]),
        ("cached, restarted with a snapshot", 0.95, +1,
         lambda r: r["faults"]["snapshot"]["warm_of_before"]),
        ("failed while the store is broken", 0, -1,
         lambda r: r["store_dead"]["failed"]),
        ("P99 of decisions then, ratio", 1.1, -1,
         lambda r: r["store_dead"]["p99_ratio"]),
        ("until sharing works again, s", 5, -1, lambda r: r["store_dead"]["back_s"]),
        ("until a killed host's load is gone, s", 3, -1,
         lambda r: r["faults"]["host_killed"]["gone_s"]),
        ("batches lost by kills of worker 0", 0, -1,
         lambda r: r["faults"]["worker_killed"]["gaps"]),
        ("silence by kills of worker 0, s", 1, -1,
         lambda r: r["faults"]["worker_killed"]["longest_silence_s"]),
        ("batches lost by reloads", 0, -1,
         lambda r: r["faults"]["reloaded"]["gaps"]),
        ("failed by reloads", 0, -1, lambda r: r["lost"])]


def least(result, row, key):
    return min(k[row][key] for k in result["kinds"].values())


def most(result, row, key):
    return max(k[row][key] for k in result["kinds"].values())


def table(result):
    """Prints each aim beside its figure, or "-" if it was not measured."""
    for name, aim, sign, figure in AIMS:
        try:
            value = figure(result)
        except (KeyError, TypeError, ValueError):
            value = None

        print("%-38s aim %s %-5g %s" % (
            name, ">=" if sign > 0 else "<=", aim,
            "-" if value is None else "%.3g%s" % (
                value, "" if sign * (value - aim) >= 0 else "  MISSED")))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", required=True)
    p.add_argument("--only", help="names of cases, with commas")
    p.add_argument("--seconds", type=float, default=20)
    p.add_argument("--plain", action="store_true",
                   help="addresses of the loopback interface")
    args = p.parse_args()

    only = args.only.split(",") if args.only else None
    args.wants = lambda name: only is None or name in only

    result = {"machine": machine(), "seconds": args.seconds}

    if only and os.path.exists(args.out):
        with open(args.out) as f:
            result.update(json.load(f))

    compare(args, result)
    faults.all_of(args, result)

    save(args.out, summary(result))
    table(result)
    print(args.out)


if __name__ == "__main__":
    main()
