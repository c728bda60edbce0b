#!/usr/bin/env python3
"""Draws the simulator's summary.json as SVG.  usage: plot.py SUMMARY DIR

    hits.svg    cached share of prompts against the load
    p95.svg     P95 time to first token, geometric mean, against the load
    pareto.svg  cached share against the imbalance of requests
"""

import json
import math
import os
import sys

W, H = 760, 430
LEFT, RIGHT, TOP, BOTTOM = 64, 190, 40, 52

# the policies that are drawn, and their colours
SHOWN = [
    ("kv_cache", "#d62728"), ("sticky", "#e377c2"),
    ("least_request", "#7f7f7f"), ("random", "#c7c7c7"),
    ("lmetric", "#1f77b4"), ("two_tier", "#17becf"),
    ("sglang_request", "#2ca02c"), ("dynamo_1", "#9467bd"),
    ("llmd_blend", "#8c564b"), ("kubeai", "#bcbd22"), ("aibrix", "#ff7f0e"),
]


def geo(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def collect(summary):
    """Returns {policy: {load: (hits, p95, imbalance)}}: means over
    scenarios."""
    loads = {}

    for point in summary["per_scenario"]:
        if not point.get("hot"):
            loads.setdefault(point["load"], []).append(
                point["policies"])

    out = {}

    for name, _ in SHOWN:
        for load, points in sorted(loads.items()):
            rows = [p[name] for p in points if name in p]

            if len(rows) == len(points):
                out.setdefault(name, {})[load] = (
                    sum(r["cached"] for r in rows) / len(rows),
                    geo([max(r["ttft_p95"], 1e-4) for r in rows]),
                    sum(r["imbalance"] for r in rows) / len(rows))

    return out


class Axis:
    def __init__(self, values, length, log=False, lo=None, hi=None):
        self.log = log
        self.lo = min(values) if lo is None else lo
        self.hi = max(values) if hi is None else hi
        self.length = length

        if log:
            self.lo /= 1.2
            self.hi *= 1.2

    def __call__(self, v):
        a, b = self.lo, self.hi

        if self.log:
            a, b, v = math.log(a), math.log(b), math.log(v)

        return (v - a) / (b - a) * self.length

    def ticks(self):
        if self.log:
            steps = [m * 10.0 ** e for e in range(-4, 5) for m in (1, 2, 5)]
            return [s for s in steps if self.lo <= s <= self.hi]

        step = 10 ** math.floor(math.log10(self.hi - self.lo))

        while (self.hi - self.lo) / step < 4:
            step /= 2

        n = math.ceil(self.lo / step - 1e-9)
        return [i * step for i in range(n, int(self.hi / step + 1e-9) + 1)]


def spread(labels, gap=13):
    """Moves labels apart: [(y, ...)], by y."""
    out = []

    for y, *rest in sorted(labels):
        if out and y < out[-1][0] + gap:
            y = out[-1][0] + gap
        out.append((y, *rest))

    return out


class Plot:
    def __init__(self, title, xlabel, ylabel, x, y):
        self.x, self.y = x, y
        self.out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{W}" '
            f'height="{H}" font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{LEFT}" y="22" font-size="14">{title}</text>',
            f'<text x="{LEFT + x.length / 2}" y="{H - 12}" '
            f'text-anchor="middle">{xlabel}</text>',
            f'<text transform="translate(16 {TOP + y.length / 2}) '
            f'rotate(-90)" text-anchor="middle">{ylabel}</text>']

        for t in x.ticks():
            p = LEFT + x(t)
            self.line(p, TOP, p, TOP + y.length, "#e8e8e8")
            self.text(p, TOP + y.length + 16, f"{t:g}", anchor="middle")

        for t in y.ticks():
            p = TOP + y.length - y(t)
            self.line(LEFT, p, LEFT + x.length, p, "#e8e8e8")
            self.text(LEFT - 6, p + 4, f"{t:g}", anchor="end")

    def at(self, vx, vy):
        return LEFT + self.x(vx), TOP + self.y.length - self.y(vy)

    def line(self, x1, y1, x2, y2, colour, dash=""):
        self.out.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" '
                        f'y2="{y2:.1f}" stroke="{colour}"{dash}/>')

    def text(self, x, y, s, colour="#333", anchor="start", bold=False):
        weight = ' font-weight="bold"' if bold else ""
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}" '
                        f'text-anchor="{anchor}"{weight}>{s}</text>')

    def curve(self, points, colour, width):
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        self.out.append(f'<polyline points="{path}" fill="none" '
                        f'stroke="{colour}" stroke-width="{width}"/>')

    def dot(self, x, y, colour, r):
        self.out.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r}" '
                        f'fill="{colour}"/>')

    def save(self, path):
        with open(path, "w") as f:
            f.write("\n".join(self.out) + "\n</svg>\n")


def curves(data, column, title, ylabel, path, log):
    loads = sorted({load for rows in data.values() for load in rows})
    values = [row[column] for rows in data.values() for row in rows.values()]

    x = Axis(loads, W - LEFT - RIGHT)
    y = Axis(values, H - TOP - BOTTOM, log,
             *(() if log else (0, min(1, max(values) + 0.1))))
    plot = Plot(title, "offered load, as a share of the knee under "
                "least_request", ylabel, x, y)

    knee = LEFT + x(1)
    plot.line(knee, TOP, knee, TOP + y.length, "#aaa",
              ' stroke-dasharray="4 3"')

    labels = []

    for name, colour in reversed(SHOWN):
        if name in data:
            points = [plot.at(load, row[column])
                      for load, row in sorted(data[name].items())]
            plot.curve(points, colour, 3 if name == "kv_cache" else 1.5)
            labels.append((points[-1][1], name, colour))

    for py, name, colour in spread(labels):
        plot.text(LEFT + x.length + 8, py + 4, name, colour,
                  bold=name == "kv_cache")

    plot.save(path)


def pareto(data, path):
    means = {name: [sum(row[c] for row in rows.values()) / len(rows)
                    for c in (0, 2)] for name, rows in data.items()}

    x = Axis([m[1] for m in means.values()], W - LEFT - RIGHT, lo=1)
    hits = [m[0] for m in means.values()]
    y = Axis(hits, H - TOP - BOTTOM, lo=max(0, min(hits) - 0.05),
             hi=min(1, max(hits) + 0.05))
    plot = Plot("Cached share against imbalance, mean over all runs",
                "imbalance: requests of the busiest replica over the mean",
                "share of prompt tokens found in a cache", x, y)

    labels = []

    for name, colour in SHOWN:
        if name in means:
            px, py = plot.at(means[name][1], means[name][0])
            plot.dot(px, py, colour, 6 if name == "kv_cache" else 4)
            labels.append((py, name, colour, px))

    # a thin line to the label, which may be moved

    for py, name, colour, px in spread(labels):
        end = LEFT + x.length
        plot.line(px, plot.at(x.lo, means[name][0])[1], end, py, "#ddd")
        plot.text(end + 4, py + 4, name, colour, bold=name == "kv_cache")

    plot.save(path)


def main():
    with open(sys.argv[1]) as f:
        data = collect(json.load(f))

    if not data or len(next(iter(data.values()))) < 2:
        print("plot.py: fewer than two loads, nothing to draw")
        return

    out = sys.argv[2]
    curves(data, 0, "Cached share, mean over the scenarios",
           "share of prompt tokens", os.path.join(out, "hits.svg"), False)
    curves(data, 1, "P95 time to first token, geometric mean over the "
           "scenarios", "s", os.path.join(out, "p95.svg"), True)
    pareto(data, os.path.join(out, "pareto.svg"))


if __name__ == "__main__":
    main()
