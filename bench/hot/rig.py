"""A fleet of emulated engines (t/engine), and nginx in front of it."""

import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../common"))

from places import ENGINE, MODULE, NGINX  # noqa: E402
from ports import free_ports  # noqa: E402

CONF = """
load_module %(module)s;
worker_processes 2;
error_log %(dir)s/error.log warn;
pid %(dir)s/nginx.pid;
events { worker_connections 1024; }
http {
    access_log off;
    client_body_temp_path %(dir)s/body;
    proxy_temp_path %(dir)s/proxy;
    fastcgi_temp_path %(dir)s/fastcgi;
    uwsgi_temp_path %(dir)s/uwsgi;
    scgi_temp_path %(dir)s/scgi;

    kvroute_zone zone=llm:16m;

    upstream llm {
        zone llm_peers 256k;
        %(balancer)s
        %(servers)s
    }
    server {
        listen 127.0.0.1:%(port)d backlog=256;
        client_body_buffer_size 1m;
        location / {
            proxy_pass http://llm;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 1h;
        }
    }
}
"""


def wait_for(port, process):
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.02)

    sys.exit("%s has ended" % process.args[0])


class Rig:
    """Both, with the directives that choose a server; .port is nginx's."""

    def __init__(self, balancer, engines, *flags):
        self.folder = tempfile.mkdtemp(prefix="kvroute-hot-")
        self.processes = []

        try:
            self.start(balancer, engines, flags)
        except BaseException:
            self.end()
            raise

    def start(self, balancer, engines, flags):
        first = free_ports(engines)

        self.run(ENGINE, "--port", str(first), "--count", str(engines),
                 "--enable-prompt-tokens-details", *flags)

        for port in range(first, first + engines):
            wait_for(port, self.processes[0])

        self.port = free_ports(1)
        conf = os.path.join(self.folder, "nginx.conf")

        with open(conf, "w") as f:
            f.write(CONF % {
                "module": MODULE, "dir": self.folder, "port": self.port,
                "balancer": balancer, "servers": " ".join(
                    "server 127.0.0.1:%d;" % p
                    for p in range(first, first + engines))})

        self.run(NGINX, "-p", self.folder + "/", "-c", conf, "-e",
                 self.folder + "/error.log", "-g", "daemon off;")
        wait_for(self.port, self.processes[1])

    def run(self, *args):
        self.processes.append(subprocess.Popen(args,
                                               stdout=subprocess.DEVNULL))

    def end(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()

        self.processes.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.end()


def together(run, policies, *args, seconds):
    """What run(policy, *args) puts into a queue, by policy, all at once."""
    results = multiprocessing.Queue()
    processes = [multiprocessing.Process(target=run,
                                         args=(policy, *args, results))
                 for policy in policies]

    for process in processes:
        process.start()

    found = dict(results.get(timeout=seconds) for _ in processes)

    for process in processes:
        process.join()

    return found
