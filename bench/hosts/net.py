"""Several machines on one machine: network namespaces on a bridge, or loopback
addresses if namespaces are not allowed."""

import atexit
import os
import subprocess


def ip(*args, check=True):
    return subprocess.run(["ip", *args], check=check,
                          stderr=subprocess.DEVNULL).returncode == 0


class Net:
    """Named machines: where(name) is the address of one, within(name) a prefix
    that runs a command there."""

    def __init__(self, names, plain=False):
        n = os.getpid() % 250 + 1

        self.names = list(names)
        self.bridge = "kvb%d" % n
        self.subnet = "10.231.%d." % n
        self.spaces = False

        atexit.register(self.stop)

        if not plain:
            try:
                self.build()
                self.spaces = True
            except (OSError, subprocess.CalledProcessError):
                self.stop()

    def build(self):
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", self.subnet + "1/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")

        for i, name in enumerate(self.names):
            space, veth = self.space(name), "%s.%d" % (self.bridge, i)

            ip("netns", "add", space)
            ip("link", "add", veth, "type", "veth", "peer", "name", "eth0",
               "netns", space)
            ip("link", "set", veth, "master", self.bridge, "up")
            ip("-n", space, "addr", "add", "%s%d/24" % (self.subnet, i + 10),
               "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")

    def space(self, name):
        return "%s-%s" % (self.bridge, name)

    def within(self, name):
        return ("ip", "netns", "exec", self.space(name)) if self.spaces else ()

    def where(self, name):
        i = self.names.index(name)
        return (self.subnet + str(i + 10) if self.spaces
                else "127.0.77.%d" % (i + 10))

    def stop(self):
        for name in self.names:
            ip("netns", "del", self.space(name), check=False)
        ip("link", "del", self.bridge, check=False)
        atexit.unregister(self.stop)
