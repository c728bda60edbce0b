"""Where things are that the benches use."""

import glob
import os
import shutil

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
BUILD = os.path.abspath(os.environ.get("BUILD") or os.path.join(ROOT, "build"))
NGINX = (os.environ.get("NGINX_BIN") or shutil.which("nginx")
         or "/usr/sbin/nginx")
MODULE = (os.environ.get("MODULE")
          or os.path.join(BUILD, "ngx_http_kvroute_module.so"))
CONTROL = os.path.join(BUILD, "bench/wire/control/ngx_http_control_module.so")
ENGINE = os.path.join(BUILD, "t/engine")


def modules(router=MODULE):
    """The router, and the extensions beside it: all that are there, or those
    that KVROUTE_MODULES names, as "share events", or "router" for none."""
    found = [router]
    for name in os.environ.get("KVROUTE_MODULES", "*").split():
        if name != "router":
            found += sorted(glob.glob(os.path.join(
                os.path.dirname(router), "ngx_http_kvroute_%s_module.so" % name)))
    return found
