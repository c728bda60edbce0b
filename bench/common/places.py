"""Paths of the programs and modules that benches use."""

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
    """Returns the router and the extensions in its folder: all of them, or
    those that KVROUTE_MODULES names, such as "share events", or none for
    "router"."""
    found = [router]
    for name in os.environ.get("KVROUTE_MODULES", "*").split():
        if name != "router":
            found += sorted(glob.glob(os.path.join(
                os.path.dirname(router), "ngx_http_kvroute_%s_module.so" % name)))
    return found
