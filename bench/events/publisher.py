"""Publishers of KV events that send one valid event each, and then nothing.

    publisher.py PORT...
"""

import socket
import struct
import sys
import threading

GREETING = b"\xff" + b"\0" * 8 + b"\x7f\x03\x01NULL" + b"\0" * 48
READY = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 3) + b"PUB"

# [0.0, [["BlockStored", [5], None, 16 tokens, 16, None]], 0]
BATCH = (b"\x93\xcb" + b"\0" * 8 + b"\x91\x96\xabBlockStored\x91\x05\xc0"
         b"\xdc\0\x10" + b"\1" * 16 + b"\x10\xc0" + b"\0")


def frame(flags, data):
    return bytes([flags, len(data)]) + data


def read(conn, n):
    data = b""

    while len(data) < n:
        piece = conn.recv(n - len(data))
        if not piece:
            raise EOFError
        data += piece

    return data


def read_frame(conn):
    flags, n = read(conn, 2)

    if flags & 2:
        n = struct.unpack(">Q", bytes([n]) + read(conn, 7))[0]

    return read(conn, n)


def speak(conn):
    try:
        conn.sendall(GREETING)
        read(conn, len(GREETING))
        conn.sendall(frame(4, READY))
        read_frame(conn)
        conn.sendall(frame(1, b"") + frame(1, b"\0" * 8) + frame(0, BATCH))

        while True:
            said = read_frame(conn)
            if said.startswith(b"\x04PING"):
                conn.sendall(frame(4, b"\x04PONG" + said[7:]))
    except (EOFError, OSError):
        pass


def listen(port):
    server = socket.create_server(("127.0.0.1", port), reuse_port=False)

    while True:
        conn = server.accept()[0]
        threading.Thread(target=speak, args=(conn,), daemon=True).start()


if __name__ == "__main__":
    for number in sys.argv[1:]:
        threading.Thread(target=listen, args=(int(number),), daemon=True).start()

    threading.Event().wait()
