"""Measures requests and sharing while something is broken.

Each case has its own fleet under a steady load.  It breaks something, repairs
it, and reports failed requests, the time until sharing works again, and the
figures of the case.
"""

import asyncio
import base64
import glob
import os
import re
import signal
import threading
import time

from places import BUILD
from rig import Process, cpu, wait
from store import Store
from fleet import Fleet
from work import Clients, ask, text

KIND = "zipf"
HOSTS = 3
FULL = os.environ.get("FULL") == "1"

# s from the start of a case to its fault, and from there to the repair

CALM, BROKEN, SLOW = 3, 5, 8

# how often a store is broken; s of each fault, and of the calm before it

TURNS, TURN = 12, 5


class Load(threading.Thread):
    """Clients that run while the case does its work."""

    def __init__(self, fleet, seconds, **kw):
        super().__init__()
        self.clients = Clients(fleet.hosts, KIND, seconds, **kw)
        self.start()

    def run(self):
        self.clients.play()

    def end(self):
        self.join()
        return self.clients.answers


def hits(answers):
    good = [a for a in answers if a.good()]
    return (sum(a.cached for a in good) / sum(a.prompt for a in good)
            if good else None)


def decided(fleet):
    """Returns the decisions of all hosts by duration: {bound: number}."""
    total = {}

    for h in fleet.hosts:
        for bound, n in (h.status()["upstreams"]["llm"]["decision_time"]
                         ["buckets"].items()):
            total[float(bound)] = total.get(float(bound), 0) + n

    return total


def tail(before, after, share=0.99):
    """Returns a quantile of the decisions between two calls of decided(),
    interpolated between the bounds of its bucket."""
    bounds = sorted(after)
    n = {b: after[b] - before.get(b, 0) for b in bounds}
    want = share * n[bounds[-1]]
    low, have = 0, 0

    for b in bounds:
        if n[b] >= want:
            if b == float("inf"):
                return low
            return low + (b - low) * (want - have) / max(n[b] - have, 1)
        low, have = b, n[b]

    return low


def broken(args, breaks, mends, calm=CALM, for_s=BROKEN, after=6, count=HOSTS,
           start=None, setup=None):
    """Runs a case whose fault is between the hosts."""
    with Fleet(count, "shared", KIND, plain=args.plain, start=start) as fleet:
        state = setup(fleet) if setup else None
        load = Load(fleet, calm + for_s + after)

        time.sleep(calm)
        before = decided(fleet)
        breaks(fleet, state)
        time.sleep(for_s)
        during = decided(fleet)
        lost = [h.share() for h in fleet.hosts]
        mends(fleet, state)
        began = time.monotonic()
        sent = taken(fleet)
        fleet.works()
        wait(lambda: all(n > s for n, s in zip(taken(fleet), sent)))
        back = time.monotonic() - began

        answers = load.end()
        end = [h.share() for h in fleet.hosts]
        warned = [logged(h) for h in fleet.hosts]

        return {"requests": len(answers),
                "failed": sum(not a.good() for a in answers),
                "cached": hits(answers),
                "decision_p99_us": 1e6 * tail(before, during),
                "up_while_broken": sum(s["up"] for s in lost),
                "back_s": back,
                "taken_after": min(e["lessons_applied"] - s
                                   for e, s in zip(end, sent)),
                "warnings": max(warned),
                "dropped": sum(s["dropped"] for s in end),
                "gaps": sum(s["gaps"] for s in end)}


def taken(fleet):
    """Returns how many index updates of other hosts each host has applied."""
    return [h.share()["lessons_applied"] for h in fleet.hosts]


def logged(host):
    with open(host.log) as f:
        return sum("[warn]" in s or "[error]" in s for s in f
                   if "kvroute_share" in s)


def nothing(fleet, state):
    pass


def kill(fleet, state):
    fleet.store.kill()


def again(fleet, state):
    fleet.store.start()


def stop(fleet, state):
    fleet.store.kill(signal.SIGSTOP)


def cont(fleet, state):
    fleet.store.kill(signal.SIGCONT)


def restart(fleet, state):
    fleet.store.kill()
    fleet.store.start()


def config(*words):
    return lambda fleet, state: fleet.store.command(*words)


def password(fleet, state):
    fleet.store.command("CONFIG", "SET", "requirepass", "another")
    fleet.store.password = "another"
    fleet.store.command("CLIENT", "KILL", "TYPE", "normal")


def known(fleet, state):
    fleet.store.command("CONFIG", "SET", "requirepass", "")
    fleet.store.password = None


def relayed(fleet):
    """Starts hosts that reach the store through a relay."""
    relay = fleet.relay()

    for i in range(HOSTS):
        fleet.add("h%d" % i, port=relay.port)
    fleet.works()

    return relay


def replicated(fleet):
    """Like relayed(), with a replica that the relay can switch to."""
    relay = relayed(fleet)
    replica = Store(fleet.net, "s", None, "--replicaof", fleet.store.address,
                    str(fleet.store.port))

    wait(lambda: b"master_link_status:up"
         in replica.command("INFO", "replication"))

    return relay, replica


def fail_over(fleet, state):
    fleet.store.kill()


def promote(fleet, state):
    relay, replica = state

    replica.command("REPLICAOF", "NO", "ONE")
    relay.lead((replica.address, replica.port))


def slow(fleet, relay):
    relay.delay = 0.05


def narrow(fleet, relay):
    relay.rate = 1e6 / 8


def lossy(fleet, relay):
    relay.loss = 0.01


def wide(fleet, relay):
    relay.delay = relay.rate = relay.loss = 0


CASES = {
    "calm": lambda a: broken(a, nothing, nothing),
    "killed": lambda a: broken(a, kill, again),
    "stopped": lambda a: broken(a, stop, cont, for_s=10),
    "restarted": lambda a: broken(a, restart, nothing),
    "full": lambda a: broken(a, config("CONFIG", "SET", "maxmemory", "1"),
                             config("CONFIG", "SET", "maxmemory", "0")),
    "read_only": lambda a: broken(a, config("REPLICAOF", "192.0.2.1", "1"),
                                  config("REPLICAOF", "NO", "ONE")),
    "password": lambda a: broken(a, password, known),
    "failed_over": lambda a: broken(a, fail_over, promote, for_s=2, start=0,
                                    setup=replicated),
    "calm_long": lambda a: broken(a, nothing, nothing, for_s=SLOW),
    "delay_100ms": lambda a: broken(a, slow, wide, for_s=SLOW, start=0,
                                    setup=relayed),
    "rate_1mbit": lambda a: broken(a, narrow, wide, for_s=SLOW, start=0,
                                   setup=relayed),
    "loss_1": lambda a: broken(a, lossy, wide, for_s=SLOW, start=0,
                               setup=relayed),
}


def host_killed(args):
    """If a host is killed, the others stop counting its requests."""
    with Fleet(HOSTS, "shared", KIND, plain=args.plain, speed=0.2) as fleet:
        first, last = fleet.hosts[0], fleet.hosts[-1]

        def hold():
            async def some():
                await asyncio.gather(*(
                    ask(last.address, last.port, last, text("k%d" % i, 500),
                        2000) for i in range(10)))
            asyncio.run(some())

        held = threading.Thread(target=hold, daemon=True)
        held.start()

        wait(lambda: first.elsewhere() == 10)
        last.kill()
        began = time.monotonic()
        wait(lambda: first.elsewhere() == 0)

        return {"gone_s": time.monotonic() - began}


def reloaded(args):
    """Reloads under load: no batch is lost, none is published twice."""
    times = 100 if FULL else 20

    with Fleet(HOSTS, "shared", KIND, plain=args.plain) as fleet:
        load = Load(fleet, 8 + times / 4)
        time.sleep(2)

        for _ in range(times):
            fleet.hosts[0].process.send_signal(signal.SIGHUP)
            time.sleep(0.2)

        answers = load.end()
        back = fleet.works()
        states = [h.share() for h in fleet.hosts]

        return {"reloads": times, "requests": len(answers),
                "failed": sum(not a.good() for a in answers),
                "back_s": back, "gaps": sum(s["gaps"] for s in states),
                "dropped": sum(s["dropped"] for s in states)}


def worker_killed(args):
    """Worker 0 is killed many times; only its own requests fail."""
    times = 1000 if FULL else 30
    longest = 0

    with Fleet(HOSTS, "shared", KIND, plain=args.plain) as fleet:
        load = Load(fleet, 4 + times / 3)
        time.sleep(2)

        for _ in range(times):
            pid = fleet.hosts[0].workers()[0]
            os.kill(pid, signal.SIGKILL)
            wait(lambda: [p for p in fleet.hosts[0].workers() if p != pid])
            time.sleep(0.2)
            longest = max([longest] + [
                o["silent"] / 1000 for o in fleet.hosts[1].share()["hosts"]
                if o["name"] == "h0"])

        answers = load.end()
        back = fleet.works()
        others = [h.share() for h in fleet.hosts[1:]]

        return {"kills": times, "requests": len(answers),
                "failed_of_others": sum(not a.good() for a in answers
                                        if a.host is not fleet.hosts[0]),
                "longest_silence_s": longest, "back_s": back,
                "gaps": sum(s["gaps"] for s in others),
                "left_out_as_repeated": sum(s["repeated"] for s in others)}


def joiner(args):
    """A ninth host joins eight hosts that have the whole index."""
    with Fleet(8, "shared", KIND, plain=args.plain) as fleet:
        load = Load(fleet, 24)
        time.sleep(12)

        hosts = load.clients.hosts
        load.clients.hosts = list(hosts)
        new = fleet.add("h8")
        began = time.monotonic()
        time.sleep(1)

        # half of the requests go to the new host, else it would get too few

        load.clients.hosts = hosts + [new] * len(hosts)
        late = [a for a in load.end() if a.start > began + 1]
        own = [a for a in late if a.host is new]

        return {"requests": len(own), "cached": hits(own),
                "others": hits([a for a in late if a.host is not new]),
                "of_others": hits(own) / hits([a for a in late
                                               if a.host is not new])}


def snapshot(args):
    """One host is restarted, with a snapshot and without."""
    seconds = 16
    out = {}

    for name in ("warm", "cold"):
        with Fleet(1, "apart", KIND, plain=args.plain, start=0) as fleet:
            path = os.path.join(fleet.folder, "snap")
            os.mkdir(path)
            os.chmod(path, 0o777)
            zone = "snapshot=%s/llm" % path

            host = fleet.add("h0", zone=zone)
            before = Load(fleet, seconds).end()
            host.stop()
            fleet.hosts.clear()

            if name == "cold":
                for f in glob.glob(path + "/*"):
                    os.unlink(f)

            fleet.add("h0", zone=zone)
            after = Load(fleet, seconds, part=2).end()
            after.sort(key=lambda a: a.start)
            before.sort(key=lambda a: a.start)

            out["before"] = hits(before[-1000:])
            out[name] = hits(after[:1000])

    out["requests"] = min(1000, len(after))
    out["warm_of_before"] = out["warm"] / out["before"]
    out["cold_of_before"] = out["cold"] / out["before"]

    return out


def other_key(args):
    """A host with another key is ignored and counted, and logs a warning."""
    with Fleet(HOSTS, "shared", KIND, plain=args.plain, start=2) as fleet:
        odd = fleet.add("h2", key=fleet.make_key("other"))
        answers = Load(fleet, 8).end()
        first = fleet.hosts[0].share()

        return {"failed": sum(not a.good() for a in answers),
                "ignored": first["ignored"]["key"],
                "taken": sum(o["lessons"] for o in first["hosts"]
                             if o["name"] == "h2"),
                "told": odd.share()["lessons_sent"],
                "warnings": logged(fleet.hosts[0])}


def clocks(args):
    """A host whose monotonic clock is an hour ahead."""
    with Fleet(2, "shared", KIND, plain=args.plain, start=1) as fleet:
        fleet.add("h1", prefix=("unshare", "--time", "--monotonic", "3600"))
        fleet.works()
        answers = Load(fleet, 8).end()

        return {"failed": sum(not a.good() for a in answers),
                "taken": min(o["lessons"] for h in fleet.hosts
                             for o in h.share()["hosts"])}


def decisions(args):
    """Compares the time of a decision while the store is stopped or killed with
    that while it works.  The two alternate, because the machine changes over
    time.  Thousands of requests are needed for a P99."""
    total = {what: {} for what in ("calm", "broken")}

    with Fleet(HOSTS, "shared", KIND, plain=args.plain) as fleet:
        load = Load(fleet, 2 * TURNS * TURN + 10)

        def turn(what):
            before = decided(fleet)
            time.sleep(TURN)
            for bound, n in decided(fleet).items():
                total[what][bound] = (total[what].get(bound, 0) + n
                                      - before.get(bound, 0))

        for i in range(TURNS):
            turn("calm")
            (stop, kill)[i % 2](fleet, None)
            turn("broken")
            (cont, again)[i % 2](fleet, None)
            fleet.works()

        failed = sum(not a.good() for a in load.end())

    row = {"failed": failed}

    for what, n in total.items():
        row[what] = max(n.values())
        for share in (0.5, 0.99):
            row["%s_p%d_us" % (what, 100 * share)] = 1e6 * tail({}, n, share)

    row["p99_ratio"] = row["broken_p99_us"] / row["calm_p99_us"]

    return row


def cost(args):
    """Returns the CPU time of a host that reads 7 x 1,000 decisions a second,
    which teller.c generates, and that of a host that reads none."""
    with Fleet(1, "shared", KIND, plain=args.plain) as fleet:
        host = fleet.hosts[0]
        secret = os.path.join(fleet.folder, "secret")

        with open(fleet.key, "rb") as f, open(secret, "wb") as to:
            to.write(base64.b64decode(f.read()))

        def spent(seconds):
            began, used = time.monotonic(), cpu(host.pid)
            state = host.share()
            time.sleep(seconds)
            now, past = host.share(), time.monotonic() - began
            return [(cpu(host.pid) - used) / past] + [
                (now[k] - state[k]) / past
                for k in ("lessons_applied", "batches_applied")]

        at_rest = spent(6)[0]

        tells = Process([
            *fleet.net.within("h1"), os.path.join(BUILD, "bench/hosts/teller"),
            fleet.store.address, str(fleet.store.port), "kvroute:{llm}",
            secret, "7", "1000", "30",
            *re.findall(r"server (\S+)", fleet.servers)])

        wait(lambda: sum(o["alive"] for o in host.share()["hosts"]) == 7,
             process=tells)
        working, lessons, batches = spent(15)
        state = host.share()
        tells.stop()

        return {"at_rest": at_rest, "core_share": working,
                "lessons_per_s": lessons, "batches_per_s": batches,
                "unknown": state["unknown_peers"], "gaps": state["gaps"],
                "us_a_decision": 1e6 * (working - at_rest) / lessons,
                "of_7000_per_s": at_rest + (working - at_rest)
                * 7000 / lessons}


OTHERS = {"host_killed": host_killed, "reloaded": reloaded,
          "worker_killed": worker_killed, "joiner": joiner,
          "snapshot": snapshot, "other_key": other_key, "clocks": clocks,
          "cost": cost, "decisions": decisions}


def show(name, row):
    print("%-14s %s" % (name, "  ".join(
        "%s %s" % (k, "%.3g" % v if isinstance(v, float) else v)
        for k, v in row.items())), flush=True)


def all_of(args, result):
    rows = result.setdefault("faults", {})

    for name, case in {**CASES, **OTHERS}.items():
        if args.wants(name):
            rows[name] = case(args)
            show(name, rows[name])

    dead = [rows[n] for n in CASES if n in rows and "calm" not in n]

    if dead and "decisions" in rows:
        result["store_dead"] = {
            "failed": sum(r["failed"] for r in dead + [rows["decisions"]]),
            "p99_ratio": rows["decisions"]["p99_ratio"],
            "back_s": max(r["back_s"] for r in dead)}

    for name, key, to in (("joiner", "of_others", "joiner"),
                          ("cost", "of_7000_per_s", "cpu_core_share"),
                          ("reloaded", "failed", "lost")):
        if name in rows:
            result[to] = rows[name][key]
