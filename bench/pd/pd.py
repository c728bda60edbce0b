"""make bench-pd: prefill and decode by two servers, through nginx.

    pd.py [PART...]     parts: failures chaos time count crafted

    failures    each row of the table of failures, with its outcome, as in
                t/legs_failures.t
    chaos       100,000 requests with a descriptor (REQUESTS=), while workers
                are killed, configurations are reloaded, and engines fail,
                stall and are full; engines check that each descriptor is
                their own.  Runs one seed after another; pd-chaos.json keeps
                finished seeds for the same build of the module
    time        time that nginx adds to the engines' work, for 32 KB
    count       instructions per request that one server serves, with the
                directive and without it
    crafted     CPU time of bodies of 15 MB that are made to be costly, over
                that of an ordinary one: at most 3

Writes build/bench/pd.json; figures of other parts are kept.
"""

import hashlib
import json
import os
import re
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../common"))
sys.path.insert(0, os.path.join(HERE, "../wire"))
sys.dont_write_bytecode = True

import harness                                          # noqa: E402
import rig                                              # noqa: E402
from places import MODULE, NGINX, ROOT                  # noqa: E402

WANTED = int(os.environ.get("REQUESTS") or 100_000)
PAIRS = int(os.environ.get("PAIRS") or 400)

FILE = os.path.join(rig.RESULTS, "pd.json")
CHAOS = os.path.join(rig.RESULTS, "pd-chaos.json")

# figures that must be 0

ZEROS = ("corrupt", "lost", "stuck", "wrong_counts", "wrong_index", "alerts")

# connectors: two pass a descriptor, one lets the engines meet

CONNECTORS = ("nixl", "mooncake", "sglang")

SUMS = ZEROS + CONNECTORS + (
    "disaggregated", "requests", "answered", "cut", "kills",
    "kills_exiting", "reloads", "pauses", "engine_faults", "seeds")


# --- each way to fail

def failures_part(results):
    rows = os.path.join(rig.RESULTS, "pd-failures.json")

    env = dict(os.environ, KVROUTE_MODULE=MODULE, NGINX_BIN=NGINX,
               KVROUTE_ROWS=rows, TESTS="t/legs_failures.t")

    subprocess.run([os.path.join(ROOT, "t/run"), "prove:1"], env=env,
                   check=True)

    with open(rows) as f:
        found = json.load(f)

    for r in found:
        print("%-52s %s %s" % (r["row"], r["status"], r["outcome"]))

    results["failures"] = found


# --- descriptors, while everything else fails

def chaos_part(results):
    with open(MODULE, "rb") as f:
        module = hashlib.sha256(f.read()).hexdigest()

    found = load(CHAOS)

    if found.get("module") != module:
        found = dict({key: 0 for key in SUMS}, module=module, failures=[])

    one = CHAOS + ".one"

    while found["disaggregated"] < WANTED:
        env = dict(os.environ, LEGS="1", SEEDS="1", MINUTES="60",
                   SEED=str(1 + found["seeds"]),
                   CLIENTS=os.environ.get("CLIENTS") or "48")

        subprocess.run([os.path.join(ROOT, "t/chaos/chaos.py"), one], env=env)

        seed = load(one)
        os.unlink(one)

        for key in SUMS:
            found[key] += seed[key]

        found["failures"] += seed["failures"]
        rig.save(CHAOS, found)

    results["requests"] = found["disaggregated"]
    results["corrupt"] = found["corrupt"]
    results["chaos"] = {key: found[key] for key in SUMS}

    print("%d requests by two servers (%s), %d of them wrong; %d kills, %d "
          "reloads" % (found["disaggregated"],
                       ", ".join("%s %d" % (name, found[name])
                                 for name in CONNECTORS),
                       found["corrupt"], found["kills"], found["reloads"]))

    if any(found[key] for key in ZEROS):
        raise SystemExit("\n".join(found["failures"]))


# --- time

HTTP = """
    kvroute_zone zone=z:16m;

    upstream prefill {
        zone prefill 256k;
        kvroute kv_cache zone=z;
        server 127.0.0.1:@first@;
        keepalive 8;
    }
    upstream decode {
        zone decode 256k;
        kvroute kv_cache zone=z;
        server 127.0.0.1:@second@;
        keepalive 8;
    }

    client_body_buffer_size 1m;

    server {
        listen 127.0.0.1:@port@;
        location / {
            kvroute_prefill prefill min=2k!;
            proxy_buffering off;
            proxy_pass http://decode;
        }
    }
"""

PATH = "/v1/chat/completions"
HEAD = ("POST %s HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
        "Content-Length: %d\r\n\r\n")
ASK = (',"stream":false,"max_tokens":1,"kv_transfer_params":'
       '{"do_remote_decode":true,"do_remote_prefill":false}}')


class Client:
    """A kept connection that does little: the client's time is measured too."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def post(self, body):
        """Returns the answer's body, and the time it took."""
        text = (HEAD % (PATH, len(body)) + body).encode()
        start = time.perf_counter()
        self.socket.sendall(text)
        data = b""

        while True:
            part = self.socket.recv(1 << 20)
            data += part
            head, _, rest = data.partition(b"\r\n\r\n")
            found = re.search(rb"Content-Length: (\d+)", head)

            if not part or found and len(rest) == int(found[1]):
                break

        took = time.perf_counter() - start

        if b" 200 " not in head[:20]:
            raise SystemExit("not 200: %r" % data[:200])

        return rest, took


def time_part(results):
    engines = rig.Engines(2, "--model", "m", "--hardware", "none")
    first, second = engines.ports
    nginx = rig.Nginx(HTTP, first=first, second=second)

    through, p, d = Client(nginx.port), Client(first), Client(second)

    text = "".join("word%d " % (i % 977) for i in range(4000))[:32_000]
    number = 0

    def body():
        nonlocal number
        number += 1
        return ('{"model":"m","max_tokens":4,"messages":[{"role":"user",'
                '"content":"%d %s"}]' % (number, text))

    def by_nginx():
        return through.post(body() + "}")[1]

    def by_hand():
        """Sends both requests to the engines directly, without nginx."""
        sent = body()
        answer, first = p.post(sent.replace('"max_tokens":4,', "") + ASK)
        params = json.dumps(json.loads(answer)["kv_transfer_params"])

        return first + d.post(sent + ',"kv_transfer_params":%s}' % params)[1]

    for _ in range(20):
        by_nginx(), by_hand()

    added, whole, alone = [], [], []

    for i in range(PAIRS):
        if i % 2:
            a = by_nginx()
            b = by_hand()
        else:
            b = by_hand()
            a = by_nginx()

        added.append(a - b)
        whole.append(a)
        alone.append(b)

    corrupt = sum(json.loads(rig.get(port, "/control"))["corrupt"]
                  for port in engines.ports)
    pulls = json.loads(rig.get(second, "/control"))["pulls"]

    nginx.stop()
    engines.stop()

    if corrupt or pulls != 2 * PAIRS + 40:
        raise SystemExit("%d pulls, %d wrong" % (pulls, corrupt))

    def ms(values):
        return round(rig.median(values) * 1000, 3)

    results["time"] = {"pairs": PAIRS, "bytes": 32_000, "ms": ms(whole),
                       "engines_ms": ms(alone), "added_ms": ms(added)}

    print("32 KB by two servers: %.3f ms, the engines alone %.3f, added %.3f "
          "(at most 1)" % (ms(whole), ms(alone), ms(added)))


# --- instructions

POOL = ("upstream prefill { zone prefill 256k; kvroute kv_cache zone=bench; "
        "server 127.0.0.1:%d; }")


def count_part(results):
    import wire

    engines = harness.upstream(8)
    more = {"http": POOL % engines[0],
            "location": "kvroute_prefill prefill min=1m;"}
    found = results["instructions"] = {}

    for name, size, n in (("2k", 2048, 60), ("32k", 32768, 30)):
        row = found[name] = {}
        row["without"] = round(wire.slope(engines, False, size, n, 1))
        row["short"] = round(wire.slope(engines, False, size, n, 1, more))
        row["ratio"] = round(row["short"] / row["without"], 4)

        print(name, row, flush=True)


# --- bodies that are made to be costly

CRAFTED = """
    kvroute_zone zone=z:16m;
    client_max_body_size 16m;
    upstream prefill {
        zone prefill 256k;
        kvroute kv_cache zone=z;
        server 127.0.0.1:@first@;
    }
    upstream decode {
        zone decode 256k;
        kvroute kv_cache zone=z;
        server 127.0.0.1:@second@;
        keepalive 8;
    }
    server {
        listen 127.0.0.1:@port@;
        client_body_buffer_size 16m;
        location /memory/ {
            kvroute_prefill prefill;
            proxy_pass http://decode/;
        }
        location /file/ {
            client_body_in_file_only clean;
            kvroute_prefill prefill;
            proxy_pass http://decode/;
        }
    }
"""

LENGTH = 15_000_000
MOST = 3        # limit, as a multiple of an ordinary body's CPU time


def crafted_bodies():
    """Returns bodies by name, the ordinary one first."""
    prompt = '"model":"m","prompt":"x"'
    private = '"bootstrap_host":"x"'

    def filled(head, part, tail):
        return head + part * ((LENGTH - len(head + tail)) // len(part)) + tail

    chat = '{"model":"m","messages":[{"role":"user","content":"'
    word = "the quick brown fox jumps over the lazy dog\\n"

    return {
        "ordinary": filled(chat, word, '"}]}'),
        "blanks, 16 members": filled(
            "{", " ", ",".join([private] * 16) + "," + prompt + "}"),
        "blanks, 31 members": filled(
            "{", " ", ",".join([private] * 31) + "," + prompt + "}"),
        "blanks between all": (
            "{" + (" " * (LENGTH // 64)).join(
                ["", ""] + [c for c in '"bootstrap_host",:,1'.split(",")]
                + [",", '"a"', ":", "{", '"kv_transfer_params"', ":", "1",
                   "}", ",", prompt] + [""] * 40) + "}"),
        "a private string": filled('{"bootstrap_host":"', "a", '",' + prompt + "}"),
        "a private string of escapes": filled(
            '{"bootstrap_host":"', "\\u0061", '",' + prompt + "}"),
        "a private list": filled(
            '{"kv_transfer_params":[1', ",[]", "]," + prompt + "}"),
        "a private list of lists": filled(
            '{"kv_transfer_params":[1', ",[1]", "]," + prompt + "}"),
        "a private list, deeper": filled(
            '{"kv_transfer_params":[1', ",[[1]]", "]," + prompt + "}"),
        "private below the root": filled(
            '{"a":{"bootstrap_host":"', "a", '"},' + prompt + "}"),
        "keys of the first letters": filled(
            '{"a":{"b":1', ',"b":1', "}," + prompt + "}"),
        "names as values": filled(
            '{"a":["b"', ',"kv_transfer_params"', "]," + prompt + "}"),
        "keys of escapes": filled(
            '{"a":{"b":1', ',"\\u006bv":1', "}," + prompt + "}"),
        "other keys": filled('{"a":{"b":1', ',"x":1', "}," + prompt + "}"),
        "brackets": filled('{"a":[[]', ",[]", "]," + prompt + "}"),
        "numbers": filled('{"a":[1', ",1", "]," + prompt + "}"),
        "members of the root": filled("{" + prompt, ',"b":1', "}"),
        "nested": '{"a":' + "[" * (LENGTH // 2) + "]" * (LENGTH // 2) + ","
                  + prompt + "}",
        "a back step of blanks": filled(
            '{"a":{"x":1,', " ", private + "}," + prompt + "}"),
    }


def on_cpu(pid):
    with open("/proc/%d/schedstat" % pid) as f:
        return int(f.read().split()[0]) / 1e6


def crafted_part(results):
    first, second = harness.upstream(2)
    nginx = rig.Nginx(CRAFTED, first=first, second=second)
    rig.wait(nginx.workers)
    pid, = nginx.workers()
    found = results["crafted"] = {}
    over = []

    def cost(where, body):
        text = ("POST /%s%s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
                "Content-Length: %d\r\n\r\n%s"
                % (where, PATH, len(body), body)).encode()
        took, status = [], None

        for _ in range(7):
            before = on_cpu(pid)

            with socket.create_connection(("127.0.0.1", nginx.port)) as s:
                s.sendall(text)
                status = s.recv(65536).split()[1].decode()

                while s.recv(1 << 20):
                    pass

            took.append(on_cpu(pid) - before)

        return min(took), status

    bodies = crafted_bodies()

    for where in ("memory", "file"):
        usual = None

        for name, body in bodies.items():
            ms, status = cost(where, body)
            usual = usual or ms
            row = {"ms": round(ms, 1), "status": status,
                   "ratio": round(ms / usual, 2)}
            found["%s, %s" % (where, name)] = row
            over += ["%s, %s" % (where, name)] * (row["ratio"] > MOST)

            print("%-8s %-30s %7.1f ms  %5.2f  %s"
                  % (where, name, ms, row["ratio"], status), flush=True)

    nginx.stop()

    if over:
        raise SystemExit("more than %d times as costly as an ordinary body: %s"
                         % (MOST, "; ".join(over)))


PARTS = {"failures": failures_part, "count": count_part, "time": time_part,
         "crafted": crafted_part, "chaos": chaos_part}


def load(name):
    try:
        with open(name) as f:
            return json.load(f)
    except FileNotFoundError:
        return {}


def main():
    os.makedirs(rig.RESULTS, exist_ok=True)

    for name in sys.argv[1:] or PARTS:
        results = load(FILE)
        PARTS[name](results)
        harness.save("pd.json", results)


if __name__ == "__main__":
    main()
