"""make bench-budget: three tenants at 1, 1 and 10 times their budget.

Emulated engines that compute at once, nginx with 4 workers, and for each tenant
clients that send new prompts at a fixed pace and do not retry.  Parts:

    rate        three tenants send at 1, 1 and 10 times the rate for a minute;
                prints the tokens that engines computed for each, over its rate
    hosts       the same through 4 hosts, each with a quarter of the rate and the
                whole burst; each request goes to a random host
    cached      a tenant with a budget and one without send cached prompts; prints
                the requests per second of each
    killed      a tenant sends at 3 times the rate, and each second a worker is
                killed; prints the computed tokens over the rate, and the
                difference in requests
    cost        instructions per request: without the module, with the module but
                no directive (in total, and in the module), and with a budget

Prints the results and writes build/bench/budget.json.

    SECONDS=60 RATE=20000       seconds of the part "rate", and tokens per second
    PARTS="rate cached"         runs these parts only
"""

import http.client
import json
import os
import random
import re
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../common"))

from places import modules  # noqa: E402
from rig import (RESULTS, Engines, Nginx, instructions, machine,  # noqa: E402
                 request, save, wait)

SECONDS = float(os.environ.get("SECONDS") or 60)
RATE = float(os.environ.get("RATE") or 20000)
PARTS = (os.environ.get("PARTS") or "rate hosts cached killed cost").split()

WORKERS = 4
HOSTS = 4
TOKENS = 1000                   # tokens in a prompt, about
BURST = 1                       # burst, as seconds of the rate

HTTP = """
    kvroute_zone zone=llm:32m;
    client_body_buffer_size 1m;
    upstream llm {
        zone llm_peers 256k;
        kvroute kv_cache zone=llm;
        @servers@
        keepalive 64;
    }
    server {
        listen 127.0.0.1:@port@ backlog=1024;
        location / { @budget@ proxy_pass http://llm; }
        location /free/ { proxy_pass http://llm/; }
        location /kvroute/ { kvroute_status; }
    }
"""


def budget(rate, hosts=1):
    """Each host gets its part of the rate, and the whole burst."""
    return ("kvroute_budget $http_x_key zone=llm rate=%d/s burst=%d;"
            % (rate / hosts, rate * BURST))


def body(seed):
    words = random.Random(seed)
    text = " ".join("%08x" % words.getrandbits(32)
                    for _ in range(4 * TOKENS // 9))
    return json.dumps({"model": "m", "max_tokens": 1, "messages": [
        {"role": "user", "content": text}]})


class Client(threading.Thread):
    """Sends a tenant's prompts one after another, pace of them per second, or as
    fast as answers arrive if pace is None.  Each goes to a random one of the
    ports."""

    def __init__(self, port, key, pace, same=False, path=""):
        super().__init__(daemon=True)
        self.ports = port if isinstance(port, list) else [port]
        self.key, self.pace, self.path = key, pace, path
        self.same = same
        self.tokens = []        # (time, computed tokens) of each answer
        self.rejected = self.lost = 0
        self.over = False
        self.start()

    def run(self):
        open_, n, r = {}, 0, random.Random(repr((self.key, id(self))))
        due = time.monotonic() + r.random() / (self.pace or 1)
        fixed = body(self.key)

        while not self.over:
            if self.pace:
                time.sleep(max(0, due - time.monotonic()))
                due = max(due + 1 / self.pace, time.monotonic() - 1)
            n += 1
            text = fixed if self.same else body("%s %d %d" % (self.key, id(self), n))
            try:
                port = r.choice(self.ports)
                c = open_.setdefault(port, http.client.HTTPConnection(
                    "127.0.0.1", port, timeout=30))
                c.request("POST", self.path + "/v1/chat/completions", text,
                          {"Content-Type": "application/json",
                           "X-Key": self.key})
                answer = c.getresponse()
                data = answer.read()
            except (OSError, http.client.HTTPException):
                open_.pop(port, None)
                self.lost += 1
                continue
            if answer.status == 429:
                self.rejected += 1
            elif answer.status == 200:
                usage = json.loads(data)["usage"]
                hit = (usage.get("prompt_tokens_details") or {}).get(
                    "cached_tokens", 0)
                self.tokens.append((time.monotonic(),
                                    usage["prompt_tokens"] - hit))


def end(clients):
    for c in clients:
        c.over = True
    for c in clients:
        c.join()


def computed(clients, key, since=0):
    return sum(n for c in clients if c.key == key
               for at, n in c.tokens if at >= since)


def start(rate, hosts=1, **kw):
    engines = Engines(4, "--hardware", "none", "--model", "m",
                      "--enable-prompt-tokens-details")
    nginx = Nginx(HTTP, workers=WORKERS, servers=engines.servers("max_fails=0"),
                  budget=budget(rate, hosts) if rate else "", **kw)
    return engines, nginx


def size(port):
    """Returns the number of tokens in a prompt."""
    return json.loads(request(port, "POST", "/free/v1/chat/completions",
                              json.loads(body(0)))[1])["usage"]["prompt_tokens"]


def rate(hosts=1):
    """Once a tenant has used its burst, engines compute its rate for it."""
    engines, nginx = start(RATE, hosts)
    more = [Nginx(HTTP, workers=WORKERS, servers=engines.servers("max_fails=0"),
                  budget=budget(RATE, hosts)) for _ in range(hosts - 1)]
    pace = RATE / size(nginx.port)
    ports = [n.port for n in (nginx, *more)]
    clients = [Client(ports, key, pace * times / 4)
               for key, times in (("one", 1), ("two", 1), ("ten", 10))
               for _ in range(4)]

    time.sleep(5 * BURST)
    since = time.monotonic()
    time.sleep(SECONDS)
    took = time.monotonic() - since
    end(clients)

    found = {key: round(computed(clients, key, since) / took / RATE, 4)
             for key in ("one", "two", "ten")}
    found["error"] = max(abs(share - 1) for share in found.values())
    found["offered"] = round(sum(len(c.tokens) + c.rejected for c in clients
                                 if c.key == "ten")
                             / (took + 5 * BURST) / pace, 2)
    found["rejected"] = sum(c.rejected for c in clients)

    for n in (nginx, *more):
        n.stop()
    engines.stop()
    return found


def hosts():
    return rate(HOSTS)


def cached():
    """Clients repeat one prompt, far above the rate."""
    engines, nginx = start(RATE)
    found = {}
    tokens = size(nginx.port)

    for name, path in (("budget", ""), ("free", "/free")) * 3:
        clients = [Client(nginx.port, "k", None, same=True, path=path)
                   for _ in range(2)]
        time.sleep(4)
        end(clients)
        found.setdefault(name, []).append(sum(len(c.tokens) for c in clients) / 4)
        found["rejected"] = found.get("rejected", 0) + sum(c.rejected
                                                           for c in clients)

    nginx.stop()
    engines.stop()
    return {"budget": max(found["budget"]), "free": max(found["free"]),
            "share": round(max(found["budget"]) / max(found["free"]), 3),
            "rejected": found["rejected"],
            "prompt_tokens_over_rate":
                round(max(found["budget"]) * tokens / RATE, 1)}


def killed():
    """The account has paid what engines computed, except for requests that were
    lost with their worker."""
    engines, nginx = start(RATE, expected=r"exited on signal 9")
    tokens = size(nginx.port)
    clients = [Client(nginx.port, "k", RATE / tokens * 3 / 8) for _ in range(8)]
    kills = 0

    time.sleep(2)
    since = time.monotonic()
    while time.monotonic() - since < SECONDS / 3:
        time.sleep(1)
        os.kill(random.choice(nginx.workers()), signal.SIGKILL)
        kills += 1
        wait(lambda: len(nginx.workers()) == WORKERS)
    took = time.monotonic() - since
    end(clients)

    used = computed(clients, "k", since)
    found = {"kills": kills, "lost": sum(c.lost for c in clients),
             "share_of_rate": round(used / took / RATE, 4),
             "requests_off": round((used - RATE * took) / tokens, 1)}

    nginx.stop()
    engines.stop()
    return found


def cost():
    """Counts instructions per request, by the difference of two runs."""
    others = [m for m in modules() if "budget" not in os.path.basename(m)]

    def count(load, text, n, of=None):
        def run(prefix):
            engines = Engines(2, "--hardware", "none", "--model", "m")
            nginx = Nginx(HTTP, load=load, prefix=prefix, budget=text,
                          servers=engines.servers())
            c = http.client.HTTPConnection("127.0.0.1", nginx.port, timeout=120)
            for i in range(n):
                c.request("POST", "/v1/chat/completions", body(i % 4),
                          {"Content-Type": "application/json", "X-Key": "k"})
                c.getresponse().read()
            c.close()
            nginx.stop()
            engines.stop()
        return instructions(run, of)

    def each(load, text, of=None):
        return round((count(load, text, 440, of) - count(load, text, 40, of))
                     / 400)

    return {"without": each(others, ""),
            "no_limit": each(modules(), ""),
            "no_limit_in_module": each(modules(), "", "kvroute_budget"),
            "budget": each(modules(), budget(1000000))}


def main():
    result = {"machine": machine(), "workers": WORKERS, "rate": RATE,
              "seconds": SECONDS}

    for part in PARTS:
        result[part] = {"rate": rate, "hosts": hosts, "cached": cached, "killed": killed,
                        "cost": cost}[part]()
        print("%-7s %s" % (part, re.sub(r'[{}"]', "", json.dumps(result[part]))),
              flush=True)
        save(os.path.join(RESULTS, "budget.json"), result)


main()
