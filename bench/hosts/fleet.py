"""Engines, a store, and nginx hosts before them, each in its own network
namespace."""

import base64
import os
import signal
import subprocess
import tempfile
import time

from net import Net
from places import ENGINE
from ports import free_ports
from rig import Nginx, Process, wait
from store import Relay, Store
from work import KINDS

HTTP = """
    kvroute_zone zone=llm:32m key_file=@key@ @zone@;
    @share@
    upstream llm {
        zone servers 256k;
        kvroute kv_cache zone=llm;
        @servers@
        keepalive 64;
        keepalive_timeout 4s;       # engines close idle connections after 5
    }
    server {
        listen @address@:@port@;
        location / {
            client_max_body_size 64m;
            client_body_buffer_size 1m;
            proxy_buffering off;
            add_header X-Peer $upstream_addr;
            proxy_pass http://llm;
        }
        location /kvroute/ { kvroute_status; }
    }
"""

SHARE = ("kvroute_share zone=llm server=redis://%s:%d name=%s %s;")


class Host(Nginx):
    """One of several nginx hosts."""

    def __init__(self, fleet, name, mode, key=None, port=None, prefix=(),
                 zone="", share=""):
        self.name, self.mode = name, mode
        self.fleet = fleet

        if mode == "home":
            zone += " hosts=%d" % max(2, fleet.count)

        directive = ""

        if mode == "shared":
            directive = SHARE % (fleet.store.address if port is None
                                 else fleet.outside,
                                 port or fleet.store.port, name, share)

        super().__init__(
            HTTP, within=(*fleet.net.within(name), *prefix),
            address=fleet.net.where(name), key=key or fleet.key,
            zone=zone, share=directive, servers=fleet.servers,
            expected=r"kvroute_share|bind\(\)|was killed|exited on signal",
            folder=fleet.place(name))

    def share(self):
        return self.status()["zones"]["llm"]["share"]

    def elsewhere(self):
        return sum(p.get("elsewhere", 0) for p in self.peers("llm"))

    def kill(self):
        """Kills the master and the workers at once, like a power failure."""
        pids = [self.pid] + self.workers()
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()


class Fleet:
    """The fleet of one case; it is stopped with the case."""

    def __init__(self, count, mode, kind, places=12, plain=False, speed=None,
                 start=None):
        k = KINDS[kind]
        names = ["h%d" % i for i in range(places)] + ["e", "s"]

        self.net = Net(names, plain)
        self.count, self.mode, self.kind = count, mode, kind
        self.outside = (self.net.subnet + "1" if self.net.spaces
                        else "127.0.0.1")
        self.hosts, self.store, self.number = [], None, 0

        self.folder = tempfile.mkdtemp(prefix="kvroute-hosts-")
        os.chmod(self.folder, 0o755)

        self.key = self.make_key("key")

        port = free_ports(k["replicas"])
        where = self.net.where("e")

        self.engines = Process(
            [*self.net.within("e"), ENGINE, "--host", where, "--port",
             str(port), "--count", str(k["replicas"]), "--hardware",
             k["hardware"], "--speed", str(speed or k["speed"]),
             "--enable-prompt-tokens-details"], stdout=subprocess.PIPE)

        if not self.engines.process.stdout.readline():
            raise SystemExit("the engine has ended")

        self.servers = " ".join("server %s:%d max_fails=0;" % (where, p)
                                for p in range(port, port + k["replicas"]))

        if mode == "shared":
            self.store = Store(self.net, "s")

        for i in range(count if start is None else start):
            self.add("h%d" % i)

        if mode == "shared" and self.hosts:
            self.works()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.stop()

    def place(self, name):
        """Returns a folder for an nginx."""
        self.number += 1
        path = os.path.join(self.folder, "%s-%d" % (name, self.number))
        os.mkdir(path)
        return path

    def make_key(self, name):
        path = os.path.join(self.folder, name)

        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as f:
            f.write(base64.b64encode(os.urandom(192)))

        return path

    def add(self, name, **kw):
        host = Host(self, name, kw.pop("mode", self.mode), **kw)
        self.hosts.append(host)
        return host

    def works(self, hosts=None):
        """Returns the seconds until each host reads back its own batches, and
        all hosts know each other."""
        hosts = hosts or self.hosts
        began = time.monotonic()

        wait(lambda: all(h.share()["up"]
                         and sum(o["alive"] for o in h.share()["hosts"])
                         >= len(hosts) - 1 for h in hosts), seconds=30)

        return time.monotonic() - began

    def relay(self):
        return Relay(self.outside, (self.store.address, self.store.port))

    def stop(self):
        for h in self.hosts:
            h.stop()
        if self.store:
            self.store.stop()
        self.engines.stop()
        self.net.stop()
        subprocess.run(["rm", "-rf", self.folder], check=False)
