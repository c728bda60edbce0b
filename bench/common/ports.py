"""Free ports for engines and nginx."""

import random
import socket


def free_ports(n):
    """Returns the first of n consecutive ports that nobody listens on.

    They are below the range that the kernel uses for clients.
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
