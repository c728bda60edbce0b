#!/usr/bin/env python3
"""Pictures of the status page, for the documentation: docs/img/page.png, a good
day with eight emulated engines, and docs/img/page-SCENE.png of each incident.

    make screenshots [SCENES="page fails slow gone rejected"] [LOOK=45]

Each scene has engines and an nginx of its own, and LOOK seconds of chats before
the page is looked at, in Debian's chromium by playwright-core.  There is no
picture, and an error, if the page does not say what has befallen it.
Environment: MODULE, NGINX_BIN, CHROMIUM, NODE_PATH.
"""

import http.client
import os
import random
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))

for folder in ("hot", "common"):
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), folder))

from clients import ask, body, text  # noqa: E402
from places import ROOT  # noqa: E402
from rig import Engines, Nginx, request  # noqa: E402

LOOK = float(os.environ.get("LOOK") or 45)
ENGINES = 8
SYSTEMS = 3             # kinds of agents, each with a system prompt

HTTP = """
    kvroute_zone zone=llm:16m;
    upstream llm {
        zone llm_peers 256k;
        kvroute kv_cache zone=llm;
        @servers@
        kvroute_probe;
        kvroute_health interval=1s;
        @more@
    }
    server {
        listen 127.0.0.1:@port@;
        client_body_buffer_size 1m;
        location / {
            proxy_pass http://llm;
            proxy_buffering off;
            proxy_next_upstream error timeout http_503;
        }
        location /kvroute/ { kvroute_status; }
    }
"""

# scene: clients, seconds between the turns of one, what befalls the last engine,
# what there is in the upstream besides, and what the page says

QUEUE = "kvroute_queue max=40 timeout=3s;"
NOT_UP = r"^1 of 8 servers not up: \S+ \(%s\)$"

SCENES = {
    "page": (24, 1.0, None, "", r"^working: 8 of 8 servers up, "),
    "fails": (24, 1.0, {"fault": "status=500"}, "", NOT_UP % "ejected"),
    "slow": (24, 1.0, {"delay_ms": 2500}, "kvroute_eject off;",
             r" is slow: first tokens after \S+ m?s, elsewhere after \S+ m?s$"),
    "gone": (24, 1.0, {"down": True}, "", NOT_UP % "unhealthy"),
    "rejected": (64, 0.0, None, QUEUE, r"^9\d% of requests rejected "),
}


class Chats(threading.Thread):
    """One client: chats of a few turns, one after the other."""

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


def scene(name):
    clients, pause, fault, more, says = SCENES[name]
    queue = more == QUEUE

    engines = Engines(2 if queue else ENGINES, "--model", "emulated",
                      "--enable-prompt-tokens-details",
                      "--hardware", "devstral-24b-fp8-h100")
    server = engines.servers(*(["max_conns=4"] if queue else []))
    nginx = Nginx(HTTP, workers=2, servers=server, expected=None,
                  more=more)
    end = threading.Event()

    try:
        chats = [Chats(nginx.port, "%s %d" % (name, i), pause, end)
                 for i in range(clients)]
        for c in chats:
            c.start()

        time.sleep(LOOK / 3)

        if fault:
            request(engines.ports[-1], "POST", "/control", fault)

        shot = os.path.join(ROOT, "docs", "img", "page.png" if name == "page"
                            else "page-%s.png" % name)

        subprocess.run(["node", os.path.join(HERE, "shot.js"),
                        "http://127.0.0.1:%d/kvroute/" % nginx.port, shot,
                        str(LOOK * 2 / 3), says], check=True)
        print("%s: %d requests" % (os.path.relpath(shot, ROOT),
                                   sum(p["requests"]
                                       for p in nginx.peers("llm"))))
    finally:
        end.set()
        for c in chats:
            c.join(30)
        nginx.stop()
        engines.stop()


if __name__ == "__main__":
    for name in (os.environ.get("SCENES") or " ".join(SCENES)).split():
        if name not in SCENES:
            sys.exit("no scene %s: there are %s" % (name, " ".join(SCENES)))
        scene(name)
