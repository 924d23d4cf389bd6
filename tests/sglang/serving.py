"""SGLang's own serving layer with the built gateway before it, and what went over either side."""

import base64
import http.client
import itertools
import json
import pathlib
import re
import sys
import time
import urllib.error
import urllib.request

from running.process import Gateway, Process, free_port
from running.tap import Tap

HERE = pathlib.Path(__file__).parent
CHAT = "/v1/chat/completions"
MARK = re.compile(rb"\((request \d+)\)")


def tool(name, properties, required=()):
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TEXT = {"type": "string"}
TOOLS = [
    tool("get_weather", {"city": TEXT, "unit": TEXT}, ["city"]),
    tool("get_time", {"tz": TEXT}, ["tz"]),
    tool("ping", {}),
]


class Fleet(Process):
    """SGLang, imported once; its servers are forks of it, started by SGLang's own arguments (see fleet.py)."""

    def __init__(self, model_dir, delay_ms=0):
        self.port, self.model_dir = free_port(), model_dir
        super().__init__(
            [sys.executable, str(HERE / "serve_scripted.py"), "--model-dir", str(model_dir), "--fleet",
             "--port", str(self.port), "--delay-ms", str(delay_ms)],
            f"http://127.0.0.1:{self.port}/", seconds=120)

    def order(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)

    def server(self, args, env=None):
        """One more server; `{model}` in its arguments is the tiny model's folder."""
        return Server(self, [arg.replace("{model}", str(self.model_dir)) for arg in args], env or {})


class Server:
    """One SGLang server of a fleet."""

    def __init__(self, fleet, args, env):
        self.fleet = fleet
        started = fleet.order("POST", "/", {"args": args, "env": env})
        self.pid, self.port = started["pid"], started["port"]
        end = time.monotonic() + 60
        while not self._answers():
            ended = fleet.order("GET", f"/{self.pid}")["ended"]
            if ended is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"SGLang did not start with {args}:\n{fleet.output()}")
            time.sleep(0.02)

    def _answers(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/models", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def wait_for_line(self, text, seconds):
        return self.fleet.wait_for_line(text, seconds)

    def stop(self):
        self.fleet.order("DELETE", f"/{self.pid}")


class Chain:
    """client → gateway → tap → SGLang."""

    def __init__(self, fleet, args, env=None):
        self.serial = itertools.count()
        self.sglang = fleet.server(args)
        self.tap = Tap(self.sglang.port)
        try:
            self.gateway = Gateway(f"http://127.0.0.1:{self.tap.port}", env)
        except BaseException:
            self.sglang.stop()
            raise

    def send(self, said, stream, headers=None, **options):
        """Sends a request; returns the open connection and the mark that tells it from all others."""
        mark = f"request {next(self.serial)}"
        return post(self.gateway.port, chat(f"({mark}) {said}", stream, **options), headers), mark

    def send_whole(self, said, stream, **options):
        """(status, body) as the client got them, and the request's mark. Several threads may ask at once."""
        connection, mark = self.send(said, stream, **options)
        return *whole(connection), mark

    def upstream_exchanges(self):
        """All that SGLang got and gave since the tap was told to forget, by mark; each once, or the test fails."""
        found = {}
        for exchange in self.tap.exchanges(CHAT):
            mark = MARK.search(exchange.body)[1].decode()
            assert mark not in found, f"SGLang got {mark} twice"
            found[mark] = exchange
        return found

    def upstream_exchange(self, mark):
        """What SGLang got and gave for that request; exactly once, or the test fails."""
        found = [e for e in self.tap.exchanges(CHAT) if f"({mark})".encode() in e.body]
        assert len(found) == 1, f"SGLang got {mark} {len(found)} times"
        return found[0]

    def ask(self, said, stream, headers=None, **options):
        """(status, body) as the client got them, and SGLang's side of the same exchange."""
        connection, mark = self.send(said, stream, headers, **options)
        return *whole(connection), self.upstream_exchange(mark)

    def close(self):
        self.gateway.stop()
        self.tap.close()
        self.sglang.stop()


def chat(said, stream, **options):
    """The request to say that."""
    messages = [{"role": "user", "content": said}]
    return {"model": "scripted", "tools": TOOLS, "stream": stream, "messages": messages} | options


def post(port, body, headers=None):
    """The connection on which that chat completion was asked for."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    headers = {"content-type": "application/json", **(headers or {})}
    connection.request("POST", CHAT, json.dumps(body), headers)
    return connection


def whole(connection):
    """(status, body) of the answer on that connection."""
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def script(name):
    """What makes the model say that entry of scripts.json."""
    return f"[[script:{name}]]"


def raw(text):
    """What makes the model say that text."""
    return f"[[raw:{base64.b64encode(text.encode()).decode()}]]"


def events(body):
    """The JSON payloads of an event stream."""
    lines = (line for line in body.decode().split("\n") if line.startswith("data: {"))
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def calls_in(body, stream):
    """The calls that a body holds, as (name, arguments), put together by index as a client would."""
    if not stream:
        choices = json.loads(body).get("choices") or []
        found = [c["function"] for choice in choices for c in choice["message"].get("tool_calls") or []]
        return [(f["name"], f["arguments"]) for f in found]
    calls = {}
    for event in events(body):
        for choice in event.get("choices", []):
            for part in choice["delta"].get("tool_calls") or []:
                name, arguments = calls.get(part["index"], ("", ""))
                said = part["function"]
                calls[part["index"]] = (name + (said.get("name") or ""), arguments + (said.get("arguments") or ""))
    return list(calls.values())
