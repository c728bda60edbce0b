"""A server in one process, whose event loop returns requests."""

import re
import selectors
import socket


def listen(sel, host, port, backlog):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((host, port))
    s.listen(backlog)
    sel.register(s, selectors.EVENT_READ, 'listen')


def requests(sel):
    """Yields (connection, head, body size) for each complete request.

    Other registered files are yielded when they are readable, with head None.
    """
    data = {}

    while True:
        for key, _ in sel.select():
            c = key.fileobj

            if key.data == 'listen':
                c, _ = c.accept()
                data[c] = b''
                sel.register(c, selectors.EVENT_READ, 'conn')
                continue

            if key.data != 'conn':
                yield c, None, 0
                continue

            try:
                new = c.recv(1 << 20)
            except OSError:
                new = b''

            if not new:
                sel.unregister(c)
                del data[c]
                c.close()
                continue

            data[c] += new
            head, end, body = data[c].partition(b'\r\n\r\n')
            if not end:
                continue

            found = re.search(rb'(?i)\ncontent-length: *(\d+)', head)
            size = int(found[1]) if found else 0

            if len(body) >= size:
                data[c] = body[size:]
                yield c, head, size
