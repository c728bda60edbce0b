"""llama-cpp-python's server on this machine: installs, starts and stops it (see
engines.py).

    foreign.py get
    foreign.py start --count 2 --port 9101

PyPI has its source, which is compiled.  Arguments after "--" are passed to it.
"""

import argparse
import fcntl
import os
import signal
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../examples/demo"))

import engines
import model
from engines import Unavailable

VERSION = "0.3.36"
FOLDER = os.path.join(engines.BUILD, "foreign")


def get(folder=FOLDER):
    """Installs it if needed; returns its folder."""
    folder = os.path.abspath(folder)
    done = os.path.join(folder, "installed-" + VERSION)
    python = os.path.join(folder, "venv/bin/python")
    os.makedirs(folder, exist_ok=True)

    with open(folder + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        if os.path.exists(done):
            return folder

        print("compiling llama-cpp-python " + VERSION, file=sys.stderr,
              flush=True)

        try:
            subprocess.run([sys.executable, "-m", "venv", "--clear",
                            os.path.join(folder, "venv")], check=True)
            subprocess.run([python, "-m", "pip", "install", "-q",
                            "llama-cpp-python[server]==" + VERSION], check=True,
                           env={**os.environ, "CMAKE_ARGS": "-DLLAVA_BUILD=OFF"})
        except (OSError, subprocess.SubprocessError) as e:
            raise Unavailable(str(e)) from None

        open(done, "w").close()

    return folder


class Engine(engines.Engine):
    """One server, which has one conversation at a time."""

    health = "/v1/models"
    patience = 120

    def __init__(self, folder, log, port=None, detach=False, events=0, more=()):
        self.port = port or engines.free_port()
        self.log = log

        with open(log, "ab") as f:
            self.process = engines.spawn([
                os.path.join(folder, "venv/bin/python"), "-m",
                "llama_cpp.server", "--model",
                model.write(os.path.join(folder, "words.gguf"), True),
                "--model_alias", "m", "--host", engines.HOST,
                "--port", str(self.port), "--n_ctx", "8192",
                "--n_threads", "1", "--n_threads_batch", "1",
                "--cache", "true", *more], f, detach, folder,
                end=signal.SIGTERM)


def start(count, folder, logs, ports=None, **options):
    return engines.start(count, folder, logs, ports, Engine, **options)


def options(parser):
    """It has no KV events."""
    parser.add_argument("--events", type=int, help=argparse.SUPPRESS)

    return "events",


if __name__ == "__main__":
    engines.main(sys.modules[__name__])
