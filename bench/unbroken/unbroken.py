"""make bench-unbroken: real engines are killed in the middle of their answers.

        KILLS=1000      kills, with the directive and without
        MORE=1          adds to the figures of the previous run
    ENGINES=4 CLIENTS=8 TOKENS=400

Clients stream answers of known text through nginx, from llama-server with a
small word model at temperature 0.  Writes build/bench/unbroken.json, to which
bench/unbroken/move.py and `make bench-sick` add their parts.
"""

import http.client
import json
import os
import random
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "examples", "demo"))

sys.path.insert(0, os.path.join(HERE, "..", "common"))

import engines                                          # noqa: E402
import model                                            # noqa: E402
from rig import merge                                   # noqa: E402

BUILD = os.environ.get("BUILD", "build")
OUT = os.path.join(BUILD, "bench", "unbroken")
KILLS = int(os.environ.get("KILLS", 1000))
ENGINES = int(os.environ.get("ENGINES", 4))
CLIENTS = int(os.environ.get("CLIENTS", 8))
TOKENS = int(os.environ.get("TOKENS", 400))
PROMPTS = 16

CONF = """
load_module {module};
load_module {dir}/ngx_http_kvroute_continue_module.so;
{user}
worker_processes 1;
daemon off;
pid {out}/nginx.pid;
error_log {out}/error.log notice;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {out}/body;
    proxy_temp_path {out}/proxy;
    fastcgi_temp_path {out}/fastcgi;
    uwsgi_temp_path {out}/uwsgi;
    scgi_temp_path {out}/scgi;
    kvroute_zone zone=z:8m;
    upstream llm {{
        zone llm 64k;
        kvroute kv_cache zone=z;
        kvroute_eject off;
        {servers}
    }}
    server {{
        listen 127.0.0.1:{port};
        proxy_http_version 1.1;
        proxy_set_header Connection "";
        proxy_buffering off;
        proxy_next_upstream error timeout invalid_header http_503
                            non_idempotent;
        add_header X-Peer $kvroute_peer always;
        location /on/ {{ kvroute_continue 20; proxy_pass http://llm/; }}
        location /off/ {{ proxy_pass http://llm/; }}
        location /kvroute/ {{ kvroute_status; }}
    }}
}}
"""


class Fleet:
    def __init__(self):
        self.folder = engines.get()
        self.ports = [engines.free_port() for _ in range(ENGINES)]
        self.engine = {port: self.start(port) for port in self.ports}
        self.kills = 0

        for engine in self.engine.values():
            engine.wait()

    def start(self, port):
        return engines.Engine(self.folder, os.path.join(OUT, "engine.log"),
                              port=port, slots=CLIENTS, words=True)

    def kill(self, port):
        self.engine[port].process.kill()
        self.engine[port].process.wait()
        self.kills += 1
        self.engine[port] = self.start(port)
        self.engine[port].wait()

    def stop(self):
        for engine in self.engine.values():
            engine.process.kill()


def prompt(i):
    rnd = random.Random(i)
    return " ".join(rnd.choices(model.WORDS, k=40))


def ask(port, where, i, streaming=None):
    """Returns an answer's text, and whether it is complete and well-formed."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    text, ids, roles, done, error, finish = "", set(), 0, 0, 0, 0
    usage = {}

    try:
        c.request("POST", where + "/v1/chat/completions", json.dumps({
            "model": "tiny", "stream": True, "temperature": 0,
            "max_tokens": TOKENS, "stream_options": {"include_usage": True},
            "messages": [{"role": "user", "content": prompt(i)}]}),
            {"Content-Type": "application/json"})
        r = c.getresponse()

        if r.status != 200:
            return {"refused": 1, "cut": 0, "text": ""}

        for line in r:
            line = line.strip()

            if not line.startswith(b"data: "):
                continue

            if line == b"data: [DONE]":
                done += 1
                continue

            event = json.loads(line[6:])
            error += "error" in event
            ids.add(event.get("id"))
            usage = event.get("usage") or usage

            for choice in event.get("choices", ()):
                roles += bool(choice["delta"].get("role"))
                finish += bool(choice["finish_reason"])
                text += choice["delta"].get("content") or ""

                if streaming:
                    streaming(r.getheader("X-Peer"))

    except (OSError, http.client.HTTPException, ValueError):
        error += 1

    finally:
        c.close()
        if streaming:
            streaming(None)

    return {"text": text, "cut": int(bool(error) or finish != 1 or done != 1),
            "tokens": usage.get("completion_tokens"), "roles": roles,
            "ids": len(ids), "done": done,
            "well": roles == 1 and len(ids) == 1 and done == 1
            and usage.get("completion_tokens") == TOKENS}


def difference(a, whole):
    """Describes how an answer differs from the uninterrupted one."""
    n = len(os.path.commonprefix([a["text"], whole]))

    return {k: v for k, v in a.items() if k != "text"} | {
        "same": n, "length": len(a["text"]), "whole": len(whole),
        "text": a["text"][max(n - 30, 0):n + 30],
        "expected": whole[max(n - 30, 0):n + 30]}


def killing(fleet, port, where, kills, whole):
    """Kills engines under load, this many times."""
    busy, end = {}, threading.Event()
    result = {"killed": 0, "answers": 0, "cut": 0, "refused": 0,
              "same_text": 0, "well": 0}
    lock = threading.Lock()
    odd = result["odd"] = []

    def client(n):
        rnd = random.Random(n)

        def streaming(peer):
            with lock:
                if peer:
                    busy[n] = peer
                else:
                    busy.pop(n, None)

        while not end.is_set():
            i = rnd.randrange(PROMPTS)
            a = ask(port, where, i, streaming)

            with lock:
                result["answers"] += 1
                result["cut"] += a["cut"]
                result["refused"] += a.get("refused", 0)
                result["well"] += a.get("well", 0)
                result["same_text"] += a["text"] == whole[i]

                if where == "/on" and len(odd) < 20 and not (
                        a["text"] == whole[i] and a.get("well")):
                    odd.append(difference(a, whole[i]))

    threads = [threading.Thread(target=client, args=(n,), daemon=True)
               for n in range(CLIENTS)]
    for t in threads:
        t.start()

    while result["killed"] < kills:
        with lock:
            peers = [int(p.rsplit(":", 1)[1]) for p in busy.values()]

        if not peers:
            time.sleep(.001)
            continue

        fleet.kill(random.choice(peers))
        result["killed"] += 1

    end.set()
    for t in threads:
        t.join()

    n = result["answers"]
    result["same_text"] = round(result["same_text"] / n, 4)
    result["well"] = round(result["well"] / n, 4)
    return result


def both(a, b):
    """Merges the figures of two runs."""
    n = a["answers"] + b["answers"]
    out = {k: a[k] + b[k] for k in ("killed", "answers", "cut", "refused",
                                    "odd")}

    for k in ("same_text", "well"):
        out[k] = round((a[k] * a["answers"] + b[k] * b["answers"]) / n, 4)

    return out


def main():
    os.makedirs(OUT, exist_ok=True)
    fleet, port = Fleet(), engines.free_port()
    conf = os.path.join(OUT, "nginx.conf")
    log = os.path.join(OUT, "error.log")

    if os.path.exists(log):
        os.remove(log)

    with open(conf, "w") as f:
        f.write(CONF.format(
            module=os.environ["MODULE"], out=os.path.abspath(OUT), port=port,
            dir=os.path.dirname(os.environ["MODULE"]),
            user="user root;" if os.geteuid() == 0 else "",
            servers="\n".join("server 127.0.0.1:%d max_fails=0;" % p
                              for p in fleet.ports)))

    nginx = subprocess.Popen([os.environ.get("NGINX_BIN", "nginx"), "-c",
                              os.path.abspath(conf), "-e", os.path.abspath(log)])

    try:
        while nginx.poll() is None and not ask(port, "/off", 0)["text"]:
            time.sleep(.05)

        whole = [ask(port, "/off", i)["text"] for i in range(PROMPTS)]

        out = killing(fleet, port, "/on", KILLS, whole)
        out["without"] = killing(fleet, port, "/off", KILLS, whole)

    finally:
        nginx.terminate()
        nginx.wait()
        fleet.stop()

    with open(log) as f:
        text = f.read()

    out["alerts"] = text.count("[alert]") + text.count("[crit]")
    path = os.path.join(BUILD, "bench", "unbroken.json")

    if os.environ.get("MORE"):
        with open(path) as f:
            before = json.load(f)

        out = both(before, out) | {
            "without": both(before["without"], out["without"]),
            "alerts": before["alerts"] + out["alerts"]}

    merge(path, **out)
    print(json.dumps(out, indent=1))
    return out["cut"] > 0 or out["same_text"] < .99 or out["alerts"] > 0


if __name__ == "__main__":
    sys.exit(main())
