"""Real SGLang on this machine's CPUs: installs, starts and stops it (see
engines.py).

    sglang.py get
    sglang.py start --count 2 --port 9101 -- --enable-lora

PyPI has it; it is installed into a copy of vllm.py's installation, and serves the
same model.  t/sglang/install lists the replacements.
"""

import fcntl
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../examples/demo"))

import engines
import vllm
from vllm import Unavailable, options     # noqa: F401 (engines.main)

FOLDER = os.path.join(engines.BUILD, "sglang")
PAGE = 16


def get(folder=FOLDER):
    """Installs it if needed; returns its folder."""
    folder = os.path.abspath(folder)
    other = vllm.get()

    with open(folder + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        try:
            subprocess.run([os.path.join(HERE, "install"), other, folder],
                           check=True, stdin=subprocess.DEVNULL)
        except (OSError, subprocess.SubprocessError) as e:
            raise Unavailable(str(e)) from None

    return folder


class Engine(vllm.Engine):
    """An SGLang server with the tiny model, which is called "m"."""

    environment = {**vllm.ENVIRONMENT, "SGLANG_USE_CPU_ENGINE": "1"}

    def command(self, folder, tokens, events, model):
        command = [
            os.path.join(folder, "venv/bin/python"), "-m",
            "sglang.launch_server",
            "--model-path", os.path.join(folder, model),
            "--served-model-name", "m",
            "--host", vllm.HOST, "--port", str(self.port),
            "--device", "cpu", "--attention-backend", "torch_native",
            "--sampling-backend", "pytorch", "--grammar-backend", "none",
            "--mem-fraction-static", "0.1", "--page-size", str(PAGE),
            "--max-total-tokens", str(tokens),
            "--context-length", str(min(vllm.CONTEXT, tokens)),
            "--enable-metrics", "--enable-cache-report",
        ]

        if events:
            command += ["--kv-events-config", json.dumps({
                "publisher": "zmq",
                "endpoint": "tcp://*:%d" % (self.port + events),
                "replay_endpoint": "tcp://*:%d" % (self.port + 2 * events)})]

        return command


def start(count, folder, logs, ports=None, **options):
    return engines.start(count, folder, logs, ports, Engine, **options)


if __name__ == "__main__":
    engines.main(sys.modules[__name__])
