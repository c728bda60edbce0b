"""Agents, while each engine can cache a third of the sessions.

24 sessions of 10 turns at three engines (Llama 8B on an A100, in real time). A
session has a system prompt of 6 KB that all share, a task of 2 KB, then for
each turn 1.5 KB of a tool's result and the engine's reply.  At most eight
requests run at once, in the order in which the tools finish.  "Ideal" is the
part of a prompt that the session's earlier turns have left in a cache.  All
policies run at the same time, each with its own engines.
"""

import os
import random
import threading
import time

from clients import ask, body, text
from front import Front, together

HARDWARE = "llama-8b-bf16-a100"
ENGINES, SESSIONS, TURNS, AT_ONCE = 3, 24, 10, 8
SYSTEM, TASK, RESULT, TOKENS = 6144, 2048, 1536, 64
TOKEN, BLOCK = 4, 16    # bytes per token, tokens per block

SEEDS = int(os.environ.get("SEEDS") or 3)

PROBE = "kvroute_probe interval=1s;"

POLICIES = {
    "round_robin": "",
    "sticky": "kvroute sticky zone=llm key=$http_x_session; " + PROBE,
    "kv_cache": "kvroute kv_cache zone=llm; " + PROBE,
}

# aims
TIMES, CACHED, BUSIEST = 1.0, 0.97, 1.3


def blocks():
    """Returns the blocks of an engine's cache: a third of all sessions' final
    sizes."""
    own = TASK + TURNS * (RESULT + TOKENS * 8)

    return int((SYSTEM + own * SESSIONS / ENGINES) / TOKEN / BLOCK)


def session(port, number, seed, room, done):
    r = random.Random("agent %d %d" % (seed, number))
    messages = [
        {"role": "system", "content": text("agents", SYSTEM)},
        {"role": "user", "content": text("task %d" % number, TASK)}]
    before = 0

    time.sleep(r.uniform(0, 4))

    for turn in range(TURNS):
        with room:
            answer = ask(port, body(messages, TOKENS),
                         {"X-Session": "s%d" % number})

        answer.ideal = before
        before = answer.prompt
        done.append(answer)

        messages += [
            {"role": "assistant", "content": answer.words},
            {"role": "user", "content": text(
                "result %d %d" % (number, turn), RESULT)}]

        time.sleep(r.uniform(1, 4))


def run(policy, seed, results):
    room = threading.Semaphore(AT_ONCE)
    done = []

    with Front(POLICIES[policy], ENGINES, "--hardware", HARDWARE,
               "--kv-cache-size", str(blocks())) as front:

        time.sleep(1.5)         # probes read the capacity of the caches first

        threads = [threading.Thread(target=session,
                                    args=(front.port, n, seed, room, done))
                   for n in range(SESSIONS)]

        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    for answer in done:
        answer.words = None

    results.put((policy, done))


def row(policy, runs):
    answers = [a for run in runs for a in run]
    n = len(answers)
    most, busiest = [], 0

    for run in runs:
        who = [a.who for a in run]
        count = sorted((who.count(w) for w in set(who)), reverse=True)
        most.append(count + [0] * (ENGINES - len(count)))
        busiest = max(busiest, count[0] * ENGINES / len(run))

    return {
        "policy": policy, "requests": n,
        "ttft_mean_s": round(sum(a.first for a in answers) / n, 4),
        "ttft_p95_s": round(sorted(a.first for a in answers)[int(0.95 * n)],
                            4),
        "end_mean_s": round(sum(a.end for a in answers) / n, 4),
        "cached_of_ideal": round(sum(a.cached for a in answers)
                                 / sum(a.ideal for a in answers), 4),
        "requests_per_engine": most, "busiest": round(busiest, 3),
    }


def bench():
    runs = {policy: [] for policy in POLICIES}

    for seed in range(SEEDS):
        for policy, done in together(run, POLICIES, seed,
                                     seconds=600).items():
            if len(done) < SESSIONS * TURNS:
                raise SystemExit("%s: requests have failed" % policy)
            runs[policy].append(done)

    rows = {policy: row(policy, runs[policy]) for policy in POLICIES}
    ours, theirs = rows["kv_cache"], rows["sticky"]

    return {
        "engines": ENGINES, "hardware": HARDWARE, "sessions": SESSIONS,
        "turns": TURNS, "at_once": AT_ONCE, "blocks": blocks(),
        "runs": SEEDS, "rows": list(rows.values()),
        "aims": {
            "ttft_of_sticky": [TIMES, round(ours["ttft_mean_s"]
                                            / theirs["ttft_mean_s"], 3)],
            "end_of_sticky": [TIMES, round(ours["end_mean_s"]
                                           / theirs["end_mean_s"], 3)],
            "cached_of_sticky": [CACHED, round(ours["cached_of_ideal"]
                                               / theirs["cached_of_ideal"],
                                               3)],
            "busiest": [BUSIEST, ours["busiest"]],
        }}


def report(result):
    print("\n%d agents of %d turns, %d at a time, %d engines (%s)\n"
          "each can cache a third of the sessions\n"
          % (SESSIONS, TURNS, AT_ONCE, ENGINES, HARDWARE))

    head = "%-12s %7s %7s %7s %15s   %s"
    print(head % ("policy", "TTFT", "P95", "end", "cached of ideal",
                  "requests per engine"))

    for r in result["rows"]:
        print(head % (r["policy"], "%.0f" % (1000 * r["ttft_mean_s"]),
                      "%.0f" % (1000 * r["ttft_p95_s"]),
                      "%.0f" % (1000 * r["end_mean_s"]),
                      "%.1f %%" % (100 * r["cached_of_ideal"]),
                      "  ".join("/".join(map(str, n))
                                for n in r["requests_per_engine"])))
