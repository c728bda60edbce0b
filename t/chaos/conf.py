"""Random configurations for reloads: lists of servers, policies, queues, zones.
All are valid, and none fails a request."""

import os

WORKING = 2          # engines in each list, which are never restarted

POLICIES = (
    "kv_cache", "kv_cache", "kv_cache max_pending=64k", "kv_cache slow_start=2s",
    "kv_cache max_pending=250ms", "sticky key=auto",
    "sticky key=$http_x_session", "least_request", "round_robin", "random",
)

QUEUES = (
    "max=8 timeout=1s", "max=200 timeout=3s", "max=40 timeout=2s",
)

PROBES = (
    "", "kvroute_probe interval=100ms;", "kvroute_probe interval=300ms timeout=50ms;",
)

# budgets of sessions; none rejects, and none makes a request wait long

BUDGETS = ("", "") + tuple(
    "kvroute_budget $http_x_session zone=kept rate=%s;" % rate for rate in (
        "1g/s", "1k/s over=low", "10m/s burst=1k over=1m",
        "20m/s burst=0 over=1m charge=all"))

LEGS = (
    "min=2k!", "min=4k transfer=0.01",
    "min=2k! connector=store", "min=2k! timeout=1s",
    "min=2k! connector=mooncake",
)

FIRST = ("off", "5ms 50%", "50ms 20%", "auto 10%")

# many requests: none may wait for an engine longer than clients do

PATIENCE = "10s"

if os.environ.get("LEGS"):
    PATIENCE = "4s"
    LEGS = tuple(legs + " timeout=4s" * ("timeout" not in legs)
                 for legs in LEGS + ("min=2k!",) * 4
                 + ("min=2k! connector=mooncake",) * 2)

CONF = """
@modules@
@user@
worker_processes @workers@;
worker_rlimit_nofile 8192;
pid @dir@/nginx.pid;
error_log @dir@/error.log notice;
events { worker_connections 2048; }

http {
    client_body_temp_path @dir@/b; proxy_temp_path @dir@/p;
    fastcgi_temp_path @dir@/f; uwsgi_temp_path @dir@/u; scgi_temp_path @dir@/s;

    kvroute_zone zone=kept:16m;
    kvroute_zone zone=@zone@;

    log_format chaos '$up $remote_port $status $upstream_addr';
    access_log off;
    log_subrequest off;
    client_max_body_size 16m;
    client_body_buffer_size @buffer@;
    add_header X-Best $kvroute_best_bytes;

    upstream plain {
        zone plain 128k;
        kvroute @policy@ zone=kept capacity=1024m;
        @servers@
        keepalive 8;
        keepalive_timeout 1s;
        @probe@
        @health@
    }
    upstream queued {
        zone queued 128k;
        kvroute @queued_policy@ zone=kept capacity=1024m;
        kvroute_queue @queue@;
        @limited@
        keepalive 8;
        keepalive_timeout 1s;
        @probe@
    }
    upstream prefill {
        zone prefill 128k;
        kvroute kv_cache zone=kept capacity=1024m;
        @others@
        keepalive 8;
        keepalive_timeout 1s;
    }
    upstream rooms_prefill {
        zone rooms_prefill 128k;
        kvroute kv_cache zone=kept capacity=1024m;
        @rooms_prefill@
        keepalive 8;
        keepalive_timeout 1s;
    }
    upstream rooms {
        zone rooms 128k;
        kvroute @policy@ zone=kept capacity=1024m;
        @rooms@
        keepalive 8;
        keepalive_timeout 1s;
    }
    upstream unbroken {
        zone unbroken 128k;
        kvroute @policy@ zone=kept capacity=1024m;
        @servers@
        keepalive 8;
        keepalive_timeout 1s;
        @probe@
    }
    upstream other {
        zone other 128k;
        kvroute kv_cache zone=@zone_name@;
        @others@
    }

    map $http_x_break $first_fault {
        default $http_x_break;
        "" $http_x_engine_fault;
    }
    map $kvroute_continued $fault {
        volatile;
        default $http_x_engine_fault;
        "" $first_fault;
        0 $first_fault;
    }

    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_read_timeout @patience@;
    proxy_connect_timeout 2s;
    proxy_next_upstream error timeout http_500 http_502 http_503 non_idempotent;
    proxy_next_upstream_tries 2;

    server {
        listen 127.0.0.1:@port@ backlog=1024;
        set $up -;

        location /plain/ {
            set $up plain;
            access_log @dir@/access.log chaos;
            @budget@
            proxy_buffering off;
            proxy_pass http://plain/;
        }
        location /buffered/ {
            set $up plain;
            access_log @dir@/access.log chaos;
            proxy_pass http://plain/;
        }
        location /held/ {
            set $up plain;
            access_log @dir@/access.log chaos;
            kvroute_policy kv_cache;
            kvroute_pin $http_x_pin;
            proxy_pass http://plain/;
        }
        location /queued/ {
            set $up queued;
            access_log @dir@/access.log chaos;
            kvroute_request priority=$http_x_class tenant=$http_x_session;
            @budget@
            proxy_buffering off;
            proxy_pass http://queued/;
        }
        location /legs/ {
            set $up plain;
            access_log @dir@/access.log chaos;
            kvroute_prefill prefill @legs@;
            proxy_buffering off;
            proxy_pass http://plain/;
        }
        location /turns/ {
            set $up queued;
            access_log @dir@/access.log chaos;
            kvroute_prefill prefill @legs@;
            kvroute_request priority=$http_x_class tenant=$http_x_session;
            @budget@
            proxy_buffering off;
            proxy_pass http://queued/;
        }
        location /rooms/ {
            set $up rooms;
            access_log @dir@/access.log chaos;
            kvroute_prefill rooms_prefill connector=sglang timeout=4s;
            proxy_buffering off;
            proxy_pass http://rooms/;
        }
        location /pull/ {
            set $up unbroken;
            access_log @dir@/access.log chaos;
            kvroute_prefill unbroken connector=pull min=1k transfer=@transfer@;
            kvroute_continue @continue@;
            kvroute_first_token @first@;
            @breaks@
            proxy_buffering off;
            proxy_pass http://unbroken/;
        }
        location /unbroken/ {
            set $up unbroken;
            access_log @dir@/access.log chaos;
            kvroute_continue @continue@;
            kvroute_first_token @first@;
            @breaks@
            proxy_buffering @buffering@;
            proxy_pass http://unbroken/;
        }
        location /other/ {
            set $up other;
            access_log @dir@/access.log chaos;
            proxy_pass http://other/;
        }
        location /kvroute/ { access_log off; kvroute_status; }
        location /api/ { access_log off; kvroute_api write=on; }
        location / { access_log off; return 200 here; }
    }
}
"""


def some(rng, ports):
    """Returns the permanent servers and some of the others."""
    return ports[:WORKING] + [p for p in ports[WORKING:] if rng.random() < .7]


def listed(ports, rng):
    """Returns locations; one of them may be missing."""
    some = rng.sample(ports, rng.randint(1, len(ports)))
    return " ".join("server 127.0.0.1:%d max_fails=0;" % p for p in some)


def servers(rng, ports, limit=""):
    out = []

    for i, port in enumerate(some(rng, ports)):
        more = ""
        if i >= WORKING:
            more = rng.choice(("", "", "", " down", " backup", " weight=3"))
        out.append("server 127.0.0.1:%d max_fails=0%s%s;" % (port, limit, more))

    return " ".join(out)


def text(rng, fixed, ports, rooms):
    """Returns a random configuration; some names are always in it.  rooms are
    SGLang's servers: the first half prefills, the rest decodes."""
    zone = rng.choice(("first:2m", "first:3m", "second:2m", "second:1m"))

    names = dict(
        fixed,
        user="user root;" if os.getuid() == 0 else "",
        zone=zone, zone_name=zone.split(":")[0],
        policy=rng.choice(POLICIES),
        queued_policy=rng.choice(("kv_cache", "kv_cache max_pending=128k",
                                  "least_request", "sticky key=auto")),
        servers=servers(rng, ports),
        limited=servers(rng, ports, " max_conns=%d" % rng.choice((1, 2, 6))),
        others=servers(rng, ports),
        queue=rng.choice(QUEUES), probe=rng.choice(PROBES),
        health=rng.choice(("", "", "kvroute_health interval=200ms timeout=1s;")),
        legs=rng.choice(LEGS), transfer=rng.choice(("0", "0.01", "0.5")),
        first=rng.choice(FIRST),
        buffering=rng.choice(("on", "off")),
        budget=rng.choice(BUDGETS),
        rooms_prefill=listed(rooms[:len(rooms) // 2], rng),
        rooms=listed(rooms[len(rooms) // 2:], rng),
        patience=PATIENCE,
        buffer=rng.choice(("8k", "64k", "1m", "8m")))
    names["continue"] = rng.choice(("on", "on", "1", "off"))
    names["breaks"] = ("" if names["continue"] == "off" else
                       'proxy_set_header X-Engine-Fault $fault; '
                       'proxy_set_header Connection "";')

    out = CONF

    for name, value in names.items():
        out = out.replace("@%s@" % name, str(value))

    return out
