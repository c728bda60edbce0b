"""Ports for engines and nginx of a bench."""

import random
import socket


def free_ports(n):
    """The first of n ports in a row that nobody listens on.

    They are below those that the kernel gives to clients.
    """
    for _ in range(1000):
        first = random.randrange(11000, 30000)
        held = []
        try:
            for port in range(first, first + n):
                s = socket.socket()
                s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                held.append(s)
                s.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for s in held:
                s.close()
    raise SystemExit("no free ports")
