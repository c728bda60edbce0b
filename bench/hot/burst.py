"""64 clients send one prompt at once, to four engines.

The engines emulate a Llama 8B on an A100 each.  Each row is a burst of 64
streams of 64 tokens under one policy.  "cold": no engine has the prompt cached;
"warm": one engine has.
"""

import os

from clients import ask, at_once, body, text
from front import Front
from rig import quantile

POLICIES = (os.environ.get("POLICIES")
            or "round_robin random least_request kv_cache")
RUNS = int(os.environ.get("RUNS") or 3)

HARDWARE = "llama-8b-bf16-a100"
ENGINES, BURST, TOKENS = 4, 64, 64

# aims for 32 KB that one engine has cached
END, TTFT = 1.1, 0.6


def prompt(seed, size):
    return body([{"role": "user", "content": text(seed, size)}], TOKENS)


def row(policy, size, state, runs):
    first = [a.first for run in runs for a in run]
    end = [a.end for run in runs for a in run]
    most = []

    for run in runs:
        count = {}
        for a in run:
            count[a.who] = count.get(a.who, 0) + 1
        most.append(sorted(count.values(), reverse=True)
                    + [0] * (ENGINES - len(count)))

    return {
        "policy": policy, "prompt_bytes": size, "state": state,
        "requests": len(first),
        "ttft_mean_s": round(sum(first) / len(first), 4),
        "ttft_p95_s": round(quantile(first, 0.95), 4),
        "end_mean_s": round(sum(end) / len(end), 4),
        "end_p95_s": round(quantile(end, 0.95), 4),
        "requests_per_engine": most,
    }


def play(policy, port):
    rows = []

    for size in (8192, 32768):
        for state in ("cold", "warm"):
            runs = []

            for n in range(RUNS):
                data = prompt("%s %d %s %d" % (policy, size, state, n), size)

                if state == "warm":
                    ask(port, data)

                runs.append(at_once(port, [data] * BURST))

            rows.append(row(policy, size, state, runs))

    return rows


def bench():
    rows = []

    for policy in POLICIES.replace(",", " ").split():
        with Front("kvroute %s zone=llm;" % policy, ENGINES,
                   "--hardware", HARDWARE) as front:
            rows += play(policy, front.port)

    warm = {r["policy"]: r for r in rows
            if r["prompt_bytes"] == 32768 and r["state"] == "warm"}
    aims = {}

    if "kv_cache" in warm and "round_robin" in warm:
        for key, most in (("end", END), ("ttft", TTFT)):
            name = key + "_mean_s"
            aims[key + "_of_round_robin"] = [
                most, round(warm["kv_cache"][name]
                            / warm["round_robin"][name], 3)]

    return {"engines": ENGINES, "hardware": HARDWARE, "burst": BURST,
            "tokens": TOKENS, "runs": RUNS, "rows": rows, "aims": aims}


def report(result):
    print("\n%d streams of %d tokens at once, %d engines (%s), ms\n"
          % (BURST, TOKENS, ENGINES, HARDWARE))

    head = "%-7s %-5s %-14s %9s %9s %9s %9s   %s"
    print(head % ("prompt", "state", "policy", "TTFT", "P95", "end", "P95",
                  "requests per engine"))

    for r in sorted(result["rows"],
                    key=lambda r: (r["prompt_bytes"], r["state"])):
        print(head % ("%dk" % (r["prompt_bytes"] / 1024), r["state"],
                      r["policy"],
                      *("%.0f" % (1000 * r[k]) for k in (
                          "ttft_mean_s", "ttft_p95_s", "end_mean_s",
                          "end_p95_s")),
                      "  ".join("/".join(map(str, n))
                                for n in r["requests_per_engine"])))
