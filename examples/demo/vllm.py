"""Real vLLM on this machine's CPUs: gets, starts and stops it (see engines.py).

    vllm.py get
    vllm.py start --count 3 --port 9101 -- --max-num-seqs 4

What stands behind "--" goes to "vllm serve".  The engine comes from PyPI
(t/vllm/install says how much of it), with a tiny random model.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys

import engines
from engines import Unavailable

VERSION = "0.32.0"
PACKAGE = "vLLM " + VERSION
SOURCE = "PyPI"

HOST = engines.HOST
FOLDER = os.path.join(engines.BUILD, "vllm")
INSTALL = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                       "../../t/vllm/install")

TOKENS = 32768      # of the KV cache
CONTEXT = 16384     # of a request
BLOCK = 32          # on CPUs it must be a multiple of that
BYTES = 1024        # of KV a token, see t/vllm/model.py

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",

    # several engines share the cores

    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",

    # POST /reset_prefix_cache; GET /v1/responses/{id}

    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_ENABLE_RESPONSES_API_STORE": "1",
}


def get(folder=FOLDER):
    """Makes sure that it is installed; returns the folder it is in."""
    folder = os.path.abspath(folder)
    os.makedirs(folder, exist_ok=True)

    with open(folder + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        try:
            subprocess.run([INSTALL, folder], check=True,
                           stdin=subprocess.DEVNULL)
        except (OSError, subprocess.SubprocessError) as e:
            raise Unavailable(str(e)) from None

    return folder


class Engine(engines.Engine):
    """One vLLM with the tiny model, which is called "m"."""

    # each of its three processes reads torch anew

    patience = 600
    environment = ENVIRONMENT

    def __init__(self, folder, log, port=None, detach=False, tokens=TOKENS,
                 events=0, model="model", more=()):
        self.port = port or engines.free_port()
        self.log = log

        environment = {**os.environ, **self.environment,
                       "VLLM_CACHE_ROOT": os.path.join(folder, "cache"),
                       "VLLM_CONFIG_ROOT": os.path.join(folder, "config")}

        with open(log, "ab") as f:
            self.process = engines.spawn(
                [*self.command(folder, tokens, events, model), *more], f,
                detach, folder, end=signal.SIGTERM, environment=environment)

    def command(self, folder, tokens, events, model):
        command = [
            os.path.join(folder, "venv/bin/vllm"), "serve",
            os.path.join(folder, model), "--served-model-name", "m",
            "--host", HOST, "--port", str(self.port),
            "--dtype", "bfloat16", "--enforce-eager",
            "--max-model-len", str(min(CONTEXT, tokens - BLOCK)),
            "--block-size", str(BLOCK),
            "--kv-cache-memory-bytes", str(tokens * BYTES),
            "--enable-prompt-tokens-details",

            # without them tools are refused, though the model calls none

            "--enable-auto-tool-choice", "--tool-call-parser", "hermes",
        ]

        if events:
            command += ["--kv-events-config", json.dumps({
                "enable_kv_cache_events": True, "publisher": "zmq",
                "endpoint": "tcp://*:%d" % (self.port + events),
                "replay_endpoint": "tcp://*:%d" % (self.port + 2 * events),
                "topic": "kv"})]

        return command


def start(count, folder, logs, ports=None, **options):
    return engines.start(count, folder, logs, ports, Engine, **options)


def options(parser):
    """Options of "start" that others do not have, as start() knows them."""
    parser.add_argument("--tokens", type=int, default=TOKENS,
                        help="that the KV cache holds (%(default)s)")

    parser.add_argument("--events", type=int, default=0, metavar="N",
                        help="publishes KV events, at its port and N, and "
                             "replays them at its port and 2N")

    parser.add_argument("--model", default="model",
                        help="its folder, in that of the engine (%(default)s)")

    return "tokens", "events", "model"


if __name__ == "__main__":
    engines.main(sys.modules[__name__])
