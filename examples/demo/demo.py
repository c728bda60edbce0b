"""make demo: agents, nginx with the module, real engines; every policy's turn.

    demo.py         plays the traffic under each policy and compares them
    demo.py stop    ends what KEEP=1 has left running

README.md beside this file describes the environment and the table.
"""

import http.client
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time

import engines
import report
import traffic
import vllm

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.join(engines.BUILD, "demo")
KEPT = os.path.join(OUT, "kept.json")

NGINX = (os.environ.get("NGINX_BIN") or shutil.which("nginx")
         or "/usr/sbin/nginx")
MODULE = (os.environ.get("MODULE")
          or os.path.join(engines.BUILD, "ngx_http_kvroute_module.so"))

COUNT = 3
POLICIES = "round_robin random least_request sticky kv_cache"
FORKS = ("sticky", "kv_cache")      # also with sub-agents
KINDS = {"llama": engines, "vllm": vllm}
ROOM = 20480        # tokens that a vLLM caches: 5 conversations, as llama-server

NONE = """%s

It fetches %s from %s.
If you have engines of your own, name them:

    make demo ENGINES="host:port host:port host:port"
"""


class Fleet:
    """The engines and nginx in front of them, for one run."""

    def __init__(self, policy, folder, given, detach=False):
        self.processes = []
        self.model = "tiny"

        try:
            if given:
                self.addresses = given
                self.model = model_of(given)
            else:
                started = engines.start(COUNT, folder, OUT, detach=detach)
                self.processes = [e.process for e in started]
                self.addresses = [e.address for e in started]

            self.start_nginx(policy, detach)

        except BaseException:
            self.stop()
            raise

    def start_nginx(self, policy, detach):
        self.address = "%s:%d" % (engines.HOST, engines.free_port())
        servers = ["server %s;" % a for a in self.addresses]

        with open(os.path.join(HERE, "nginx.conf")) as f:
            conf = f.read()

        for name, text in (("POLICY", policy), ("LISTEN", self.address),
                           ("SERVERS", "\n        ".join(servers))):
            conf = conf.replace("@%s@" % name, text)

        with open(os.path.join(OUT, "nginx.conf"), "w") as f:
            f.write(conf)

        command = [NGINX, "-p", OUT + "/", "-c", "nginx.conf", "-e",
                   "error.log"]
        engines.run(command + ["-t", "-q"])

        nginx = engines.spawn(command + ["-g", "daemon off;"],
                              subprocess.DEVNULL, detach,
                              end=signal.SIGTERM)
        self.processes.insert(0, nginx)

        while nginx.poll() is None:
            try:
                return get(self.address, "/kvroute/json")
            except OSError:
                time.sleep(0.02)

        raise engines.Unavailable("nginx has ended, see its error.log")

    def stop(self):
        engines.stop(*self.processes)


def model_of(addresses):
    """The model that the user's engines serve."""
    for address in addresses:
        try:
            model = get(address, "/v1/models")["data"][0]["id"]
        except (OSError, ValueError, LookupError) as e:
            raise engines.Unavailable("%s: %s" % (address, e)) from None

    return model


def get(address, uri):
    """A JSON document."""
    connection = http.client.HTTPConnection(address, timeout=10)

    try:
        connection.request("GET", uri)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def pauses(folder, given):
    """What traffic.think() finds."""
    fleet = Fleet("round_robin", folder, given)

    try:
        think = traffic.think(fleet.address, fleet.model,
                              "run %s. " % secrets.token_hex(8))
    except (OSError, http.client.HTTPException, ValueError, LookupError) as e:
        raise engines.Unavailable("%s: %s" % (type(e).__name__, e)) from None
    finally:
        fleet.stop()

    print("pauses of %.2f to %.2f s between turns" % think, flush=True)

    return think


def run(policy, seed, folder, given, think, forks=False):
    """Plays the traffic once, from cold; returns results, and cached tokens
    that the module has predicted and that engines have delivered."""
    name = "seed %d, %s%s: " % (seed, policy, ", forks" if forks else "")

    def progress(done, total):
        if sys.stdout.isatty():
            print("\r%s%d of %d requests" % (name, done, total), end="")
            sys.stdout.flush()

    # Engines of yours are not restarted: what they hold from earlier runs
    # is of no use to this one, as its prompts begin with other words.

    prefix = "run %s. " % secrets.token_hex(8) if given else ""
    tokens = None

    fleet = Fleet(policy, folder, given)

    try:
        start = time.monotonic()
        results = traffic.play(fleet.address, fleet.model, seed,
                               "%s-%d%s" % (policy, seed, "-forks" * forks),
                               prefix, progress, think, forks)
        seconds = time.monotonic() - start
        tokens = report.tokens(get(fleet.address, "/kvroute/json"))
    finally:
        fleet.stop()

    print("%s%s%d requests in %.1f s" % (
        "\r" if sys.stdout.isatty() else "", name, len(results), seconds),
        flush=True)

    # which port an engine had in this run does not matter any more

    for result in results:
        if result.engine in fleet.addresses:
            result.engine = fleet.addresses.index(result.engine)

    return results, tokens


def conclude(runs, told, seeds, count, began, compared):
    """Prints the table and the checks, writes result.json."""
    policies = {policy: report.figures(results, range(count))
                for policy, results in runs.items()}

    for policy, f in policies.items():
        f["told"] = told[policy]
        f["predicted_tokens"], f["delivered_tokens"] = map(
            sum, zip(*told[policy]))

    found = report.checks(policies, compared)

    with open(os.path.join(OUT, "error.log")) as f:
        severe = [line.rstrip() for line in f
                  if re.search(r"\[(alert|crit|emerg)\]", line)]

    found.append({"check": "nginx: severe errors in its log",
                  "value": len(severe), "max": 0, "ok": not severe})

    print("\n%s\n%s\n" % (report.HEAD, "\n".join(
        report.row(policy, f) for policy, f in policies.items())))

    if report.headline(policies):
        print(report.headline(policies) + "\n")

    for policy, f in policies.items():
        if f["predicted_tokens"]:
            print("%-14s predicted %s cached tokens, delivered %s" % (
                policy, "{:,}".format(f["predicted_tokens"]),
                "{:,}".format(f["delivered_tokens"])))

    print()

    if any(f["cached_tokens"] is None for f in policies.values()):
        print("These engines do not report cached tokens (vLLM does with "
              "--enable-prompt-tokens-details).\n")

    for c in found:
        kind = "min" if "min" in c else "max"
        print("%-6s %s: %.4g, %s %g" % (
            "ok" if c["ok"] else "FAILED", c["check"], c["value"],
            "at least" if kind == "min" else "at most", c[kind]))

    if not all(c["ok"] for c in found):
        explain(runs, severe)

    with open(os.path.join(OUT, "result.json"), "w") as f:
        json.dump({"policies": policies, "seeds": seeds, "checks": found,
                   "seconds": round(time.monotonic() - began, 1)}, f, indent=2)
        f.write("\n")

    print("\n%.0f s in all; figures, logs and configuration are in %s"
          % (time.monotonic() - began, os.path.relpath(OUT)))

    return all(c["ok"] for c in found)


def explain(runs, severe):
    """What there is to see when a check has failed."""
    results = [r for policy in runs.values() for run in policy for r in run]
    errors = ["%s: %s" % (r.id, r.error) for r in results if r.error]

    lost = report.misses([r for run in runs.get("kv_cache", []) for r in run],
                         os.path.join(OUT, "access.log"))

    for title, lines in (("errors", errors), ("nginx's error.log", severe),
                         ("cached tokens that kv_cache lost", lost)):
        if lines:
            print("\n%s:\n    %s" % (title, "\n    ".join(lines[:10])))


def keep(folder, given, started):
    """Leaves nginx and the engines running for the user to try."""
    fleet = Fleet("kv_cache", folder, given, detach=True)

    with open(KEPT, "w") as f:
        json.dump([p.pid for p in fleet.processes + started], f)

    request = os.path.join(OUT, "request.json")
    with open(request, "w") as f:
        json.dump({"model": fleet.model, "max_tokens": traffic.MAX_TOKENS,
                   "messages": traffic.Session(0, 0).turns[0]}, f)

    print("\nnginx and the engines are running. Try this twice and look at "
          "X-Engine and cached_tokens:\n\n"
          "    curl -si http://%s/v1/chat/completions -d @%s\n\n"
          "what the module knows:  http://%s/kvroute/ in a browser\n"
          "to stop them:           python3 %s stop"
          % (fleet.address, os.path.relpath(request), fleet.address,
             os.path.relpath(__file__)))


def stop_kept():
    """Ends what an earlier KEEP=1 has left running."""
    try:
        with open(KEPT) as f:
            pids = json.load(f)
    except OSError:
        return

    for pid in pids:
        try:
            with open("/proc/%d/cmdline" % pid) as f:
                if engines.BUILD in f.read():       # still the same process
                    os.kill(pid, signal.SIGTERM)
        except OSError:
            pass

    os.unlink(KEPT)


def main():
    began = time.monotonic()

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, frame: sys.exit(128 + n))

    stop_kept()
    if sys.argv[1:] == ["stop"]:
        return

    def setting(name, default=""):
        return os.environ.get(name, "").replace(",", " ") or default

    policies = setting("POLICIES", POLICIES).split()
    seeds = [int(seed) for seed in setting("SEEDS").split()] or traffic.SEEDS
    given = setting("ENGINES").split()
    kept = setting("KEEP", "0") != "0"
    kind = KINDS.get(setting("ENGINE", "llama"))
    folder = None
    started = []

    if kind is None:
        sys.exit("ENGINE= is one of: " + " ".join(KINDS))

    if setting("QUICK", "0") != "0":
        seeds = seeds[:1]

    shutil.rmtree(OUT, ignore_errors=True)
    os.makedirs(os.path.join(OUT, "tmp"))

    # a copy, as replacing a module in use would end the nginx that uses it

    shutil.copy(MODULE, OUT)

    try:
        if not given:
            folder = get_engine(kind)

        # vLLM takes long to start, so its engines stay, like yours

        if folder and kind is vllm:
            print("starting %d engines" % COUNT, flush=True)
            fleet = vllm.start(COUNT, folder, OUT, detach=kept, tokens=ROOM)
            started = [e.process for e in fleet]
            given = [e.address for e in fleet]

        good = compare(policies, seeds, folder, given, began)

        if kept:
            keep(folder, given, started)
            started = []

    finally:
        engines.stop(*started)

    sys.exit(0 if good else 1)


def get_engine(kind):
    """The folder that it is in."""
    try:
        return kind.get()
    except engines.Unavailable as e:
        raise engines.Unavailable(NONE % (e, kind.PACKAGE, kind.SOURCE)) \
            from None


def compare(policies, seeds, folder, given, began):
    """All policies' turns; returns whether all checks hold."""
    # seed by seed, so that what else the machine does disturbs all alike; and
    # pauses anew for each, as it may have become slower

    turns = [(policy, policy, False) for policy in policies]
    turns += [(policy + ", forks", policy, True)
              for policy in policies if policy in FORKS]

    runs = {name: [] for name, _, _ in turns}
    told = {name: [] for name, _, _ in turns}

    for seed in seeds:
        think = pauses(folder, given)

        for name, policy, forks in turns:
            results, tokens = run(policy, seed, folder, given, think, forks)
            runs[name].append(results)
            told[name].append(tokens)

    return conclude(runs, told, seeds, len(given) or COUNT, began,
                    compared=not given)


if __name__ == "__main__":
    try:
        main()

    except KeyboardInterrupt:
        sys.exit(130)

    except engines.Unavailable as e:
        sys.exit("The demo has no engine to run: %s" % e)

    except subprocess.CalledProcessError as e:
        sys.exit(e.stderr or str(e))

    except OSError as e:
        sys.exit(str(e))
