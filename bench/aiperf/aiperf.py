#!/usr/bin/env python3
"""make bench-aiperf: NVIDIA's load generator before kvroute and other routers.

aiperf sends three loads to the same emulated engines, through each router in
turn:

    pool      conversations that share one of six prefixes (aiperf's own load)
        mooncake  a trace in Mooncake's format, with the trace's arrival times
    weka      agents in the format of Weka's traces: ordinary sessions, and one
              that forks 43 agents over 40,000 tokens

The bench generates the traces from a seed.  It prints aiperf's own tables, then
one of all routers, and writes build/bench/aiperf.json.

    aiperf.py FOLDER-OF-THE-PROGRAMS

        LOADS="pool weka"           runs these loads only
        ROUTERS="kvroute;SMG 1.13"  runs these routers only
    SEEDS="1 2"                 runs of each, all averaged
        TABLES=0                    does not print aiperf's tables
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "common"))

from rig import (RESULTS, Engines, Nginx, Process, free_ports, get, listening,
                 request, save, wait)

PROGRAMS = os.path.abspath(sys.argv[1])
AIPERF = os.path.join(PROGRAMS, "aiperf", "bin")

ENGINES = 8
BLOCKS = 6000

SEEDS = (os.environ.get("SEEDS") or "1").split()

HTTP = """
    @zone@
    client_max_body_size 64m;
    client_body_buffer_size 4m;
    proxy_buffering off;
    upstream engines { zone engines 256k; @method@ @servers@ @more@ keepalive 64; }
    server {
        listen 127.0.0.1:@port@;
        location / { proxy_pass http://engines; }
        location /kvroute/ { @status@ }
    }
"""


# --- routers

def nginx(method="", zone="", status="return 404;", more=""):
    def begin(engines):
        return Nginx(HTTP, [] if not zone else None, method=method, zone=zone,
                     status=status, more=more, servers=engines.servers(),
                     access="off")

    return begin


def kvroute(more=""):
    return nginx("kvroute kv_cache zone=kv;", "kvroute_zone zone=kv:16m;",
                 "kvroute_status;", more)


class Router(Process):
    """A router from PyPI, with its policy "cache_aware"."""

    def __init__(self, folder, command, engines):
        self.port = free_ports(2)
        self.log = tempfile.TemporaryFile()
        super().__init__(
            [os.path.join(PROGRAMS, folder, "bin", command[0]), *command[1:],
             "--worker-urls", *("http://127.0.0.1:%d" % p for p in engines.ports),
             "--host", "127.0.0.1", "--port", str(self.port), "--policy",
             "cache_aware", "--prometheus-port", str(self.port + 1)],
            stdout=self.log, stderr=self.log)
        wait(lambda: listening(self.port), 60, self)

        # the port is open before the router has found its engines healthy

        wait(lambda: request(self.port, "POST", "/v1/chat/completions",
                             {"model": "m", "max_tokens": 1, "messages": [
                                 {"role": "user", "content": "x"}]})[0] == 200)


def rust(folder, *command):
    return lambda engines: Router(folder, command, engines)


ROUTERS = {
    "round robin": nginx(),
    "least_conn": nginx("least_conn;"),
    "kvroute": kvroute(),
    "kvroute, probes": kvroute("kvroute_probe interval=1s;"),
    "SMG 1.13": rust("smg", "smg", "launch", "--log-level", "warn"),
    "vLLM Router 0.1.17": rust("vllm", "vllm-router", "--log-level", "warning"),
}


# --- loads

TOKENIZER = "kvroute/words"


def tokenizer(folder):
    """Trains a tokenizer, because aiperf would download its built-in one.

    Stores it where downloads are cached: aiperf's processes for traces look
    nowhere else.
    """
    hub = os.path.join(folder, "hub", "models--" + TOKENIZER.replace("/", "--"))
    version = "0" * 40
    os.makedirs(os.path.join(hub, "refs"))

    with open(os.path.join(hub, "refs", "main"), "w") as f:
        f.write(version)

    subprocess.run([AIPERF + "/python", "-c", """
import glob, sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
import aiperf.dataset.generator as g

t = Tokenizer(models.BPE())
t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
t.decoder = decoders.ByteLevel()
t.train(glob.glob(g.__path__[0] + "/assets/*.txt"), trainers.BpeTrainer(
    vocab_size=8192, special_tokens=["<|end|>"], show_progress=False,
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|end|>",
                        bos_token="<|end|>").save_pretrained(sys.argv[1])
""", os.path.join(hub, "snapshots", version)], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def pool(folder, seed):
    return ["--concurrency", "48", "--num-conversations", "120",
            "--conversation-turn-mean", "4", "--conversation-turn-stddev", "0",
            "--num-prefix-prompts", "6", "--prefix-prompt-length", "4000",
            "--prompt-input-tokens-mean", "800",
            "--prompt-input-tokens-stddev", "200",
            "--prompt-output-tokens-mean", "100"]


def mooncake(folder, seed):
    """Sessions that grow; each begins with one of four system prompts.  Blocks
    of 512."""
    rng = random.Random(seed)
    rows = []
    fresh = 1000

    for session in range(60):
        ids = [rng.randrange(4) * 10 + i for i in range(4)]
        at = rng.uniform(0, 20)

        for turn in range(rng.randint(1, 6)):
            grown = rng.randint(1, 4)
            ids = ids + list(range(fresh, fresh + grown))
            fresh += grown
            rows.append({"timestamp": int(1000 * at),
                         "input_length": 512 * len(ids),
                         "output_length": rng.randint(50, 200),
                         "hash_ids": list(ids)})
            at += rng.expovariate(1 / 4)

    path = os.path.join(folder, "mooncake.jsonl")

    with open(path, "w") as f:
        for row in sorted(rows, key=lambda r: r["timestamp"]):
            f.write(json.dumps(row) + "\n")

    return ["--custom-dataset-type", "mooncake_trace", "--input-file", path,
            "--fixed-schedule", "--prompt-input-tokens-block-size", "512"]


def weka(folder, seed):
    """Writes sessions with blocks of 64 tokens; block ids are local to a
    session."""
    rng = random.Random(seed)
    folder = os.path.join(folder, "weka")
    os.makedirs(folder)

    def call(at, blocks, out):
        return {"t": round(at, 3), "type": "s", "model": "m",
                "in": 64 * len(blocks), "out": out, "hash_ids": list(blocks),
                "input_types": ["text"], "output_types": ["text"],
                "stop": "tool_use", "api_time": 1.0, "think_time": 0.5}

    for session in range(17):
        forks = session == 0
        blocks = list(range(1, 1 + (625 if forks else rng.randint(60, 160))))
        fresh = 10000
        at = 0.0
        requests = []

        for turn in range(2 if forks else rng.randint(6, 14)):
            requests.append(call(at, blocks, rng.randint(30, 120)))
            at += rng.uniform(1, 3)

            if forks and turn == 0:
                for n in range(43):
                    own = list(range(fresh, fresh + 8))
                    fresh += 20
                    requests.append({
                        "t": round(at, 3), "type": "subagent",
                        "agent_id": "agent_%03d" % n, "subagent_type": "Explore",
                        "duration_ms": 4000, "total_tokens": 41000,
                        "tool_use_count": 1, "status": "completed",
                        "models": ["m"],
                        "requests": [call(at, blocks + own, 40),
                                     call(at + 2, blocks + own
                                          + list(range(fresh - 12, fresh - 8)), 40)]})
                at += 5

            grown = rng.randint(2, 12)
            blocks = blocks + list(range(fresh, fresh + grown))
            fresh += grown

        with open(os.path.join(folder, "s%02d.json" % session), "w") as f:
            json.dump({"id": "s%02d" % session, "models": ["m"],
                       "block_size": 64, "hash_id_scope": "local",
                       "requests": requests}, f)

    return ["--custom-dataset-type", "weka_trace", "--input-file", folder,
            "--concurrency", "17", "--num-sessions", "17",
            "--use-think-time-only"]


LOADS = {"pool": pool, "mooncake": mooncake, "weka": weka}


def finish(command, env, records):
    """Runs aiperf; returns what it printed.

    aiperf 0.13 does not end by itself if the trace forks.  This function
    interrupts it when it has a record of each request; aiperf then writes its
    figures.
    """
    with tempfile.TemporaryFile("w+") as out, \
            subprocess.Popen(command, env=env, stdout=out,
                             stderr=subprocess.STDOUT) as process:
        size = -1

        while True:
            try:
                process.wait(30)
                break
            except subprocess.TimeoutExpired:
                before, size = size, (os.path.getsize(records)
                                      if os.path.exists(records) else -1)
                if size == before and size > 0:
                    process.send_signal(signal.SIGINT)

        out.seek(0)
        return out.read()


def ends(records):
    """Mean time to the end: of forked agents and of other requests."""
    times = {"e2e_forks_ms": [], "e2e_others_ms": []}

    with open(records) as f:
        for r in map(json.loads, f):
            forked = r["metadata"].get("agent_depth")
            end = r["metrics"].get("request_latency")

            if end:
                times["e2e_forks_ms" if forked else "e2e_others_ms"].append(
                    end["value"])

    return {k: sum(t) / max(1, len(t)) for k, t in times.items()}


def play(router, load, seed, folder):
    """Makes one run; returns the figures of aiperf and of the engines."""
    engines = Engines(ENGINES, "--hardware", "devstral-24b-fp8-h100",
                      "--kv-cache-size", str(BLOCKS), "--model", "m",
                      "--enable-prompt-tokens-details",
                      "--keepalive-timeout", "600")
    front = ROUTERS[router](engines)

    try:
        with tempfile.TemporaryDirectory(dir=folder) as run:
            records = run + "/profile_export.jsonl"
            done = finish(
                [AIPERF + "/aiperf", "profile", "--model", "m",
                 "--tokenizer", TOKENIZER, "--endpoint-type", "chat",
                 "--streaming", "--url", "http://127.0.0.1:%d" % front.port,
                 "--use-server-token-count", "--random-seed", seed,
                 "--ui-type", "none", "--no-gpu-telemetry", "--no-server-metrics",
                 "--output-artifact-dir", run, "--extra-inputs",
                 "ignore_eos:true", *LOADS[load](run, int(seed))],
                {**os.environ, "COLUMNS": "120", "HF_HOME": folder,
                 "HF_HUB_OFFLINE": "1"}, records)

            try:
                with open(run + "/profile_export_aiperf.json") as f:
                    found = json.load(f)
            except OSError:
                raise SystemExit(done[-3000:])

            apart = ends(records) if load == "weka" else {}

            if os.environ.get("KEEP"):
                shutil.copytree(run, os.path.join(
                    os.environ["KEEP"], "%s-%s-%s" % (load, router, seed)))

        if os.environ.get("TABLES") != "0":
            table = done.partition("LLM Metrics")[2]
            print("%s, %s, seed %s%s" % (load, router, seed,
                                         table.partition("\n\n")[0]))

        counted = [json.loads(get(p, "/control")) for p in engines.ports]
    finally:
        front.stop()
        engines.stop()

    total = {k: sum(c[k] for c in counted)
             for k in ("prompt_tokens", "cached_tokens", "generate_requests")}

    return {"ttft_mean_ms": found["time_to_first_token"]["avg"],
            "ttft_p99_ms": found["time_to_first_token"]["p99"],
            "e2e_mean_ms": found["request_latency"]["avg"],
            "requests": found["request_count"]["avg"],
            "errors": (found.get("error_request_count") or {"avg": 0})["avg"],
            "cached": total["cached_tokens"] / max(1, total["prompt_tokens"]),
            "prompt_tokens": total["prompt_tokens"] / max(
                1, total["generate_requests"]), **apart}


def main():
    result = {}

    with tempfile.TemporaryDirectory(prefix="kvroute-aiperf-") as folder:
        tokenizer(folder)

        for load in (os.environ.get("LOADS") or " ".join(LOADS)).split():
            runs = {r: [] for r in ROUTERS
                    if r in (os.environ.get("ROUTERS") or r).split(";")}

            # routers take turns, so that other work on the machine affects all
            # alike

            for seed in SEEDS:
                for router in runs:
                    runs[router].append(play(router, load, seed, folder))

            result[load] = {router: {
                "runs": found, **{k: sum(r[k] for r in found) / len(found)
                                  for k in found[0]}}
                for router, found in runs.items()}

    print("%-9s %-19s %9s %9s %9s %7s %9s %7s %7s"
          % ("ms", "", "TTFT", "P99", "end", "cached", "requests", "tokens",
             "failed"))

    for load, rows in result.items():
        for router, row in rows.items():
            print("%-9s %-19s %9.0f %9.0f %9.0f %7.3f %9d %7d %7d"
                  % (load, router, *(row[k] for k in (
                      "ttft_mean_ms", "ttft_p99_ms", "e2e_mean_ms", "cached",
                      "requests", "prompt_tokens", "errors"))))

            if "e2e_forks_ms" in row:
                print("%29s forks %.0f, others %.0f"
                      % ("end:", row["e2e_forks_ms"], row["e2e_others_ms"]))

    path = os.path.join(RESULTS, "aiperf.json")
    save(path, result)
    print("\n%s" % os.path.relpath(path))


if __name__ == "__main__":
    main()
