"""Invariants: the status agrees with clients and the access log; limits on the
memory and files of processes."""

import collections
import os
import re
import time

SHOWN = 40           # failures that are printed in full

LISTEN = "0A"        # in /proc/net/tcp

# locations, and their names in the access log

LOGGED = {"plain": "plain", "buffered": "plain", "held": "plain",
          "queued": "queued", "legs": "plain", "turns": "queued",
          "rooms": "rooms", "other": "other", "unbroken": "unbroken",
          "pull": "unbroken"}

# the log has less of these: leg 1, continuations and second requests are
# subrequests
# continuations and second requests

UNLOGGED = ("other", "prefill", "rooms_prefill", "unbroken")


class Judge:
    """Collects requests and failures, the connections of killed workers, and the
    times of engine faults."""

    def __init__(self):
        self.count = collections.Counter()
        self.failures = []
        self.place = ""                 # seed and batch, for messages
        self.open = set()
        self.answered = collections.Counter()
        self.sent = collections.Counter()
        self.victims = {}               # port: time at which its worker was killed
        self.faults = []                # [from, to]
        self.cut = 0                    # since the last sums
        self.steps = False              # workers die at chosen stores
        self.did = []                   # [when, what] of this batch

    def fail(self, kind, text):
        self.count[kind] += 1
        line = "%s: %s: %s" % (self.place, kind, text)
        if len(self.failures) < SHOWN:
            self.failures.append(line)
        print(line, flush=True)

    # --- requests

    def begin(self, r):
        self.open.add(r)

    def killed(self, port):
        """The client may have the whole answer although no log has the request."""
        self.victims[port] = time.monotonic()
        self.cut += 1

    def was_cut(self, r):
        """Another request may have used its port before."""
        return self.victims.get(r.port, 0) >= r.start

    def does(self, what):
        self.did.append([time.monotonic(), what])

    def finish(self, r):
        self.open.discard(r)
        self.count["requests"] += 1

        if self.was_cut(r):
            self.count["cut"] += r.how in ("none", "broken")
            return

        if r.status and r.how in ("ok", "status"):
            self.count["answered"] += 1
            if r.place in LOGGED:
                self.answered[LOGGED[r.place], r.status] += 1

        if r.how == "stuck":
            self.fail("stuck", self.told(r))
        elif (r.how == "none"
              or r.how in ("broken", "status") and not self.excused(r)):
            self.fail("lost", self.told(r))

    def told(self, r):
        """Describes a request and the actions during it."""
        return "%s %s; %s" % (r, r.body[:200] or "", ", ".join(
            "%s at %.3f" % (what, when - r.start) for when, what in self.did
            if when > r.start - 2 and when < r.end))

    def excused(self, r):
        """Accepts rejections by the queue, and failures during engine faults."""
        if (r.place in ("queued", "turns") and r.status in (429, 503)
                and b"queue_" in r.body):
            return True

        return any(r.start <= to and r.end >= since
                   for since, to in self.faults)

    # --- counters

    def idle(self, status):
        """Returns the counters that are not zero, as text.  nginx's own count
        stays one too high if a worker was killed at the store between it and
        ours (ngx_http_kvroute_choose.c), which only happens with chosen
        stores."""
        left = []
        keys = ("active", "pending", "unanswered_all")

        if not self.steps:
            keys += ("conns",)

        for name, u in status["upstreams"].items():
            if u["locked"]:
                left.append("%s is locked" % name)
            if u.get("queue", {}).get("size"):
                left.append("%s: %d wait" % (name, u["queue"]["size"]))
            for p in u["peers"]:
                for key in keys:
                    if p.get(key):
                        left.append("%s %s: %s %s" % (name, p["name"], key,
                                                      p[key]))
        return ", ".join(left)

    @staticmethod
    def counted(status):
        """Returns the requests of each server of an upstream, by the status."""
        return {(name, p["name"]): (p["id"], p["requests"])
                for name, u in status["upstreams"].items()
                for p in u["peers"] if "id" in p}

    def sums(self, before, after, log, attempts):
        """Compares the counters since the last call.  The status can count a
        request of a killed worker that no log has."""
        given = collections.Counter()
        answered = collections.Counter()

        for line in log:
            up, port, status, addrs = line.split(" ", 3)
            answered[up, int(status)] += 1
            for addr in addrs.replace(" : ", ", ").split(", "):
                given[up, addr] += 1

        for key in before.keys() & after.keys():
            if key[0] in UNLOGGED or before[key][0] != after[key][0]:
                continue

            n = after[key][1] - before[key][1]

            if not given[key] <= n <= given[key] + attempts * self.cut:
                self.fail("wrong_counts", "%s %s got %d requests by the status, "
                          "%d by the log, %d were cut" % (*key, n, given[key],
                                                          self.cut))

        for key, n in self.answered.items():
            if n > answered[key] + self.cut:
                self.fail("wrong_counts", "%s: status %d: %d answers, %d in "
                          "the log, %d were cut" % (*key, n, answered[key],
                                                    self.cut))

        self.answered.clear()
        self.cut = 0

    # --- the log of errors

    def log(self, lines, killed):
        for line in lines:
            if not re.search(r"\[(alert|crit|emerg)\]|Sanitizer|runtime error:",
                             line):
                continue

            found = re.search(r"worker process (\d+) exited on signal 9|"
                              r"shared memory zone .* was locked by (\d+)", line)
            if found and int(found[1] or found[2]) in killed:
                continue

            self.fail("alerts", line.strip())


class Processes:
    """nginx's processes and their resources."""

    def __init__(self, master, port):
        self.master, self.port = master, port
        self.reset = 0

    def children(self):
        """Returns the workers, including those that are starting."""
        try:
            with open("/proc/%d/task/%d/children"
                      % (self.master, self.master)) as f:
                return [int(pid) for pid in f.read().split()]
        except OSError:
            return []

    def workers(self):
        """Maps each pid to whether it is shutting down."""
        out = {}

        for pid in self.children():
            try:
                with open("/proc/%d/cmdline" % pid) as f:
                    title = f.read()
            except OSError:
                continue
            if "worker process" in title:
                out[pid] = "shutting down" in title

        return out

    @staticmethod
    def state(pid):
        try:
            with open("/proc/%d/stat" % pid) as f:
                return f.read().rsplit(") ", 1)[1][0]
        except OSError:
            return "X"

    def stopped(self, pid):
        """Waits until the process has stopped or exited."""
        while self.state(pid) not in "TXZ":
            time.sleep(0.0005)

    def clients(self, pid):
        """Returns the client ports of a worker's connections."""
        have = set()

        try:
            for fd in os.listdir("/proc/%d/fd" % pid):
                found = re.match(r"socket:\[(\d+)\]",
                                 os.readlink("/proc/%d/fd/%s" % (pid, fd)))
                if found:
                    have.add(found[1])
        except OSError:
            return []

        ports = []
        left = set(have)

        with open("/proc/net/tcp") as f:
            next(f)
            for line in f:
                field = line.split()
                left.discard(field[9])
                if (field[9] in have and field[3] != LISTEN
                        and int(field[1].split(":")[1], 16) == self.port):
                    ports.append(int(field[2].split(":")[1], 16))

        self.reset = len(left)      # by clients, and no longer in the table

        return ports

    @staticmethod
    def memory(pid):
        """Returns its private memory in kB."""
        try:
            with open("/proc/%d/status" % pid) as f:
                return int(re.search(r"RssAnon:\s*(\d+)", f.read())[1])
        except (OSError, TypeError):
            return 0

    @staticmethod
    def files(pid):
        try:
            return len(os.listdir("/proc/%d/fd" % pid))
        except OSError:
            return 0
