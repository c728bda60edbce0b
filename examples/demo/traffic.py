"""The demo's traffic: coding agents that call tools.

Each session is a conversation that grows: the system prompt and the tools
that all agents share, a task, then turn by turn what the model asked for and
what the tool gave back.  The model's words are scripted, as in a replayed
trace, so that every policy is given the same requests.
"""

import http.client
import json
import random
import threading
import time

from model import WORDS

# All sessions begin at once, as agents do that another one sends out.  They
# are 4 to an engine, which has room for 5: routed well, none is forgotten.

SESSIONS = 12
TURNS = 7
SEEDS = [1, 2, 3]       # of the sessions' order and pauses
FORK = 3                # turn from which a sub-agent goes on, in play(forks)

TASK = 4500             # bytes of a task
RESULT = (900, 1200)    # bytes of a tool's result, from to
MAX_TOKENS = 8          # of a reply

THINK = (0.3, 0.6)      # seconds of a tool's work between two turns, from to
THINK_REPLIES = (6, 12) # the same in replies to a new prompt, if that is less
TIMEOUT = 300           # seconds

SYSTEM = """\
you are a coding agent. work on the task you are given, one step at a time. \
look for what you need with the tools, run the test, until it is done."""


def tool(name, description, parameter):
    """The description of a tool as clients send it."""
    return {"type": "function", "function": {
        "name": name,
        "description": description,
        "parameters": {"type": "object",
                       "properties": {parameter: {"type": "string"}}}}}


TOOLS = [
    tool("read_file", "read a file", "path"),
    tool("search", "find the lines with a string", "string"),
    tool("run", "run a command", "command"),
]


class Session:
    """A conversation: the messages of its turns, the pauses after them."""

    def __init__(self, number, seed, prefix="", think=THINK):
        pauses = random.Random("%d/%d" % (number, seed))
        words = random.Random(number)

        self.number = number
        self.pauses = [pauses.uniform(*think) for _ in range(TURNS)]
        self.turns = []

        task = "task %d: fix the %s.\n" % (number, words.choice(WORDS))
        messages = [
            {"role": "system", "content": prefix + SYSTEM},
            {"role": "user", "content": task + code(words, TASK)},
        ]

        for turn in range(TURNS):
            self.turns.append(list(messages))

            call = "call_%d_%d" % (number, turn)
            path = json.dumps({"path": name(words) + ".c"})

            messages += [
                {"role": "assistant", "content": "look at it", "tool_calls": [
                    {"id": call, "type": "function", "function": {
                        "name": "read_file", "arguments": path}}]},
                {"role": "tool", "tool_call_id": call,
                 "content": code(words, words.randint(*RESULT))},
            ]


def name(words):
    return words.choice(WORDS) + "_" + words.choice(WORDS)


def code(words, size):
    """Something like source code, of about that many bytes."""
    lines = []

    while size > 0:
        lines.append("    %s(%s, %s);" % (name(words), name(words),
                                          name(words)))
        size -= len(lines[-1]) + 1

    return "\n".join(lines)


class Result:
    """What became of one request."""

    def __init__(self, request_id, session):
        self.id = request_id
        self.session = session
        self.error = None
        self.engine = None
        self.latency = None
        self.ttft = None
        self.prompt_tokens = 0
        self.cached_tokens = None       # unless the engine reports them
        self.ideal = 0


class Agent:
    """Plays a session over a connection of its own."""

    def __init__(self, address, model, session, label, forks=False):
        self.forks = forks
        self.connection = http.client.HTTPConnection(address, timeout=TIMEOUT)
        self.model = model
        self.session = session
        self.label = label
        self.results = []

    def play(self):
        known = 0

        for turn, messages in enumerate(self.session.turns):
            result = Result("%s-%d-%d" % (self.label, self.session.number,
                                          turn), self.session.number)
            self.results.append(result)

            try:
                self.ask(messages, result,
                         "fork" if self.forks and turn >= FORK else "session")

            except (OSError, http.client.HTTPException, ValueError,
                    LookupError) as e:
                result.error = "%s: %s" % (type(e).__name__, e)
                break

            # the prompt of a turn begins with the whole prompt of the last
            # one: this much of it, and no more, the session has sent before

            result.ideal = known
            known = result.prompt_tokens

            time.sleep(self.session.pauses[turn])

        self.connection.close()

    def ask(self, messages, result, session="session"):
        """Sends a request and reads the stream that answers it."""
        body = json.dumps({
            "model": self.model,
            "messages": messages,
            "tools": TOOLS,
            "max_tokens": MAX_TOKENS,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        })
        headers = {
            "Content-Type": "application/json",
            "X-Request-Id": result.id,
            "X-Session-Id": "%s-%d" % (session, result.session),
        }

        start = time.monotonic()

        self.connection.request("POST", "/v1/chat/completions", body, headers)
        response = self.connection.getresponse()

        # nginx's $upstream_addr, of the last engine if it has tried several

        result.engine = response.getheader("X-Engine", "").split(", ")[-1]

        if response.status != 200:
            raise ValueError("%d %s" % (response.status, response.read(200)))

        usage = {}

        for event in events(response):
            if result.ttft is None and event.get("choices"):
                result.ttft = time.monotonic() - start

            usage = event.get("usage") or usage

        result.latency = time.monotonic() - start
        result.prompt_tokens = usage["prompt_tokens"]

        details = usage.get("prompt_tokens_details") or {}
        result.cached_tokens = details.get("cached_tokens")


def events(response):
    """The events of a stream, up to the one that ends it."""
    for line in response:
        if line.startswith(b"data:"):
            data = line[5:].strip()

            if data == b"[DONE]":
                response.read()
                return

            event = json.loads(data)
            if "error" in event:
                raise ValueError(event["error"])

            yield event

    raise ValueError("the stream was cut short")


def think(address, model, prefix=""):
    """How long tools work.  Engines on a fast machine are asked as often as
    they can be kept busy, or there would be nothing to route well."""
    times = []

    for n in range(5):
        session = Session(SESSIONS + n, 0, prefix)
        agent = Agent(address, model, session, "think")
        result = Result(agent.label, session.number)

        agent.ask(session.turns[0], result)
        agent.connection.close()
        times.append(result.latency)

    reply = sorted(times)[2]

    return tuple(min(t, n * reply) for t, n in zip(THINK, THINK_REPLIES))


def play(address, model, seed, label, prefix="", progress=None, think=THINK,
         forks=False):
    """Plays all sessions in the order of that seed; returns the results.  With
    forks a sub-agent takes over each conversation, with a session id of its
    own and all that was said before."""
    sessions = [Session(n, seed, prefix, think) for n in range(SESSIONS)]
    random.Random(seed).shuffle(sessions)

    agents = [Agent(address, model, session, label, forks)
              for session in sessions]
    threads = [threading.Thread(target=a.play, daemon=True) for a in agents]

    for thread in threads:
        thread.start()

    while any(thread.is_alive() for thread in threads):
        time.sleep(0.1)
        if progress:
            progress(sum(len(a.results) for a in agents), SESSIONS * TURNS)

    return [result for agent in agents for result in agent.results]
