"""The store (Redis or Valkey), and a relay between it and the hosts.  The relay
can add delay, limit the rate, lose packets, or switch to another store."""

import os
import random
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

from ports import free_ports
from rig import Process, wait

PROGRAM = (os.environ.get("KVROUTE_REDIS") or shutil.which("valkey-server")
           or shutil.which("redis-server"))


class Store(Process):
    """A store without files on disk, at the address of a name in the network."""

    def __init__(self, net, name, port=None, *args):
        if PROGRAM is None:
            raise SystemExit("neither valkey-server nor redis-server was found")

        self.net, self.name, self.args = net, name, args
        self.address = net.where(name)
        self.port = port or free_ports(1)
        self.password = None
        self.folder = tempfile.mkdtemp(prefix="kvroute-store-")
        self.start()

    def start(self, *more):
        super().__init__([*self.net.within(self.name), PROGRAM, "--bind",
                          self.address, "--port", str(self.port),
                          "--protected-mode", "no", "--save", "", "--dir",
                          self.folder, *self.args, *more])
        wait(lambda: self.command("PING"), process=self)

    def stop(self):
        super().stop()
        if os.path.isdir(self.folder):
            shutil.rmtree(self.folder)

    def kill(self, how=signal.SIGKILL):
        self.process.send_signal(how)
        if how == signal.SIGKILL:
            self.process.wait()

    def command(self, *words):
        """Sends a command and returns the first bytes of its answer."""
        with socket.create_connection((self.address, self.port), 2) as s:
            if self.password:
                self.say(s, "AUTH", self.password)
            return self.say(s, *words)

    @staticmethod
    def say(s, *words):
        s.sendall(b"*%d\r\n" % len(words) + b"".join(
            b"$%d\r\n%s\r\n" % (len(w), w.encode()) for w in words))
        answer = s.recv(1 << 16)

        if answer[:1] == b"-":
            raise OSError(answer.decode())

        return answer


# s; delay by a lost packet: the kernel's shortest wait before it sends again

AGAIN = 0.2


class Relay(threading.Thread):
    """Passes bytes in both directions, after a delay and at a limited rate.  A
    lost piece is sent again, and later pieces wait for it."""

    def __init__(self, address, target):
        super().__init__(daemon=True)
        self.target = target              # address and port
        self.delay, self.rate = 0, 0      # s, bytes/s
        self.loss = 0                     # share of pieces that are lost
        self.pairs = []
        self.listener = socket.create_server((address, 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        while True:
            c, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def serve(self, c):
        try:
            s = socket.create_connection(self.target, 2)
        except OSError:
            c.close()
            return

        for x in (c, s):
            x.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        self.pairs.append((c, s))
        queue, free = [], {c: 0, s: 0}

        try:
            while True:
                now = time.monotonic()
                left = max(0, queue[0][0] - now) if queue else 1

                for x in select.select([c, s], [], [], left)[0]:
                    data = x.recv(1 << 16)
                    if not data:
                        return

                    now = time.monotonic()
                    at = max(now, free[x])
                    if self.rate:
                        free[x] = at = at + len(data) / self.rate
                    if self.loss and random.random() < self.loss:
                        free[x] = at = at + AGAIN + self.delay
                    queue.append((at + self.delay, s if x is c else c, data))
                    queue.sort(key=lambda q: q[0])

                while queue and queue[0][0] <= time.monotonic():
                    _, x, data = queue.pop(0)
                    x.sendall(data)
        except (OSError, ValueError):
            pass
        finally:
            c.close()
            s.close()

    def lead(self, target):
        """Switches to another store, and closes all connections."""
        self.target = target
        pairs, self.pairs = self.pairs, []

        for pair in pairs:
            for x in pair:
                try:
                    x.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
