"""A fleet of emulated engines (t/engine), and nginx in front of it."""

import multiprocessing
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "../common"))

from rig import Engines, Nginx  # noqa: E402

HTTP = """
    kvroute_zone zone=llm:16m;

    upstream llm {
        zone llm_peers 256k;
        @balancer@
        @servers@
    }
    server {
        listen 127.0.0.1:@port@ backlog=256;
        client_body_buffer_size 1m;
        location / {
            @location@
            proxy_pass http://llm;
            proxy_buffering off;
        }
    }
"""


class Front:
    """Engines, and nginx with these directives in its upstream; .port is
    nginx's."""

    def __init__(self, balancer, engines, *flags, fleet=Engines, location=""):
        self.engines = fleet(engines, "--enable-prompt-tokens-details", *flags)
        self.nginx = Nginx(HTTP, workers=2, connections=1024, location=location,
                           balancer=balancer, servers=self.engines.servers())
        self.port = self.nginx.port

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.nginx.stop()
        self.engines.stop()


def together(run, policies, *args, seconds):
    """Runs run(policy, *args) for all policies at once; returns their
    results."""
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
