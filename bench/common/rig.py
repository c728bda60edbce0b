"""Starts nginx and engines for benches, and measures CPU time and memory.

All processes stop when the bench ends, and their folders are removed.
"""

import atexit
import http.client
import json
import math
import os
import re
import resource
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from places import BUILD, ENGINE, NGINX, modules
from ports import free_ports

RESULTS = os.path.join(BUILD, "bench")

median = statistics.median

# benches open thousands of sockets: raise the limit as far as allowed

FILES = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 1 << 20)
resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))

signal.signal(signal.SIGTERM, lambda n, frame: sys.exit(128 + n))

CONF = """
@main@
@user@
worker_processes @workers@;
worker_rlimit_nofile @files@;
pid @dir@/nginx.pid;
error_log @dir@/error.log warn;
events { worker_connections @connections@; }
http {
    client_body_temp_path @dir@/b; proxy_temp_path @dir@/p;
    fastcgi_temp_path @dir@/f; uwsgi_temp_path @dir@/u;
    scgi_temp_path @dir@/s;
    keepalive_requests 1000000000;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_read_timeout 1h;
    @http@
    access_log @access@;
}
"""


class Process:
    """A running command, stopped when the bench ends."""

    def __init__(self, args, **kw):
        kw.setdefault("stdout", subprocess.DEVNULL)
        self.process = subprocess.Popen(args, **kw)
        self.pid = self.process.pid
        atexit.register(self.stop)

    def stop(self):
        """Sends SIGTERM until the process ends: nginx can miss a signal that
        arrives just before it sleeps."""
        for _ in range(30):
            if self.process.poll() is not None:
                break
            self.process.terminate()
            try:
                self.process.wait(2)
            except subprocess.TimeoutExpired:
                pass
        else:
            self.process.kill()
            self.process.wait()

        atexit.unregister(self.stop)


class Nginx(Process):
    """nginx with the given http block, in a temporary folder.

    In http, main and names, @address@ and @port@ are the listening address,
    @dir@ is the folder, and @name@ is the argument of that name.  With alone,
    or with a prefix such as valgrind, nginx runs as a single process.  With
    within, a prefix such as ip-netns(8), it has its worker processes.
    """

    def __init__(self, http, load=None, main="", workers=1,
                 connections=4096, access="off", prefix=(), alone=False,
                 expected=None, within=(), address="127.0.0.1", folder=None,
                 **names):
        self.dir = folder or tempfile.mkdtemp(prefix="kvroute-bench-")
        os.chmod(self.dir, 0o755)
        self.address = address
        self.port = free_ports(1)
        self.expected = expected        # pattern of expected severe errors

        if prefix or alone:
            main += " master_process off;"

        names.update(
            main="".join("load_module %s;" % m
                         for m in (modules() if load is None else load)) + main,
            http=http, access=access, dir=self.dir, port=self.port,
            address=address,
            workers=workers, files=FILES,
            connections=min(connections, FILES),
            user="user root;" if os.getuid() == 0 else "")

        text = CONF
        while True:
            found = re.search("@([a-z_]+)@", text)
            if not found:
                break
            text = text.replace(found[0], str(names[found[1]]))

        conf = os.path.join(self.dir, "nginx.conf")
        self.log = os.path.join(self.dir, "error.log")

        with open(conf, "w") as f:
            f.write(text)

        super().__init__([*within, *prefix, NGINX, "-p", self.dir, "-c", conf, "-e",
                          self.log, "-g", "daemon off;"])
        wait(lambda: listening(self.port, address), process=self)

    def stop(self):
        """Stops nginx; ends the bench if nginx has logged severe errors."""
        if not os.path.exists(self.dir):
            return

        super().stop()

        with open(self.log) as f:
            bad = [s for s in f if re.search(r"\[(alert|crit|emerg)\]", s)
                   and not (self.expected and re.search(self.expected, s))]

        shutil.rmtree(self.dir, ignore_errors=True)

        if bad:
            raise SystemExit("severe errors in nginx's log:\n" + "".join(bad))

    def workers(self):
        return children(self.pid)

    def status(self):
        return json.loads(get(self.port, "/kvroute/json", self.address))

    def peers(self, upstream):
        return self.status()["upstreams"][upstream]["peers"]


class Engines(Process):
    """Emulated replicas on consecutive ports, with flags of t/engine."""

    def __init__(self, count, *flags, port=None):
        self.port = port or free_ports(count)
        self.ports = range(self.port, self.port + count)
        super().__init__([ENGINE, "--port", str(self.port), "--count",
                          str(count), *flags], stdout=subprocess.PIPE)

        if not self.process.stdout.readline():
            raise SystemExit("the engine has ended")

    def servers(self, *params):
        """Returns "server" directives for an upstream, with these
        parameters."""
        return servers(self.ports, *params)

    def control(self, what):
        for port in self.ports:
            request(port, "POST", "/control", what)


class Fork(Process):
    """A function that runs in a process of its own."""

    def __init__(self, function, *args):
        self.pid = os.fork()

        if self.pid == 0:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                function(*args)
            finally:
                os._exit(0)

        atexit.register(self.stop)

    def stop(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        atexit.unregister(self.stop)


def servers(ports, *params):
    return " ".join("server %s;" % " ".join(("127.0.0.1:%d" % p, *params))
                    for p in ports)


def wait(what, seconds=180, process=None):
    """Calls what() until it returns something true; returns that.  Network and
    value errors count as nothing."""
    end = time.monotonic() + seconds

    while time.monotonic() < end:
        if process and process.process.poll() is not None:
            raise SystemExit("%s has ended" % process.process.args[0])
        try:
            value = what()
            if value:
                return value
        except (OSError, ValueError, http.client.HTTPException):
            pass
        time.sleep(0.02)

    raise SystemExit("timed out")


def listening(port, address="127.0.0.1"):
    socket.create_connection((address, port), 1).close()
    return True


def request(port, method, path, body=None, address="127.0.0.1"):
    """Returns the status, the body, and the time to the first byte of the
    body."""
    c = http.client.HTTPConnection(address, port, timeout=120)
    start = time.monotonic()

    try:
        c.request(method, path, body and json.dumps(body),
                  {"Content-Type": "application/json"})
        r = c.getresponse()
        data = r.read(1)
        first = time.monotonic() - start
        return r.status, data + r.read(), first
    finally:
        c.close()


def get(port, path, address="127.0.0.1"):
    return request(port, "GET", path, address=address)[1]


def children(pid):
    try:
        with open("/proc/%d/task/%d/children" % (pid, pid)) as f:
            return [int(c) for c in f.read().split()]
    except OSError:
        return []


def family(pid):
    return [pid] + [p for c in children(pid) for p in family(c)]


def cpu(*pids):
    """Returns the CPU seconds of processes and their children, all threads."""
    total = 0

    for p in (q for pid in pids for q in family(pid)):
        for tid in os.listdir("/proc/%d/task" % p):
            try:
                with open("/proc/%d/task/%s/schedstat" % (p, tid)) as f:
                    total += int(f.read().split()[0])
            except (OSError, IndexError):
                pass

    return total / 1e9


def memory(*pids, what="Pss_Anon"):
    """Returns the memory of processes and their children, by a field of
    smaps."""
    total = 0

    for p in (q for pid in pids for q in family(pid)):
        with open("/proc/%d/smaps_rollup" % p) as f:
            total += 1024 * int(re.search(what + r": *(\d+)", f.read())[1])

    return total


def instructions(run, of=None):
    """Returns the instructions that callgrind counts for a command.  run() gets
    the prefix, starts the command and ends it.  The kernel's part is not
    counted. of: count only objects with this in their names."""
    with tempfile.TemporaryDirectory() as folder:
        run(("valgrind", "-q", "--tool=callgrind",
             "--callgrind-out-file=%s/out" % folder))
        with open(folder + "/out") as f:
            text = f.read()
            return own(text, of) if of else totals(text)


def totals(text):
    """Returns all instructions in a callgrind file."""
    return int(re.search(r"^(?:summary|totals): (\d+)", text, re.M)[1])


def own(text, of):
    """Returns the instructions in objects whose names contain "of"."""
    names, inside, skip, n = {}, False, False, 0

    for line in text.splitlines():
        found = re.match(r"(c?)ob=\((\d+)\)(?: (.*))?$", line)
        if found:
            if found[3]:
                names[found[2]] = found[3]
            if not found[1]:
                inside = of in names[found[2]]
        elif line.startswith("calls="):
            skip = True
        elif re.match(r"[+*\-\d]", line):
            n += 0 if skip or not inside else int(line.split()[1])
            skip = False

    return n


def quantile(values, share):
    """Returns a quantile, computed as in the simulator."""
    v = sorted(values)
    return v[math.floor(share * (len(v) - 1) + 0.5)] if v else None


def machine():
    with open("/proc/cpuinfo") as f:
        found = re.search(r"model name\s*:\s*(.*)", f.read())
    return "%s, %d cores" % (found[1] if found else os.uname().machine,
                             os.cpu_count())


def save(path, result):
    """Writes a result as JSON."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)

    with open(path, "w") as f:
        json.dump(result, f, indent=2)
        f.write("\n")


def merge(path, **parts):
    """Replaces members of a JSON file that several commands write."""
    try:
        with open(path) as f:
            whole = json.load(f)
    except (OSError, ValueError):
        whole = {}

    save(path, dict(whole, **parts))
