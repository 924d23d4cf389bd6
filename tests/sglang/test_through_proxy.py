"""SGLang's real serving layer behind the built gateway, parser by parser.

What must pass is compared byte by byte between the two ends of one exchange: the tap between gateway
and SGLang holds SGLang's own bytes, since ids and times differ from request to request.
"""

import dataclasses
import http.client
import itertools
import json
import pathlib
import socket
import sys
import time

import pytest

from running.process import Gateway, Process, free_port
from running.tap import Tap

HERE = pathlib.Path(__file__).parent
CHAT = "/v1/chat/completions"


def tool(name, properties, required=()):
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TEXT = {"type": "string"}
TOOLS = [
    tool("get_weather", {"city": TEXT, "unit": TEXT}, ["city"]),
    tool("get_time", {"tz": TEXT}, ["tz"]),
    tool("ping", {}),
]


@dataclasses.dataclass(frozen=True)
class Parser:
    """How SGLang is started, and the scripts whose text is in that parser's format."""

    args: tuple
    calls: dict  # script -> how many calls must come out
    cut: str


def parser(tool_parser, reasoning, cut, **calls):
    args = ("--tool-call-parser", tool_parser)
    if reasoning:
        args += ("--reasoning-parser", reasoning)
    return Parser(args, {"plain": 0, **calls}, cut)


PARSERS = {
    "qwen": parser("qwen", None, "q_truncated",
                   q_one=1, q_two=2, q_same_twice=2, q_text_call=1, q_noargs=1, q_unicode=1),
    "qwen-think": parser("qwen", "qwen3", "q_truncated", q_think_one=1, q_think_two=2),
    "kimi_k2": parser("kimi_k2", "kimi_k2", "k_truncated",
                      k_one=1, k_two=2, k_noargs=1, k_unicode=1, k_think_two=2),
    "glm45": parser("glm45", "glm45", "g_truncated",
                    g_one=1, g_two=2, g_noargs=1, g_unicode=1, g_think_two=2),
    "llama3": parser("llama3", None, "l_truncated", l_one=1, l_two=2, l_noargs=1, l_unicode=1),
}
STREAMING = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
EACH_PARSER = pytest.mark.parametrize("chain", PARSERS, indirect=True, scope="module")


class Chain:
    """client → gateway → tap → SGLang."""

    def __init__(self, parser, model_dir, env=None):
        self.parser, self.serial = parser, itertools.count()
        port = free_port()
        self.sglang = Process(
            [sys.executable, str(HERE / "serve_scripted.py"), "--model-dir", str(model_dir),
             "--port", str(port), "--", *parser.args],
            f"http://127.0.0.1:{port}/v1/models", seconds=120)
        self.tap = Tap(port)
        try:
            self.gateway = Gateway(f"http://127.0.0.1:{self.tap.port}", env)
        except BaseException:
            self.sglang.stop()
            raise

    def send(self, script, stream, headers=None):
        """Sends a request; returns the open connection and the mark that tells it from all others."""
        mark = f"request {next(self.serial)}"
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=30)
        body = {"model": "scripted", "tools": TOOLS, "stream": stream,
                "messages": [{"role": "user", "content": f"({mark}) [[script:{script}]]"}]}
        headers = {"content-type": "application/json", **(headers or {})}
        connection.request("POST", CHAT, json.dumps(body), headers)
        return connection, mark

    def upstream_exchange(self, mark):
        """What SGLang got and gave for that request; exactly once, or the test fails."""
        found = [e for e in self.tap.exchanges(CHAT) if f"({mark})".encode() in e.body]
        assert len(found) == 1, f"SGLang got {mark} {len(found)} times"
        return found[0]

    def ask(self, script, stream, headers=None):
        """(status, body) as the client got them, and SGLang's side of the same exchange."""
        connection, mark = self.send(script, stream, headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer.status, body, self.upstream_exchange(mark)

    def close(self):
        self.gateway.stop()
        self.tap.close()
        self.sglang.stop()


@pytest.fixture(scope="module")
def chain(request, model_dir):
    chain = Chain(PARSERS[request.param], model_dir)
    yield chain
    chain.close()


def events(body):
    """The JSON payloads of an event stream."""
    lines = (line for line in body.decode().split("\n") if line.startswith("data: {"))
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def call_count(body, stream):
    """How many calls a body holds, counted by index as a client would."""
    if not stream:
        message = json.loads(body)["choices"][0]["message"]
        return len(message.get("tool_calls") or [])
    deltas = (choice["delta"] for event in events(body) for choice in event.get("choices", []))
    return len({call["index"] for delta in deltas for call in delta.get("tool_calls") or []})


def passing_cases():
    for name, parser in PARSERS.items():
        for script, calls in parser.calls.items():
            yield pytest.param(name, script, calls, id=f"{name}-{script}")


@STREAMING
@pytest.mark.parametrize("chain, script, calls", list(passing_cases()), indirect=["chain"], scope="module")
def test_sound_answers_pass_byte_for_byte(chain, script, calls, stream):
    status, body, upstream = chain.ask(script, stream)
    assert status == upstream.status == 200
    assert call_count(upstream.answer, stream) == calls, "the script does what its name says"
    assert body == upstream.answer


@STREAMING
@EACH_PARSER
def test_a_call_cut_by_length_never_comes_out(chain, stream):
    status, body, upstream = chain.ask(chain.parser.cut, stream)
    assert b'"finish_reason":"length"' in upstream.answer
    if not call_count(upstream.answer, stream):
        assert not stream, "SGLang lets a cut call out in every stream"
        assert (status, body) == (200, upstream.answer), "without a call, a cut text is only a text"
        return
    if stream:
        assert status == 200
        assert call_count(body, stream) == 0
        assert events(body)[-1]["error"]["code"] == "truncated_call"
        assert b"[DONE]" not in body
    else:
        assert status == 422
        assert json.loads(body)["error"]["code"] == "truncated_call"


@STREAMING
@EACH_PARSER
def test_a_client_that_leaves_aborts_its_request_within_a_second(chain, stream):
    connection, mark = chain.send("slow", stream)
    if stream:
        assert connection.getresponse().read(1), "the stream has begun"
    else:
        assert chain.sglang.wait_for_line("request " + wait_for_rid(chain, mark), seconds=5)
    rid = wait_for_rid(chain, mark)
    left = time.monotonic()
    connection.sock.shutdown(socket.SHUT_RDWR)
    aborted = chain.sglang.wait_for_line(f"ABORT received for {rid}", seconds=5)
    assert aborted is not None, "SGLang was not told"
    assert aborted - left < 1.0
    asked = [json.loads(e.body)["rid"] for e in chain.tap.exchanges("/abort_request")]
    assert asked.count(rid) == 1


def wait_for_rid(chain, mark, seconds=5):
    """The rid that the gateway gave the request, once SGLang has it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = [e for e in chain.tap.exchanges(CHAT) if f"({mark})".encode() in e.body]
        if found:
            return json.loads(found[0].body)["rid"]
        time.sleep(0.01)
    raise TimeoutError(f"SGLang never got {mark}")


TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture(params=["off", "on"])
def traced(request, model_dir):
    """SGLang behind a gateway whose traces are off, or on (for a collector that is not there)."""
    env = {"TIGERTALLY_TELEMETRY__OTLP_ENDPOINT": "http://127.0.0.1:9"} if request.param == "on" else None
    chain = Chain(PARSERS["qwen"], model_dir, env)
    yield chain, request.param == "on"
    chain.close()


@STREAMING
def test_sglang_takes_up_the_trace_of_the_client(traced, stream):
    chain, is_on = traced
    sent = f"00-{TRACE}-{SPAN}-01"
    status, _, upstream = chain.ask("q_one", stream, {"traceparent": sent})
    assert status == 200
    got = upstream.headers["traceparent"]
    version, trace, span, flags = got.split("-")
    assert (version, trace, flags) == ("00", TRACE, "01"), "the client's trace"
    assert (span != SPAN) == is_on, "the gateway's span stands between, if it makes one"
    rid = json.loads(upstream.body)["rid"]
    taken = chain.sglang.wait_for_line(f"request {rid} traceparent {got}", seconds=5)
    assert taken is not None, "SGLang's own reading of its request"
