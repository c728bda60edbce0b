#!/usr/bin/env python3
"""Draws the cached share of eight hosts, over that of one host, against the lag
of the updates between hosts.  usage: plot_hosts.py JSON SVG

Prints the table of docs/hosts.md as well.
"""

import json
import sys

from plot import Axis, BOTTOM, H, LEFT, Plot, RIGHT, TOP, W, spread

COLOURS = {0: "#2ca02c", 0.01: "#1f77b4", 0.1: "#ff7f0e", 0.5: "#d62728"}
DRAWN = "zipf"

# a lag of 0 is drawn here
LEAST = 0.001

ROWS = [
    ("2 hosts, apart", dict(hosts=2)),
    ("4 hosts, apart", dict(hosts=4)),
    ("8 hosts, apart", dict(hosts=8)),
    ("8, homes, credit 0.1", dict(hosts=8, home=0.1)),
    ("8, homes, credit 0.8", dict(hosts=8, home=0.8)),
    ("8, homes by the end of the first message",
     dict(hosts=8, home=0.8, home_by="user")),
    ("8, homes by the first 1,024 bytes",
     dict(hosts=8, home=0.8, home_by="begin")),
    ("8, gauges only, 5 ms", dict(hosts=8, gauges=True, lag_s=0.005)),
    ("8, index updates only, 5 ms", dict(hosts=8, shared=True, lag_s=0.005)),
    ("8, all, 5 ms", dict(hosts=8, shared=True, gauges=True, lag_s=0.005)),
    ("8, all, 5 ms, 1 % lost", dict(hosts=8, shared=True, gauges=True,
                                    lag_s=0.005, loss=0.01)),
    ("8, all, 5 ms, 10 % lost", dict(hosts=8, shared=True, gauges=True,
                                     lag_s=0.005, loss=0.1)),
    ("8, all, 100 ms", dict(hosts=8, shared=True, gauges=True, lag_s=0.1)),
    ("8, all, 1 s", dict(hosts=8, shared=True, gauges=True, lag_s=1)),
    ("8, index updates only, 1 s", dict(hosts=8, shared=True, lag_s=1)),
    ("8, index updates only, 1 s, half of them lost",
     dict(hosts=8, shared=True, lag_s=1, loss=0.5)),
    ("8, index updates only, 10 s, half of them lost",
     dict(hosts=8, shared=True, lag_s=10, loss=0.5)),
    ("8, all, 10 s, gauges count though old",
     dict(hosts=8, shared=True, gauges=True, lag_s=10,
          old_gauges_count=True)),
]


def find(cells, scenario, **want):
    """Returns the only cell with these properties, and defaults otherwise."""
    full = dict(shared=False, gauges=False, old_gauges_count=False, lag_s=0,
                loss=0, home=0, home_by="crowd")
    full.update(want)

    if full["shared"]:
        full.setdefault("refresh", "thin")

    for cell in cells:
        if cell["scenario"] == scenario \
                and all(cell[k] == v for k, v in full.items()):
            return cell


def table(cells):
    names = [n for n in ("agents", "zipf", "conversation")
             if find(cells, n, hosts=1)]

    print("| | " + " | | ".join(names) + " | |")
    print("|---|" + "---|---|" * len(names))

    for title, want in ROWS:
        row = [find(cells, n, **want) for n in names]
        print(f"| {title} | " + " | ".join(
            f"{c['cached_of_one']:.3f} | {c['ttft_of_one']:.2f}"
            for c in row) + " |")


def main():
    with open(sys.argv[1]) as f:
        cells = json.load(f)["cells"]

    if not find(cells, DRAWN, hosts=1):
        print(f"plot_hosts.py: no {DRAWN}, nothing to draw")
        return

    table(cells)

    lags = sorted({max(c["lag_s"], LEAST) for c in cells if c["shared"]})
    x = Axis(lags, W - LEFT - RIGHT, log=True)
    y = Axis([0.7, 1.02], H - TOP - BOTTOM)
    plot = Plot(f"Eight hosts, {DRAWN}: cached share, over that of "
                "one host", "lag of updates between hosts, s "
                "(left end: none)", "over one host's", x, y)

    labels = []

    for name, home in (("apart", 0), ("homes, apart", 0.8)):
        cell = find(cells, DRAWN, hosts=8, home=home)
        _, py = plot.at(lags[0], cell["cached_of_one"])
        plot.line(LEFT, py, LEFT + x.length, py, "#555",
                  ' stroke-dasharray="6 4"')
        labels.append((py, name, "#555"))

    for loss, colour in COLOURS.items():
        points = [plot.at(max(c["lag_s"], LEAST), c["cached_of_one"])
                  for c in cells
                  if c is find(cells, DRAWN, hosts=8, shared=True,
                               gauges=True, lag_s=c["lag_s"], loss=loss)]
        points.sort()
        plot.curve(points, colour, 2)
        labels.append((points[-1][1], f"shared, {loss:.0%} lost", colour))

    for py, name, colour in spread(labels):
        plot.text(LEFT + x.length + 8, py + 4, name, colour)

    plot.save(sys.argv[2])


if __name__ == "__main__":
    main()
