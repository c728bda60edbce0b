#!/usr/bin/env python3
"""Screenshots of the status page with eight emulated engines: a good day, and a
scene for each incident.  The documentation's are written to docs/img/page.png
and docs/img/page-SCENE.png, the others to build/page/SCENE.png.

    make screenshots [SCENES="page fails slow gone rejected ..."] [LOOK=45]

Each scene has its own engines and nginx.  Chats run for LOOK seconds before the
page is opened, in Debian's chromium by playwright-core.  If the page does not
name the incident, its time and the remedy, the script reports an error and takes
no picture.  Environment: MODULE, NGINX_BIN, CHROMIUM, NODE_PATH.
"""

import http.client
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))

for folder in ("hot", "common"):
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), folder))

from clients import ask, body, text  # noqa: E402
from places import BUILD, ROOT  # noqa: E402
from ports import free_ports  # noqa: E402
from rig import Engines, Nginx, request, servers  # noqa: E402

LOOK = float(os.environ.get("LOOK") or 45)
ENGINES = 8
SYSTEMS = 3             # kinds of agents, each with a system prompt

HTTP = """
    kvroute_zone zone=llm:@zone@;
    @beside@
    upstream llm {
        zone llm_peers 256k;
        kvroute kv_cache zone=llm;
        @servers@
        kvroute_probe;
        kvroute_health interval=1s;
        @upstream@
    }
    server {
        listen 127.0.0.1:@port@;
        client_body_buffer_size 1m;
        location / {
            proxy_pass @scheme@://llm;
            proxy_buffering off;
            proxy_next_upstream error timeout http_503;
            @location@
        }
        location /kvroute/ { kvroute_status; }
        location /kvroute/api/ { kvroute_api write=on; }
    }
"""

# scenes: a pattern of the page's text, and what differs: number of clients,
# seconds between turns, number of engines, the fault of the last engine (for
# /control), parameters of servers, further configuration

NOT_UP = r"^1 of 8 servers not up: \S+ \(%s\)"
OUT = "ejected: "

TLS = """
    proxy_ssl_verify on;
    proxy_ssl_name engines;
    proxy_ssl_trusted_certificate @certs@/good.pem;
"""

SCENES = {
    "page": (r"^working: 8 of 8 servers up, ", {}),
    "fails": (NOT_UP % (OUT + "5xx"),
              {"fault": {"fault": "status=500"}}),
    "slow": (r" is slow: first tokens after \S+ m?s, elsewhere after \S+ m?s",
             {"fault": {"delay_ms": 2500}, "upstream": "kvroute_eject off;"}),
    "gone": (NOT_UP % "(unhealthy|ejected): connection refused",
             {"fault": {"down": True}}),
    "rejected": (r"^9\d% of requests rejected ",
                 {"clients": 64, "pause": 0, "engines": 2,
                  "params": ["max_conns=4"],
                  "upstream": "kvroute_queue max=40 timeout=3s;"}),
    "cap": (r"% of requests rejected .* every server is at max_conns=2, load is",
            {"clients": 48, "params": ["max_conns=2"],
             "upstream": "kvroute_queue max=4 timeout=1s;"}),
    "crawls": (NOT_UP % (OUT + "slow first tokens"),
               {"fault": {"replica_speed": 0.03}}),
    "starved": (r" gets \d+ requests in the last minute, | is slow: ",
                {"fault": {"replica_speed": 0.03},
                 "upstream": "kvroute_eject off;"}),
    "hangs": (NOT_UP % (OUT + "no response"),
              {"fault": {"fault": "hang"}, "clients": 96}),
    "silent": (r" does not respond: 1 in flight, and nothing has come",
               {"fault": {"fault": "hang"}, "clients": 1, "engines": 3}),
    "key": (NOT_UP % (OUT + "401 key rejected"),
            {"fault": {"fault": "status=401"}}),
    "model": (NOT_UP % (OUT + "404 model not found"),
              {"fault": {"fault": "status=404"}}),
    "certificate": (NOT_UP % "unhealthy: certificate expired",
                    {"scheme": "https", "location": TLS, "upstream":
                     "kvroute_engine ssl name=engines trusted=@certs@/good.pem;"}),
    "store": (r"^nothing is shared with other hosts: connection refused",
              {"zone": "16m key_file=@certs@/key",
               "beside": "kvroute_share zone=llm server=redis://127.0.0.1:1;"}),
    "metrics": (r"^old metrics, because the probe fails: ",
                {"fault": {"metrics": "404"}}),
    "drained": (r"^1 of 8 servers drained by the operator: ",
                {"api": "drain?peer=@last@"}),
    "crowded": (r"^4 of 8 servers without counters",
                {"zone": "16m max_peers=4"}),
    "full": (r"^the index is full", {"zone": "1m", "clients": 64, "pause": 0.2}),
}

SHOWN = "page fails slow gone rejected".split()


class Chats(threading.Thread):
    """A client: chats of a few turns, one after another."""

    def __init__(self, port, seed, pause, end):
        super().__init__(daemon=True)
        self.port, self.pause, self.end = port, pause, end
        self.random = random.Random(seed)

    def run(self):
        while not self.end.is_set():
            self.chat()

    def chat(self):
        rnd = self.random
        messages = [{"role": "system", "content":
                     text("system %d" % rnd.randrange(SYSTEMS), 6000)}]

        for turn in range(rnd.randint(3, 8)):
            messages.append({"role": "user",
                             "content": text(rnd.random(), 1500)})
            try:
                answer = ask(self.port, body(messages, rnd.randint(20, 90)))
            except (OSError, RuntimeError, http.client.HTTPException,
                    TypeError):
                answer = None

            if self.end.wait(self.pause * rnd.uniform(0.3, 1.7)
                             if answer else 0.1):
                return
            if answer is None:
                return

            messages.append({"role": "assistant", "content": answer.words})


def certificates(folder):
    """Makes good.pem, old.pem with the same name (expired), and a key_file."""
    for name, days in ("good", 9), ("old", -1):
        subprocess.run("openssl req -newkey rsa:2048 -nodes -subj /CN=engines "
                       "-keyout %s.key -out %s.csr; openssl x509 -req -days %d "
                       "-in %s.csr -signkey %s.key -out %s.pem"
                       % (name, name, days, name, name, name), shell=True,
                       check=True, cwd=folder, stderr=subprocess.DEVNULL)

    subprocess.run("head -c 192 /dev/urandom | base64 >key; chmod 600 key",
                   shell=True, check=True, cwd=folder)


def terminate(folder, ports):
    """Starts an nginx that speaks TLS for the engines; the last certificate has
    expired."""
    fronts = free_ports(len(ports))
    fronts = range(fronts, fronts + len(ports))
    front = Nginx("server { listen 127.0.0.1:@port@; }" + " ".join(
        "server { listen 127.0.0.1:%d ssl; ssl_certificate %s.pem; "
        "ssl_certificate_key %s.key; location / { proxy_buffering off; "
        "proxy_pass http://127.0.0.1:%d; } }"
        % (p, *[os.path.join(folder, "old" if e == ports[-1] else "good")] * 2, e)
        for p, e in zip(fronts, ports)), load=[])

    return front, fronts


def scene(name):
    says, has = SCENES[name]

    engines = Engines(has.get("engines", ENGINES), "--model", "emulated",
                      "--enable-prompt-tokens-details",
                      "--hardware", "devstral-24b-fp8-h100")
    folder = tempfile.mkdtemp(prefix="kvroute-page-")
    certificates(folder)

    front, ports = (terminate(folder, engines.ports) if "scheme" in has
                    else (None, engines.ports))

    nginx = Nginx(HTTP, workers=2, expected=None, certs=folder,
                  servers=servers(ports, *has.get("params", [])),
                  **{part: has.get(part, usual) for part, usual in
                     (("zone", "16m"), ("beside", ""), ("upstream", ""),
                      ("location", ""), ("scheme", "http"))})
    end = threading.Event()

    try:
        chats = [Chats(nginx.port, "%s %d" % (name, i), has.get("pause", 1), end)
                 for i in range(has.get("clients", 24))]
        for c in chats:
            c.start()

        time.sleep(LOOK / 3)

        if "fault" in has:
            request(engines.ports[-1], "POST", "/control", has["fault"])

        if "api" in has:
            request(nginx.port, "POST", "/kvroute/api/upstreams/llm/"
                    + has["api"].replace("@last@", "127.0.0.1:%d" % ports[-1]),
                    {})

        shot = (os.path.join(ROOT, "docs/img", "page-%s.png" % name)
                if name in SHOWN else os.path.join(BUILD, "page",
                                                   name + ".png"))
        shot = shot.replace("page-page", "page")
        os.makedirs(os.path.dirname(shot), exist_ok=True)

        subprocess.run(["node", os.path.join(HERE, "shot.js"),
                        "http://127.0.0.1:%d/kvroute/" % nginx.port, shot,
                        str(LOOK * 2 / 3), says], check=True)
        print("%s: %d requests" % (os.path.relpath(shot, ROOT),
                                   sum(p.get("requests", 0)
                                       for p in nginx.peers("llm"))), flush=True)
    finally:
        end.set()
        for c in chats:
            c.join(30)
        nginx.stop()
        if front:
            front.stop()
        engines.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    for name in (os.environ.get("SCENES") or " ".join(SCENES)).split():
        if name not in SCENES:
            sys.exit("no scene %s: there are %s" % (name, " ".join(SCENES)))
        scene(name)
