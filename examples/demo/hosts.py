"""make demo-hosts: one nginx, and three of them behind a balancer that knows
nothing, before the same real engines: apart, with homes, and sharing what they
know by a Redis or Valkey.

The engines and the agents are those of make demo; README.md beside this file.
"""

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import demo
import engines
import report
import traffic

OUT = os.path.join(engines.BUILD, "demo-hosts")
KEY = os.path.join(OUT, "key")

SHARE = "ngx_http_kvroute_share_module.so"
STORE = shutil.which("valkey-server") or shutil.which("redis-server")

# what a host's zone says besides, and whether hosts share

ROWS = [("1 host", 1, "", 0), ("3, apart", 3, "", 0),
        ("3, homes", 3, "hosts=3", 0), ("3, sharing", 3, "", 1)]

# any of the hosts for each request, as a balancer before them would

FRONT = """
worker_processes 1;
error_log error.log notice;
pid nginx.pid;
events { worker_connections 512; }
http {
    access_log off;
    upstream hosts {
        random;
        %s
    }
    server {
        listen %s;
        location / {
            client_max_body_size 64m;
            client_body_buffer_size 1m;
            proxy_pass http://hosts;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 1h;
        }
    }
    client_body_temp_path tmp/body;
    proxy_temp_path tmp/proxy;
    fastcgi_temp_path tmp/fastcgi;
    uwsgi_temp_path tmp/uwsgi;
    scgi_temp_path tmp/scgi;
}
"""


class Hosts(demo.Fleet):
    """So many nginx, one address before them, and the engines behind."""

    def __init__(self, count, zone, share, folder, given):
        self.count, self.zone, self.share = count, zone, share
        super().__init__("kv_cache", folder, given)

    def start_nginx(self, policy, detach):
        more = ""

        if self.share:
            port = engines.free_port()
            more = ("kvroute_share zone=llm server=redis://%s:%d;"
                    % (engines.HOST, port))
            self.processes.append(engines.spawn(
                [STORE, "--bind", engines.HOST, "--port", str(port), "--save",
                 "", "--dir", OUT], subprocess.DEVNULL, detach,
                end=signal.SIGTERM))

        with open(os.path.join(demo.HERE, "nginx.conf")) as f:
            text = f.read()

        if self.share:
            router = "load_module ngx_http_kvroute_module.so;\n"
            text = text.replace(router, router + "load_module %s;\n" % SHARE)

        zone = "kvroute_zone zone=llm:16m"
        servers = "\n        ".join("server %s;" % a for a in self.addresses)

        text = text.replace(zone + ";", "%s key_file=%s %s;\n    %s"
                            % (zone, KEY, self.zone, more))

        self.addresses_of_hosts = []

        for n in range(self.count):
            address = "%s:%d" % (engines.HOST, engines.free_port())
            conf = text

            for name, words in (("POLICY", policy), ("LISTEN", address),
                                ("SERVERS", servers)):
                conf = conf.replace("@%s@" % name, words)

            self.start_one("host%d" % n, conf, address)
            self.addresses_of_hosts.append(address)

        if self.share:
            self.wait_for_hosts()

        self.address = "%s:%d" % (engines.HOST, engines.free_port())
        self.start_one("front", FRONT % (" ".join(
            "server %s;" % a for a in self.addresses_of_hosts), self.address),
            self.address)

    def start_one(self, name, conf, address):
        folder = os.path.join(OUT, name)
        os.makedirs(os.path.join(folder, "tmp"), exist_ok=True)
        shutil.copy(demo.MODULE, folder)
        shutil.copy(os.path.join(os.path.dirname(demo.MODULE), SHARE), folder)

        with open(os.path.join(folder, "nginx.conf"), "w") as f:
            f.write(conf)

        command = [demo.NGINX, "-p", folder + "/", "-c", "nginx.conf", "-e",
                   "error.log"]
        engines.run(command + ["-t", "-q"])

        nginx = engines.spawn(command + ["-g", "daemon off;"],
                              subprocess.DEVNULL, end=signal.SIGTERM)
        self.processes.insert(0, nginx)

        while nginx.poll() is None:
            try:
                return demo.get(address, "/kvroute/json")
            except OSError:
                time.sleep(0.02)

        raise engines.Unavailable("%s has ended, see its error.log" % name)

    def wait_for_hosts(self):
        """A demo of sharing that is not on would show nothing."""
        for _ in range(500):
            states = [demo.get(a, "/kvroute/json")["zones"]["llm"]["share"]
                      for a in self.addresses_of_hosts]
            if all(s["up"] and s["others"] == self.count - 1 for s in states):
                return
            time.sleep(0.02)

        raise engines.Unavailable("hosts do not hear of each other, see "
                                  "error.log of host0")


def run(row, seed, folder, given, think):
    name, count, zone, share = row
    fleet = Hosts(count, zone, share, folder, given)

    try:
        results = traffic.play(fleet.address, fleet.model, seed,
                               "hosts%d-%d" % (ROWS.index(row), seed),
                               "run %s %d. " % (name, seed) if given else "",
                               None, think)
    finally:
        fleet.stop()

    for result in results:
        if result.engine in fleet.addresses:
            result.engine = fleet.addresses.index(result.engine)

    return results


def severe():
    """Lines of all hosts' logs that must not be there."""
    found = []

    for folder in os.listdir(OUT):
        path = os.path.join(OUT, folder, "error.log")
        if os.path.exists(path):
            with open(path) as f:
                found += [line.rstrip() for line in f if re.search(
                    r"\[(alert|crit|emerg)\]", line)]

    return found


def main():
    began = time.monotonic()
    given = os.environ.get("ENGINES", "").replace(",", " ").split()
    seeds = traffic.SEEDS

    if os.environ.get("QUICK", "0") not in ("", "0"):
        seeds = seeds[:1]

    shutil.rmtree(OUT, ignore_errors=True)
    os.makedirs(OUT)
    os.makedirs(os.path.join(demo.OUT, "tmp"), exist_ok=True)
    shutil.copy(demo.MODULE, demo.OUT)

    with open(os.open(KEY, os.O_CREAT | os.O_WRONLY, 0o600), "wb") as f:
        f.write(base64.b64encode(os.urandom(192)))

    rows = [r for r in ROWS if STORE or not r[3]]

    if not STORE:
        print("neither valkey-server nor redis-server was found: no sharing")

    folder = None if given else demo.get_engine(engines)
    think = demo.pauses(folder, given)
    runs = {row: [] for row in rows}

    # seed by seed, so that what else the machine does disturbs all alike

    for seed in seeds:
        for row in rows:
            runs[row].append(run(row, seed, folder, given, think))
            print("seed %d, %s: %d requests" % (seed, row[0],
                                                len(runs[row][-1])),
                  flush=True)

    table = {row[0]: report.figures(results, range(len(given) or demo.COUNT))
             for row, results in runs.items()}
    lines = severe()

    print("\n%s\n%s\n" % (report.HEAD, "\n".join(
        report.row(name, f) for name, f in table.items())))

    for line in lines:
        print(line)

    with open(os.path.join(OUT, "result.json"), "w") as f:
        json.dump({"hosts": table, "seeds": seeds,
                   "seconds": round(time.monotonic() - began, 1)}, f, indent=2)
        f.write("\n")

    print("%.0f s in all; figures, logs and configurations are in %s"
          % (time.monotonic() - began, os.path.relpath(OUT)))

    errors = sum(f["errors"] for f in table.values())
    sys.exit(1 if errors or lines else 0)


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda n, frame: sys.exit(128 + n))

    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except engines.Unavailable as e:
        sys.exit("The demo has no engine to run: %s" % e)
    except subprocess.CalledProcessError as e:
        sys.exit(e.stderr or str(e))
    except OSError as e:
        sys.exit(str(e))
