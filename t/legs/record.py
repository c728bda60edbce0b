#!/usr/bin/env python3

"""Records what other routers send to the two servers of a request.

    record.py ROUTER FILE

Starts a router that is installed beside this Python, before servers that record
their requests.  Sends it a few requests, and writes the bytes of both legs into
FILE.  ROUTER is vllm-nixl, vllm-mooncake or sglang.

make record-legs installs both routers, and makes all three recordings.

The ports are fixed, so a new recording differs from the old one in random
numbers only.  t/legs_fixtures.t compares the recordings with our requests.
"""

import http.client
import importlib.metadata
import json
import socketserver
import subprocess
import sys
import threading
import time

ROUTER, PREFILL, DECODE, BOOTSTRAP = 18000, 18100, 18200, 18998

ROUTERS = {
    "vllm-nixl": ["vllm-router", "vllm_router.launch_router",
                  "--vllm-pd-disaggregation", "--kv-connector", "nixl",
                  "--prefill", f"http://127.0.0.1:{PREFILL}"],
    "vllm-mooncake": ["vllm-router", "vllm_router.launch_router",
                      "--vllm-pd-disaggregation", "--kv-connector", "mooncake",
                      "--prefill", f"http://127.0.0.1:{PREFILL}",
                      str(BOOTSTRAP)],
    "sglang": ["sglang-router", "sglang_router.launch_router",
               "--pd-disaggregation",
               "--prefill", f"http://127.0.0.1:{PREFILL}", str(BOOTSTRAP)],
}

CHAT = '"messages":[{"role":"user","content":"What is 1.10 by 3?"}]'
TOOL = ('"tools":[{"type":"function","function":{"name":"f","parameters":'
        '{"type":"object","properties":{"b":{"type":"string"},'
        '"a":{"type":"number"}}}}}],"tool_choice":"auto"')

CASES = [
    ("chat, streamed", "/v1/chat/completions",
     '{"model":"m",' + CHAT + ',"stream":true,"stream_options":'
     '{"include_usage":true},"max_completion_tokens":512,"min_tokens":8,'
     '"temperature":0.70,"seed":12345678901234567}'),
    ("chat, whole", "/v1/chat/completions",
     '{ "max_tokens": 64, "model": "m", ' + CHAT + ', ' + TOOL + ' }'),
    ("chat, a client's own transfer", "/v1/chat/completions",
     '{"kv_transfer_params":{"do_remote_prefill":true,"remote_host":'
     '"10.9.9.9","remote_port":1},"bootstrap_host":"10.9.9.9",'
     '"bootstrap_port":1,"bootstrap_room":7,"model":"m",' + CHAT + '}'),
    ("completion, streamed", "/v1/completions",
     '{"model":"m","prompt":"Once upon a time","stream":true,'
     '"max_tokens":16,"stop":["\\n"]}'),
    ("completion, whole", "/v1/completions",
     '{"model":"m","prompt":"Once upon a time","max_tokens":16,'
     '"logprobs":null}'),
    ("generate", "/generate",
     '{"text":"Once upon a time","sampling_params":{"max_new_tokens":16,'
     '"temperature":0},"stream":false}'),
    ("generate, streamed", "/generate",
     '{"text":"Once upon a time","sampling_params":{"max_new_tokens":16},'
     '"stream":true}'),
]

DESCRIPTOR = {
    "do_remote_prefill": True, "do_remote_decode": False,
    "remote_block_ids": [[17, 18, 19]],
    "remote_engine_id": "6f0c6d0e-7a0d-4a9e-9a39-1f6f62b1c7a4",
    "remote_request_id": "chatcmpl-8f3a", "remote_host": "127.0.0.1",
    "remote_port": 5600, "tp_size": 1, "remote_num_tokens": 43,
    "transfer_mode": "pull",
}


class Server(socketserver.ThreadingTCPServer):
    """Records the requests for answers, byte for byte, and answers all."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, name, port):
        super().__init__(("127.0.0.1", port), Handler)
        self.name = name
        self.seen = []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(socketserver.StreamRequestHandler):

    def handle(self):
        while True:
            head = b""

            while not head.endswith(b"\r\n\r\n"):
                line = self.rfile.readline()
                if not line:
                    return
                head += line

            lines = head.decode().split("\r\n")[:-2]
            length = 0

            if not lines or lines[0].startswith("PRI "):   # HTTP/2: not here
                return

            for line in lines[1:]:
                name, value = line.split(":", 1)
                if name.lower() == "content-length":
                    length = int(value)

            body = self.rfile.read(length).decode()
            path = lines[0].split()[1]

            if any(path == case[1] for case in CASES):
                self.server.seen.append({"head": lines, "body": body})

            text, kind = self.answer(path, body)

            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\n"
                             b"Content-Length: %d\r\n\r\n%s"
                             % (kind, len(text), text))

    def answer(self, path, body):
        kind = b"application/json"

        if path == "/query":
            return (b'{"0":{"engine_id":"6f0c6d0e-7a0d-4a9e-9a39-1f6f62b1c7a4",'
                    b'"worker_addr":{"0":{"0":"127.0.0.1:1"}}}}', kind)

        if path == "/v1/models":
            return (b'{"object":"list","data":[{"id":"m","object":"model"}]}',
                    kind)

        if not body:
            return b'{"model_path":"m","version":"0"}', kind

        asked = json.loads(body)
        answer = {"id": "1", "object": "chat.completion", "created": 0,
                  "model": "m", "choices": [{
                      "index": 0, "text": "The", "finish_reason": "length",
                      "message": {"role": "assistant", "content": "The"}}],
                  "usage": {"prompt_tokens": 43, "completion_tokens": 1,
                            "total_tokens": 44}}

        if path == "/generate":
            answer = {"text": "The", "meta_info": {
                "prompt_tokens": 43, "completion_tokens": 1,
                "finish_reason": {"type": "length", "length": 1}}}

        if asked.get("stream"):
            return (b"data: %s\n\ndata: [DONE]\n\n"
                    % json.dumps(answer).encode(), b"text/event-stream")

        if self.server.name == "prefill":
            answer["kv_transfer_params"] = DESCRIPTOR

        return json.dumps(answer).encode(), kind


def ask(path, body):
    c = http.client.HTTPConnection("127.0.0.1", ROUTER, timeout=30)
    c.request("POST", path, body, {"Content-Type": "application/json",
                                   "Authorization": "Bearer key"})
    answer = c.getresponse()

    return answer.status, answer.read()


def wait(condition, what):
    until = time.monotonic() + 120

    while not condition():
        if time.monotonic() > until:
            sys.exit(f"{what}: timed out after 120 s")
        time.sleep(0.1)


def ready():
    try:
        return ask("/v1/chat/completions", '{"model":"m",' + CHAT + '}')[0] == 200
    except OSError:
        return False


def main():
    package, module, *args = ROUTERS[sys.argv[1]]

    args += ["--decode", f"http://127.0.0.1:{DECODE}",
             "--policy", "round_robin"]
    servers = [Server("prefill", PREFILL), Server("decode", DECODE),
               Server("bootstrap", BOOTSTRAP)]

    router = subprocess.Popen([sys.executable, "-m", module, *args,
                               "--host", "127.0.0.1", "--port", str(ROUTER)],
                              stdout=subprocess.DEVNULL)
    cases = []

    try:
        wait(ready, "the router")

        for name, path, body in CASES:
            for s in servers:
                s.seen.clear()

            status = ask(path, body)[0]

            if status == 200:
                wait(lambda: all(s.seen for s in servers[:2]), name)

            cases.append({"name": name, "path": path, "body": body,
                          "status": status}
                         | {s.name: s.seen[-1] for s in servers[:2] if s.seen})

    finally:
        router.terminate()

    with open(sys.argv[2], "w") as f:
        json.dump({"router": f"{package} "
                             f"{importlib.metadata.version(package)}",
                   "arguments": " ".join(args), "cases": cases}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
