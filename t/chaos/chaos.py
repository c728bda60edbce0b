#!/usr/bin/env python3
"""Runs nginx under random actions of operators, kernels, engines and clients, and
checks the invariants after each batch of actions.

    MINUTES=8 SEED=1 [STEPS=1] t/chaos/chaos.py FILE         (make chaos)

A seed is one life of nginx, with 1, 2 or 4 workers: batches of acts under
load, each followed by a pause in which all counters must be zero.  Seeds go up
from SEED until the time is over.  All choices follow from the seed, but the
scheduler's do not, so a failed seed may need several runs: SEED=17 SEEDS=1.

Writes the results to FILE, as JSON; logs of a failed seed are in build/chaos.  MODULE and NGINX_BIN may name other builds.
"""

import asyncio
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../bench/common"))
sys.dont_write_bytecode = True

import conf                                             # noqa: E402
import load                                             # noqa: E402
from judge import Judge, Processes                      # noqa: E402
from places import BUILD, ENGINE, MODULE, NGINX, modules  # noqa: E402
from ports import free_ports                            # noqa: E402

ENGINES = 6
ROOMS = 2            # further engines of either kind, which meet like SGLang's
CLIENTS = int(os.environ.get("CLIENTS", 24))
BATCHES = int(os.environ.get("BATCHES", 12))
HELD = 4             # prompts that two engines have cached, and never lose
HELD_BYTES = 40_000

ACTS = (("kill", 30), ("kill_exiting", 14), ("kill_two", 4), ("reload", 42),
        ("pause", 3), ("pause_kill", 3), ("fault", 5), ("engine", 4),
        ("api", 9), ("reset", 1))

LONG = 5 if os.environ.get("LEGS") else 1       # batches

# with the module of "make step-module" workers also die before their n-th store
# to shared memory

TRAP = os.path.join(BUILD, "t/step/die.so")

if os.environ.get("STEPS"):
    MODULE = os.path.join(BUILD, "step/ngx_http_kvroute_module.so")
    ACTS = (("kill_step", 60), *ACTS)

FAULTS = (
    {"fault": "status=500"}, {"fault": "status=503"}, {"fault": "status=404"},
    {"fault": "status=429", "retry_after": 1},
    {"fault": "close-before-headers"}, {"fault": "reset-before-headers"},
    {"fault": "reset-after-headers"}, {"fault": "reset-mid-stream=0"},
    {"fault": "reset-mid-stream=3"}, {"fault": "truncate=0"},
    {"fault": "truncate=4"}, {"fault": "garbage"}, {"fault": "garbage-body"},
    {"fault": "hang"}, {"fault": "stall=2", "stall_ms": 1500},
    {"fault": "slow=60"}, {"fault": "error-in-stream=0"},
    {"fault": "error-in-stream=2"}, {"fault": "error-in-body"},
    {"fault": "empty-stream"}, {"fault": "status=500", "fault_rate": .5},
    {"fault": "reset-before-headers", "fault_rate": .3},
    {"delay_ms": 300}, {"health_status": 500}, {"metrics": "garbage"},
    {"metrics": "huge"}, {"metrics": "frozen"}, {"metrics": "500"},
    {"loading_s": 0.5}, {"down_s": 0.4},
)

WELL = {"fault": None, "fault_rate": 1, "stall_ms": 0, "retry_after": -1,
        "delay_ms": 0, "health_status": 200, "metrics": "ok", "loading_s": 0}


async def until(what, seconds):
    """Waits for a condition; returns whether it became true."""
    end = time.monotonic() + seconds

    while not what():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.005)

    return True


class Life:
    """One nginx with its engines, under one seed."""

    def __init__(self, seed, judge):
        self.rng = random.Random("chaos %d" % seed)
        self.seed, self.judge = seed, judge
        self.dir = tempfile.mkdtemp(prefix="kvroute-chaos-")
        os.chmod(self.dir, 0o755)
        self.started = []
        self.workers = (1, 2, 4)[seed % 3]
        self.port = free_ports(1)
        self.engines = []
        self.killed = set()
        self.sick = set()
        self.stopped = set()
        self.offset = {"error.log": 0, "access.log": 0}
        self.reloads = 0
        self.die = os.path.join(self.dir, "die")
        self.env = {}
        self.tasks, self.helpers = [], []
        self.gate = asyncio.Event()
        self.bank = load.Bank(random.Random("bank"))
        self.held = []
        self.before = None
        self.known = {}
        self.master_memory = []
        self.master_files = []

    # --- start and end

    def spawn(self, *args, **env):
        with open(os.path.join(self.dir, "out"), "a") as out:
            p = subprocess.Popen(args, stdout=out, stderr=out,
                                 env={**os.environ, **env})
        self.started.append(p)
        return p

    def serve(self, port, *more):
        return self.spawn(
            ENGINE, "--port", str(port), "--model", "m", "--speed", "200",
            "--output-tokens", "30", "--max-model-len", "4000000",
            "--kv-cache-size", "4000000", "--enable-prompt-tokens-details",
            "--continue",
            "--kv-transfers", self.dir + "/transfers", *more)

    def configure(self):
        fixed = {"modules": "".join("load_module %s;" % m
                                    for m in modules(MODULE)),
                 "dir": self.dir, "port": self.port, "workers": self.workers}
        new = os.path.join(self.dir, "nginx.conf.new")
        self.text = conf.text(self.rng, fixed, self.engines, self.rooms)
        with open(new, "w") as f:
            f.write(self.text)
        os.rename(new, new[:-4])

    async def begin(self):
        first = free_ports(ENGINES + 2 * ROOMS)
        self.engines = list(range(first, first + ENGINES))
        self.rooms = list(range(first + ENGINES, first + ENGINES + 2 * ROOMS))
        self.processes = [self.serve(port) for port in self.engines]

        for port in self.rooms:
            self.serve(port, "--disaggregation-mode",
                       "prefill" if port < self.rooms[ROOMS] else "decode")

        if os.environ.get("STEPS"):
            self.env = {"LD_PRELOAD": TRAP, "KVROUTE_DIE": self.die}

        self.configure()
        path = os.path.join(self.dir, "nginx.conf")

        for port in self.engines + self.rooms:
            if not await until(lambda: listening(port), 60):
                raise SystemExit("an engine does not start")

        self.nginx = self.spawn(NGINX, "-p", self.dir, "-c", path, "-e",
                                self.dir + "/error.log", "-g", "daemon off;",
                                **self.env)
        self.tree = Processes(self.nginx.pid, self.port)

        if not await until(lambda: listening(self.port), 60):
            raise SystemExit("nginx does not start: " + self.read("error.log"))

        # a connection that listening() has left is no request

        await until(lambda: len(self.tree.workers()) == self.workers, 60)

        for i in range(HELD):
            body = self.bank.chat(1000 + i, HELD_BYTES, False)
            self.held.append(body)
            for port in self.engines[:conf.WORKING]:
                await self.ask("/held/v1/chat/completions", body,
                               "X-Pin: 127.0.0.1:%d" % port)

        await self.quiet("at the start")

        if self.env:
            self.helpers = [asyncio.create_task(self.reap()),
                            asyncio.create_task(self.watch())]

        for i in range(CLIENTS):
            rng = random.Random("client %d %d" % (self.seed, i))
            self.tasks.append(asyncio.create_task(load.client(
                rng, self.bank, self.port, self.judge, self.gate)))

    async def end(self):
        for task in self.tasks:
            task.cancel()

        await asyncio.gather(*self.tasks, return_exceptions=True)

        for p in self.started:
            if p.poll() is None:
                p.send_signal(signal.SIGCONT)

        self.nginx.send_signal(signal.SIGQUIT)

        if not await until(lambda: self.nginx.poll() is not None, 30):
            self.judge.fail("stuck", "nginx does not quit: %s, %s" % (
                self.tree.state(self.nginx.pid), self.tree.workers()))

        for task in self.helpers:
            task.cancel()

        self.judge.log(self.lines("error.log"), self.killed)
        self.clean()

    def clean(self):
        for pid in getattr(self, "tree", None) and self.tree.children() or ():
            os.kill(pid, signal.SIGKILL)

        for p in self.started:
            if p.poll() is None:
                p.kill()
                p.wait()

        if self.judge.failures:
            kept = os.path.join(BUILD, "chaos", str(self.seed))
            os.makedirs(kept, exist_ok=True)
            for name in ("error.log", "access.log", "nginx.conf", "out"):
                if os.path.exists(os.path.join(self.dir, name)):
                    shutil.copy(os.path.join(self.dir, name), kept)

        shutil.rmtree(self.dir, ignore_errors=True)

    # --- requests

    def read(self, name):
        with open(os.path.join(self.dir, name), errors="replace") as f:
            return f.read()

    def lines(self, name):
        """Returns the new lines."""
        try:
            with open(os.path.join(self.dir, name), "rb") as f:
                f.seek(self.offset[name])
                data = f.read()
        except OSError:
            return []

        data = data[:data.rfind(b"\n") + 1]
        self.offset[name] += len(data)

        return data.decode("latin1").splitlines()

    async def ask(self, path, body=b"", *more, method="POST", counted=True):
        r = load.Request(path.split("/")[1], method)
        self.judge.begin(r)
        await load.send(r, self.port, load.head(method, path, body, *more),
                        body)
        if counted:
            self.judge.finish(r)
        else:
            self.judge.open.discard(r)
        return r

    async def status(self):
        r = await self.ask("/kvroute/json", method="GET", counted=False)
        return load.parse(r) if r.how == "ok" else None

    async def control(self, port, what):
        body = json.dumps(what).encode()
        r = load.Request("control", "POST")
        await load.send(r, port, load.head("POST", "/control", body), body,
                        patience=5)
        return r

    # --- actions

    async def act(self, name):
        await getattr(self, name)()

    def kill_pid(self, pid):
        """Records a worker's connections before it dies."""
        try:
            os.kill(pid, signal.SIGSTOP)
            self.tree.stopped(pid)
            for port in self.tree.clients(pid):
                self.judge.killed(port)
            self.judge.cut += self.tree.reset
            self.killed.add(pid)
            self.judge.does("SIGKILL %d" % pid)
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return

        self.stopped.discard(pid)
        self.judge.count["kills"] += 1

    def some_worker(self, exiting=False):
        pids = [pid for pid, out in self.tree.workers().items()
                if out or not exiting]
        return self.rng.choice(sorted(pids)) if pids else None

    async def kill(self):
        pid = self.some_worker()
        if pid:
            self.kill_pid(pid)

    async def kill_exiting(self):
        """Returns a worker that shuts down; reloads if there is none."""
        pid = self.some_worker(True)

        if pid is None:
            await self.reload()
            await until(lambda: any(self.tree.workers().values()), 2)
            pid = self.some_worker(True)

        if pid:
            self.kill_pid(pid)
            self.judge.count["kills_exiting"] += 1

    async def kill_two(self):
        for pid in list(self.tree.workers())[:2]:
            self.kill_pid(pid)

    async def kill_step(self):
        """Makes a worker stop at one of its stores to shared memory."""
        with open(self.die + ".new", "w") as f:
            f.write("%d\n" % int(2 ** (11 * self.rng.random())))
        os.rename(self.die + ".new", self.die)
        await until(lambda: not os.path.exists(self.die), .5)

    async def reap(self):
        """Kills the workers that have stopped like this."""
        while True:
            await asyncio.sleep(.01)

            for pid in self.tree.children():
                if pid not in self.stopped and self.tree.state(pid) == "T":
                    self.kill_pid(pid)
                    self.judge.count["step_kills"] += 1

    async def watch(self):
        """Resumes stopped workers."""
        while True:
            if await self.hangs():
                await self.remedy()

    async def remedy(self):
        """Applies the remedy of docs/operations.md for a lock that is not released,
        which a worker leaves that is killed between taking the lock and recording
        it."""
        old = self.tree.workers()
        self.nginx.send_signal(signal.SIGHUP)
        await until(lambda: len(self.tree.workers().keys() - old.keys())
                    >= self.workers, 10)
        await until(lambda: not self.tree.workers().keys() & old.keys(), 2)

        for pid in self.tree.workers().keys() & old.keys():
            self.kill_pid(pid)

        self.judge.count["remedies"] += 1

    async def hangs(self):
        """Returns whether a worker spins for two seconds."""
        hot = set(self.tree.workers())

        for _ in range(40):
            await asyncio.sleep(.05)
            hot = {pid for pid in hot if self.tree.state(pid) == "R"}
            if not hot:
                return False

        return True

    async def locked(self):
        """Returns whether the log reports a lock that keeps rows."""
        for _ in range(20):
            await asyncio.sleep(.1)
            status = await self.status()
            if status and not any(u["locked"] for u in
                                  status["upstreams"].values()):
                return False

        return True

    async def reload(self):
        self.configure()
        self.nginx.send_signal(signal.SIGHUP)
        self.summable = self.summable and not self.rng.random() < .02

        if self.rng.random() < .7:
            old = self.tree.workers()
            await until(lambda: self.tree.workers().keys() - old.keys(), 5)

    def pause_pid(self):
        pid = self.some_worker()

        if pid:
            try:
                os.kill(pid, signal.SIGSTOP)
            except ProcessLookupError:
                return None
            self.stopped.add(pid)
            self.judge.count["pauses"] += 1

        return pid

    def go_on(self, pid):
        self.stopped.discard(pid)
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            pass

    async def pause(self):
        pid = self.pause_pid()
        seconds = .2 + 1.8 * self.rng.random()
        if pid:
            asyncio.get_running_loop().call_later(seconds, self.go_on, pid)

    async def pause_kill(self):
        pid = self.pause_pid()
        await asyncio.sleep(.3 * self.rng.random())
        if pid and pid in self.stopped:
            self.kill_pid(pid)

    def at_fault(self):
        """Records that requests can fail because of engines from now on."""
        if not self.sick:
            self.judge.faults.append([time.monotonic(), float("inf")])
        self.judge.count["engine_faults"] += 1

    async def fault(self):
        what = self.rng.choice(FAULTS)
        port = self.rng.choice(self.engines)
        self.at_fault()
        self.sick.add(port)
        await self.control(port, what)

    async def engine(self):
        """Restarts an engine, or stops it: then it accepts and never
        answers."""
        i = self.rng.randrange(conf.WORKING, ENGINES)
        self.at_fault()
        self.sick.add(self.engines[i])

        if self.rng.random() < .5:
            await self.control(self.engines[i], {"restart": True})
            return

        p = self.processes[i]
        p.send_signal(signal.SIGSTOP)
        asyncio.get_running_loop().call_later(
            .2 + 2 * self.rng.random(), p.send_signal, signal.SIGCONT)

    async def api(self):
        peer = "127.0.0.1:%d" % self.rng.choice(self.engines[conf.WORKING:])
        path = self.rng.choice((
            "drain?peer=" + peer, "drain?peer=%s&move=1&rate=1000" % peer,
            "undrain?peer=" + peer, "flush?peer=" + peer,
            "capacity?peer=%s&size=64m" % peer,
            "capacity?peer=%s&size=auto" % peer))
        self.judge.count["api_calls"] += 1
        r = await self.ask("/api/" + path)

        # the present configuration may not have this server

        if r.how == "status" and r.status == 404:
            return
        if r.how == "ok":
            load.parse(r)

        await self.ask(self.rng.choice(("/kvroute/json", "/kvroute/metrics",
                                        "/kvroute/", "/api/")), method="GET")

    async def reset(self):
        self.summable = False
        self.judge.count["api_calls"] += 1
        await self.ask("/api/reset")

    # --- batches

    async def batch(self, number):
        rng = self.rng
        self.summable = True
        self.judge.place = "seed %d, batch %d" % (self.seed, number)
        self.judge.did = []
        did = []

        self.gate.set()
        await asyncio.sleep(.05 + .15 * rng.random())

        for _ in range(LONG * rng.randrange(3, 9)):
            name = load.pick(rng, ACTS)
            did.append(name)
            self.judge.does(name)
            await self.act(name)
            await asyncio.sleep(rng.choice((0, .01, .05, .1, .25))
                                * rng.random())

        self.gate.clear()
        await self.quiet(" ".join(did))
        self.gate.set()

    async def well(self):
        """Ends all faults of engines."""
        for p in self.processes:
            p.send_signal(signal.SIGCONT)

        for port in self.sick:
            r = await self.control(port, WELL)
            if r.how != "ok" and not await until(lambda: listening(port), 5):
                raise SystemExit("an engine has ended: %s" % r)

        if self.sick:
            self.sick.clear()
            self.judge.faults[-1][1] = time.monotonic() + 3

    async def quiet(self, did):
        """Waits until no request is in flight, then checks the invariants."""
        judge, tree = self.judge, self.tree

        await self.well()
        await until(lambda: not self.stopped, 5)

        if os.path.exists(self.die):
            os.unlink(self.die)

        if not await until(lambda: not judge.open, 2 * load.PATIENCE):
            for r in list(judge.open):
                judge.fail("stuck", r)

        judge.faults = [f for f in judge.faults if f[1] > time.monotonic() - 60]

        # old workers end with their last request, dead ones are replaced

        if not await until(lambda: len(tree.workers()) == self.workers
                           and not any(tree.workers().values()), 20):
            judge.fail("stuck", "after %s: workers %s, of %d" % (
                did, {pid: (out, tree.state(pid))
                      for pid, out in tree.workers().items()}, self.workers))

        if self.env and await self.locked():
            await self.remedy()

        start = time.monotonic()
        left = rows = "no status"

        while left and time.monotonic() < start + 10:
            status = await self.status()
            left = judge.idle(status) if status else "no status"

        # rows of dead workers are swept each second

        while rows and time.monotonic() < start + 10:
            status = await self.status()
            rows = {name: zone["processes"]
                    for name, zone in status["zones"].items()
                    if zone["processes"] != self.workers} if status else rows

        if rows:
            judge.fail("wrong_counts", "after %s: rows of zones are %s, for %d "
                       "workers" % (did, rows, self.workers))

        ms = round((time.monotonic() - start) * 1000)
        judge.count["idle_ms_worst"] = max(judge.count["idle_ms_worst"], ms)

        if left:
            judge.fail("wrong_counts", "after %s: %s" % (did, left))
            return

        await self.index(did)
        self.transfers(did)

        # a request is in the log before its connection is closed

        await until(lambda: not any(tree.clients(pid)
                                    for pid in tree.workers()), 10)

        status = await self.status()
        after = judge.counted(status) if status else {}

        for key in ("continued", "late", "pulled") if status else ():
            u = status["upstreams"]["unbroken"]
            n = (u.get("disaggregated", {}).get("yes", 0) if key == "pulled"
                 else sum(u.get(key, {}).values()))
            judge.count[key] += max(0, n - self.known.get(key, 0))
            self.known[key] = n

        log = self.lines("access.log")

        if self.before is not None and self.summable:
            judge.sums(self.before, after, log, 2)
        else:
            judge.answered.clear()
            judge.cut = 0

        self.before = after

        errors = self.lines("error.log")
        self.reloads += sum("signal 1 (SIGHUP)" in s for s in errors)
        judge.count["reloads"] += sum(", reconfiguring" in s for s in errors)
        judge.log(errors, self.killed)

        self.master_memory.append(tree.memory(self.nginx.pid))
        self.master_files.append(tree.files(self.nginx.pid))

    def transfers(self, did):
        """No server has used a descriptor twice or too late, and none has met a
        wrong request; the engines count these cases in files
        (t/engine/reply/engine_transfer.c, engine_meet.c)."""
        now = {}

        try:
            with open(self.dir + "/transfers", "rb") as f:
                now["nixl"] = struct.unpack("<8xQQ", f.read(24))
        except FileNotFoundError:
            pass

        try:
            with open(self.dir + "/transfers.meetings", "rb") as f:
                now["mooncake"] = struct.unpack("<QQ", f.read(16))
                now["sglang"] = struct.unpack("<QQ", f.read(16))
        except FileNotFoundError:
            pass

        for name, (all_of, corrupt) in now.items():
            before = self.known.get(name, (0, 0))

            if corrupt > before[1]:
                self.judge.fail("corrupt", "after %s: %d answers of %s by a "
                                "prefill that was not theirs"
                                % (did, corrupt - before[1], name))

            self.judge.count["disaggregated"] += all_of - before[0]
            self.judge.count[name] += all_of - before[0]

        self.known.update(now)

    async def index(self, did):
        """The index must know the cached part of prompts that two engines have.
        Engines have room for some thousand prompts: if a batch has more, the
        engine reports that it lost them."""
        for body in self.held:
            while True:
                r = await self.ask("/held/v1/chat/completions", body,
                                   "X-Pin: 127.0.0.1:%d" % self.engines[0])
                if not self.judge.was_cut(r):
                    break

            best = int(r.headers.get("x-best", "0"))
            cached = self.cached(r) if r.how == "ok" else 1

            if r.how != "ok" or best < .95 * cached * HELD_BYTES:
                self.judge.fail("wrong_index", "after %s: %s, %d bytes known "
                                "of %d, %.3f of them cached"
                                % (did, r, best, HELD_BYTES, cached))

    def cached(self, r):
        """Returns the part of its prompt that an engine reports as cached."""
        usage = load.parse(r)["usage"]

        return (usage["prompt_tokens_details"]["cached_tokens"]
                / usage["prompt_tokens"])

    def growth(self):
        """Returns the growth of the master, from the second quarter of its life
        to the end."""

        def middle(values):
            return sorted(values)[len(values) // 2] if values else 0

        n = len(self.master_memory)
        first, last = slice(n // 4, n // 2), slice(3 * n // 4, n)

        return (middle(self.master_memory[last])
                - middle(self.master_memory[first]),
                middle(self.master_files[last])
                - middle(self.master_files[first]))


def listening(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


async def main():
    if len(sys.argv) != 2:
        raise SystemExit("usage: chaos.py FILE")

    minutes = float(os.environ.get("MINUTES") or 8)
    seed = first = int(os.environ.get("SEED") or 1)
    seeds = int(os.environ.get("SEEDS") or 0)
    end = time.monotonic() + 60 * minutes
    judge = Judge()
    judge.steps = bool(os.environ.get("STEPS"))
    memory = files = 0

    while time.monotonic() < end and (not seeds or seed < first + seeds):
        life = Life(seed, judge)
        judge.place = "seed %d" % seed
        life.summable = True

        try:
            await life.begin()
            for number in range(BATCHES):
                if time.monotonic() > end:
                    break
                await life.batch(number)
            await life.end()
        finally:
            life.clean()

        grown = life.growth()
        memory, files = max(memory, grown[0]), max(files, grown[1])
        print("seed %d, %d workers: %s" % (seed, life.workers, ", ".join(
            "%s %d" % (k, judge.count[k]) for k in (
                "requests", "kills", "reloads", "pauses", "engine_faults",
                "lost", "stuck", "wrong_counts", "wrong_index", "alerts"))),
            flush=True)
        seed += 1

    result = {"seed": first, "seeds": seed - first}

    for key in ("kills", "kills_exiting", "step_kills", "remedies", "reloads", "pauses", "engine_faults",
                "api_calls", "requests", "answered", "cut", "lost", "stuck",
                "wrong_counts", "wrong_index", "alerts", "disaggregated",
                "nixl", "mooncake", "sglang", "corrupt", "continued", "late",
                "pulled", "idle_ms_worst"):
        result[key] = judge.count[key]

    result.update(rss_growth_kb=memory, fds_growth=files,
                  failures=judge.failures)

    with open(sys.argv[1], "w") as f:
        json.dump(result, f, indent=2)
        f.write("\n")

    return 1 if judge.failures else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
