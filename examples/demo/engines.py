"""Real LLM engines on this machine: gets, starts and stops llama-server.

The engine comes from Debian, but from its next release: the packages are
unpacked in a folder and run by their own loader and libc.  Nothing is
installed and no root is needed; the machine's own apt configuration says
where the mirror is.

    engines.py get
    engines.py start --count 3 --port 9101

"start" prints "ready" once all engines answer and runs until it is told to
stop (SIGTERM or Ctrl-C).  Exit code 2: no engine to be had on this machine.
"""

import argparse
import ctypes
import fcntl
import glob
import http.client
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

import model

SUITE = "forky"
PACKAGE = "llama.cpp-tools"
SOURCE = "Debian \"%s\", the mirror in this machine's apt sources" % SUITE
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

HOST = "127.0.0.1"
BUILD = os.path.abspath(os.environ.get("BUILD") or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "../../build"))
FOLDER = os.path.join(BUILD, "llama")

# What an engine can remember: one conversation in each of its slots.

SLOTS = 5
CONTEXT = 8192      # tokens of a slot

# private lists and cache; not the hooks that other packages have added

APT_CONF = """\
Dir::State "{apt}/state";
Dir::State::status "{apt}/state/status";
Dir::Cache "{apt}/cache";
Dir::Log "{apt}";
Dir::Etc::SourceList "{apt}/sources.list";
Dir::Etc::SourceParts "-";
Dir::Etc::Preferences "-";
Dir::Etc::PreferencesParts "-";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "15";
Acquire::https::Timeout "15";
Debug::NoLocking "true";
#clear APT::Update;
#clear DPkg::Post-Invoke;
"""


class Unavailable(Exception):
    """There is no engine to be had, and why."""


def get(folder=FOLDER):
    """Makes sure that the engine is there; returns the folder it is in."""
    folder = os.path.abspath(folder)
    os.makedirs(os.path.dirname(folder), exist_ok=True)

    with open(folder + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        if not os.path.exists(folder):
            part = folder + ".part"
            shutil.rmtree(part, ignore_errors=True)
            print("getting llama-server: %s of Debian %s"
                  % (PACKAGE, SUITE), file=sys.stderr, flush=True)

            try:
                download(part)
                command, cwd = program(part)
                run(command + ["--version"], cwd)
                shutil.rmtree(os.path.join(part, "apt"))
                os.rename(part, folder)

            except (OSError, subprocess.SubprocessError) as e:
                raise Unavailable(reason(e)) from None

            finally:
                shutil.rmtree(part, ignore_errors=True)

    return folder


def download(folder):
    """Fetches the packages from the mirror and unpacks them."""
    apt = os.path.join(folder, "apt")
    arch = run(["dpkg", "--print-architecture"]).strip()
    options = "arch=%s target=Packages" % arch

    if os.path.exists(KEYRING):
        options += " signed-by=" + KEYRING

    for path in ("state/lists/partial", "cache/archives/partial"):
        os.makedirs(os.path.join(apt, path))

    for path, text in (
        ("state/status", ""),
        ("sources.list", "deb [%s] %s %s main\n" % (options, mirror(), SUITE)),
        ("apt.conf", APT_CONF.format(apt=apt)),
    ):
        with open(os.path.join(apt, path), "w") as f:
            f.write(text)

    apt_get = ["apt-get", "-q", "-c", os.path.join(apt, "apt.conf")]

    run(apt_get + ["update", "--error-on=any"])
    run(apt_get + ["install", "-y", "--download-only", PACKAGE])

    for deb in glob.glob(os.path.join(apt, "cache/archives/*.deb")):
        run(["dpkg", "-x", deb, os.path.join(folder, "root")])


def mirror():
    """The mirror from which this machine has its own release."""
    with open("/etc/os-release") as f:
        release = dict(line.rstrip().split("=", 1)
                       for line in f if "=" in line)

    codename = release.get("VERSION_CODENAME", "").strip('"')

    # apt itself knows all the ways in which its sources may be written

    for line in run(["apt-get", "indextargets", "--no-release-info",
                     "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)",
                     "Created-By: Packages"]).splitlines():
        suite, component, uri = line.split(" ", 2)

        if (suite, component) == (codename, "main") \
                and not uri.startswith("cdrom:"):
            return uri

    raise Unavailable("apt's sources name no mirror of \"%s\"" % codename)


def run(command, cwd=None):
    """The output of a command, which must succeed."""
    return subprocess.run(command, cwd=cwd, check=True, text=True,
                          env={**os.environ, "LC_ALL": "C"},
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE).stdout


def reason(error):
    """The line of a failed command's output that says why."""
    lines = (getattr(error, "stderr", None) or "").strip().splitlines()
    wrong = [line for line in lines if line.startswith("E:")] or lines[-1:]

    return wrong[0] if wrong else str(error)


def program(folder):
    """The command that runs llama-server, and where it is to be run."""
    root = os.path.join(folder, "root")
    loader = glob.glob(root + "/usr/lib/*/ld-linux-*.so.*")
    backends = glob.glob(root + "/usr/lib/*/ggml/backends*")

    if not loader or not backends:
        raise Unavailable("%s is not as expected" % PACKAGE)

    lib = os.path.dirname(loader[0])

    # it looks in its working directory for the build that suits the CPU

    return ([loader[0], "--library-path", lib + ":" + lib + "/llama",
             root + "/usr/bin/llama-server"], backends[0])


class Engine:
    """One llama-server with the demo's model."""

    health = "/health"
    patience = 60       # seconds until it must answer

    def __init__(self, folder, log, port=None, slots=SLOTS, detach=False,
                 more=(), words=False):
        self.port = port or free_port()
        self.log = log
        command, cwd = program(folder)

        command += [
            "--model", model.write(os.path.join(folder, "words.gguf" if words
                                                else "tiny.gguf"), words),
            "--alias", "tiny",
            "--host", HOST, "--port", str(self.port),
            "--threads", "1", "--threads-batch", "1", "--no-warmup",
            "--parallel", str(slots), "--ctx-size", str(slots * CONTEXT),

            # memory is the slots and no more: no second cache behind them

            "--cache-ram", "0",

            # A request continues the slot that holds at least half of its
            # prompt, else it takes the one unused for longest.  By default
            # a tenth is enough, and a new conversation would overwrite
            # another's for the sake of the system prompt they share.

            "--slot-prompt-similarity", "0.5",
            "--metrics", *more,
        ]

        with open(log, "ab") as f:
            self.process = spawn(command, f, detach, cwd)

    @property
    def address(self):
        return "%s:%d" % (HOST, self.port)

    def wait(self):
        """Until it answers; False if it ended instead (port taken)."""
        end = time.monotonic() + self.patience

        while time.monotonic() < end:
            if self.process.poll() is not None:
                return False

            if healthy(self.address, self.health):
                return True

            time.sleep(0.02)

        raise Unavailable("engine does not answer, see " + self.log)


def start(count, folder, logs, ports=None, kind=Engine, **options):
    """Starts engines and waits for them; on any ports unless told which."""
    os.makedirs(logs, exist_ok=True)
    engines = []

    try:
        for i in range(count):
            log = os.path.join(logs, "engine%d.log" % (i + 1))
            port = ports[i] if ports else None
            engines.append(kind(folder, log, port, **options))

        for i, engine in enumerate(engines):
            tries = 1 if ports else 5

            while not engine.wait():
                tries -= 1
                if tries == 0:
                    raise Unavailable("engine ended, see " + engine.log)

                engine = engines[i] = kind(folder, engine.log, **options)

    except BaseException:
        stop(*(e.process for e in engines))
        raise

    return engines


def spawn(command, output, detach=False, cwd=None, end=signal.SIGKILL,
          environment=None):
    """Starts a process, which is sent that signal when this one ends."""
    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl

    def child():
        if not detach:
            prctl(1, end)           # PR_SET_PDEATHSIG
            if os.getppid() != parent:
                os._exit(1)

    return subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL,
                            stdout=output, stderr=output, preexec_fn=child,
                            env=environment, start_new_session=True)


def stop(*processes):
    """Ends processes, if need be by force, with all that they started."""
    for process in processes:
        process.terminate()

    for process in processes:
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            pass

        try:
            os.killpg(process.pid, signal.SIGKILL)      # see spawn()
        except ProcessLookupError:
            pass

        process.wait()


def healthy(address, path="/health"):
    """Whether the engine at that address is ready to serve."""
    connection = http.client.HTTPConnection(address, timeout=5)

    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def free_port():
    """A port that nobody listens on, below those of outgoing connections."""
    while True:
        port = random.randrange(20000, 32000)

        with socket.socket() as s:
            try:
                s.bind((HOST, port))
                return port
            except OSError:
                pass


def options(parser):
    """Options of "start" that others do not have, as start() knows them."""
    parser.add_argument("--slots", type=int, default=SLOTS)

    return "slots",


def main(kind):
    parser = argparse.ArgumentParser(
        description="Real LLM engines for demos and tests.",
        epilog="What stands behind -- goes to the engines.")
    parser.add_argument("action", choices=["get", "start"])
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--port", type=int, default=9101,
                        help="of the first engine, the others follow; "
                        "0: any")
    parser.add_argument("--folder", default=kind.FOLDER,
                        help="where the engine is kept (%(default)s)")
    parser.add_argument("--logs", help="folder of the engines' logs")
    names = kind.options(parser)

    own = sys.argv[1:]
    more = []

    if "--" in own:
        more = own[own.index("--") + 1:]
        own = own[:own.index("--")]

    args = parser.parse_args(own)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, lambda *_: sys.exit(0))

    engines = []

    try:
        folder = kind.get(args.folder)
        if args.action == "get":
            return

        ports = args.port and range(args.port, args.port + args.count)
        engines = kind.start(args.count, folder, args.logs or folder, ports,
                             more=more, **{name: getattr(args, name)
                                           for name in names})

        print("ready", *(e.address for e in engines), flush=True)

        while all(e.process.poll() is None for e in engines):
            time.sleep(0.2)

        sys.exit("an engine ended by itself")

    except kind.Unavailable as e:
        print("no engine:", e, file=sys.stderr)
        sys.exit(2)

    finally:
        stop(*(e.process for e in engines))


if __name__ == "__main__":
    main(sys.modules[__name__])
