"""Finds the request that stored a block by time and depth alone, on a recorded run.

recorded.jsonl is a run of vLLM 0.32.0: agents, 8 requests at a time, blocks of 32 tokens.
A line is a request (times in seconds, sizes in tokens) or an event (blocks are numbered; "of"
is the session that vLLM reported, which is the truth).

A finished request has stored the blocks after its cached ones, up to the last whole block of
its prompt.  So a run of events fits the request if it covers exactly these depths, and if its
last event arrived between 250 ms before the first token and 20 ms after it.  If only one run
fits a request, and no other request has only this run, the run belongs to the request.
"""

import collections
import json
import os

BLOCK = 32
BEFORE = 0.25
AFTER = 0.02

FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded.jsonl")


def read(path=FILE):
    with open(path) as f:
        lines = [json.loads(line) for line in f]

    return ([x for x in lines if "request" in x],
            sorted((x for x in lines if "t" in x), key=lambda x: x["t"]))


def chains(events):
    """Returns the events of stored blocks, with the depths where they begin and end."""
    depth = {None: 0}
    stored = []

    for e in events:
        if "stored" not in e or e["parent"] not in depth:
            continue

        begin = depth[e["parent"]]

        for n, name in enumerate(e["stored"]):
            depth[name] = begin + n + 1

        stored.append({**e, "begin": begin, "end": begin + len(e["stored"])})

    return stored


def fits(request, stored):
    """Returns the events that can be the last one of a run that fits the request."""
    begin = request["cached"] // BLOCK
    end = request["prompt"] // BLOCK

    if begin == end:
        return None

    found = []

    for e in stored:
        if e["end"] != end or not -BEFORE <= e["t"] - request["first"] <= AFTER:
            continue

        run = e

        while run and run["begin"] > begin:
            run = next((x for x in stored
                        if x["stored"][-1] == run["parent"]
                        and request["start"] <= x["t"] <= run["t"]), None)

        if run and run["begin"] == begin:
            found.append(e)

    return found


def attribute(path=FILE):
    """Returns the number of requests with new blocks, and the shares of each outcome."""
    requests, events = read(path)
    stored = chains(events)
    fit = {r["request"]: fits(r, stored) for r in requests}
    count = collections.Counter()
    changed = True

    # a run that is the only one for some request is not a candidate for others

    while changed:
        only = collections.Counter(id(f[0]) for f in fit.values() if f and len(f) == 1)
        changed = False

        for request, found in fit.items():
            left = found and len(found) > 1 and [e for e in found if not only[id(e)]]

            if left and len(left) < len(found):
                fit[request] = left
                changed = True

    for request, found in fit.items():
        if found is None:
            continue

        if not found:
            count["none"] += 1
        elif len(found) > 1 or only[id(found[0])] > 1:
            count["ambiguous"] += 1
        else:
            count["right" if found[0]["of"] == request else "wrong"] += 1

    n = sum(count.values())

    return n, {k: round(count[k] / n, 4)
               for k in ("right", "ambiguous", "none", "wrong")}


if __name__ == "__main__":
    print(*attribute())
