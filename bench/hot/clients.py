"""Streaming clients: texts, a single request, and many at given times."""

import http.client
import json
import random
import select
import socket
import threading
import time

TICK = 0.005            # s, resolution of the time at which a stream ends


def text(seed, size):
    """Returns this many bytes; each seed gives a different text."""
    words = random.Random(seed)
    made = []
    have = 0

    while have < size:
        made.append("%x " % words.getrandbits(32))
        have += len(made[-1])

    return "".join(made)[:size]


def body(messages, tokens):
    return json.dumps({"model": "emulated", "stream": True,
                       "stream_options": {"include_usage": True},
                       "max_tokens": tokens, "ignore_eos": True,
                       "messages": messages}).encode()


def ask(port, data, headers={}):
    """Answer: seconds to the first token and to the end, server, usage,
    words."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    start = time.monotonic()
    first = usage = None
    words = []

    connection.request("POST", "/v1/chat/completions", data,
                       dict(headers, **{"Content-Type": "application/json"}))
    response = connection.getresponse()

    if response.status != 200:
        raise RuntimeError("status %d" % response.status)

    for line in response:
        if b'"content":"' in line and b'"content":""' not in line:
            if first is None:
                first = time.monotonic() - start
            words.append(json.loads(line[6:])["choices"][0]["delta"]
                         ["content"])
        elif b'"prompt_tokens"' in line:
            usage = json.loads(line[6:])["usage"]

    connection.close()

    return Answer(first, time.monotonic() - start,
                  response.getheader("X-Engine-Replica"), usage,
                  "".join(words))


def at_once(port, bodies):
    """Returns the answers to requests that are sent together, in their
    order."""
    answers, errors = [None] * len(bodies), []
    together = threading.Barrier(len(bodies))

    def client(i, data):
        together.wait()
        try:
            answers[i] = ask(port, data)
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=client, args=each)
               for each in enumerate(bodies)]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    if errors:
        raise SystemExit("%d requests failed: %s" % (len(errors), errors[0]))

    return answers


class Answer:
    def __init__(self, first, end, who, usage, words=""):
        self.first = first
        self.end = end
        self.who = who
        self.prompt = usage["prompt_tokens"]
        self.cached = (usage.get("prompt_tokens_details")
                       or {}).get("cached_tokens") or 0
        self.words = words


class Stream:
    """A request that the caller polls: cheap, because there are many."""

    def __init__(self, port, data):
        self.start = time.monotonic()
        self.first = self.end = None
        self.got = b""
        self.tail = b""

        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\n"
            b"Content-Type: application/json\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self.socket.setblocking(False)

    def read(self):
        """Reads what has arrived; returns whether the answer is complete."""
        while True:
            try:
                part = self.socket.recv(1 << 18)
            except BlockingIOError:
                return False

            if not part:
                self.end = time.monotonic()
                self.socket.close()
                return True

            if self.first is None:
                self.got += part
                at = self.got.find(b'"content":"')

                while at >= 0 and self.got[at + 11:at + 12] == b'"':
                    at = self.got.find(b'"content":"', at + 1)

                if at >= 0:
                    self.first = time.monotonic()

            self.tail = (self.tail + part)[-4096:]

    def answer(self):
        head = self.got.split(b"\r\n\r\n", 1)[0].decode()

        if not head.startswith("HTTP/1.1 200") or self.first is None:
            raise RuntimeError("failed: %s" % head[:100])

        at = self.tail.rindex(b'"usage":')
        usage = json.JSONDecoder().raw_decode(self.tail[at + 8:].decode())[0]
        who = [line.split(":", 1)[1].strip() for line in head.split("\r\n")
               if line.lower().startswith("x-engine-replica")]

        return Answer(self.first - self.start, self.end - self.start, who[0],
                      usage)


def play(port, due):
    """Sends each (seconds, data) at its time; returns the answers in that
    order."""
    begin = time.monotonic()
    streams, opened = [], []

    while len(streams) < len(due) or opened:
        now = time.monotonic() - begin

        while len(streams) < len(due) and due[len(streams)][0] <= now:
            streams.append(Stream(port, due[len(streams)][1]))
            opened.append(streams[-1])

        opened = [s for s in opened if not s.read()]

        # polls each tick, or waits while an answer without a token is due

        early = [s.socket for s in opened if s.first is None]
        select.select(early, [], [], TICK)

        if early:
            time.sleep(0.001)

    return [s.answer() for s in streams]
