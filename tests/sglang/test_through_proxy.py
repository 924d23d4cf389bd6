"""SGLang's real serving layer behind the built gateway, parser by parser.

What must pass is compared byte by byte between the two ends of one exchange: the tap between gateway
and SGLang holds SGLang's own bytes, since ids and times differ from request to request.
"""

import dataclasses
import json
import socket
import time

import pytest

from serving import CHAT, Chain, calls_in, events, script


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


@pytest.fixture(scope="module")
def chain(request, fleet):
    parser = PARSERS[request.param]
    chain = Chain(fleet, parser.args)
    chain.parser = parser
    yield chain
    chain.close()


def passing_cases():
    for name, parser in PARSERS.items():
        for said, calls in parser.calls.items():
            yield pytest.param(name, said, calls, id=f"{name}-{said}")


@STREAMING
@pytest.mark.parametrize("chain, name, calls", list(passing_cases()), indirect=["chain"], scope="module")
def test_sound_answers_pass_byte_for_byte(chain, name, calls, stream):
    status, body, upstream = chain.ask(script(name), stream)
    assert status == upstream.status == 200
    assert len(calls_in(upstream.answer, stream)) == calls, "the script does what its name says"
    assert body == upstream.answer


@STREAMING
@EACH_PARSER
def test_a_call_cut_by_length_never_comes_out(chain, stream):
    status, body, upstream = chain.ask(script(chain.parser.cut), stream)
    assert b'"finish_reason":"length"' in upstream.answer
    if not calls_in(upstream.answer, stream):
        assert not stream, "SGLang lets a cut call out in every stream"
        assert (status, body) == (200, upstream.answer), "without a call, a cut text is only a text"
        return
    if stream:
        assert status == 200
        assert calls_in(body, stream) == []
        assert events(body)[-1]["error"]["code"] == "truncated_call"
        assert b"[DONE]" not in body
    else:
        assert status == 422
        assert json.loads(body)["error"]["code"] == "truncated_call"


@STREAMING
@EACH_PARSER
def test_a_client_that_leaves_aborts_its_request_within_a_second(chain, stream):
    connection, mark = chain.send(script("slow"), stream)
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
def traced(request, fleet):
    """SGLang behind a gateway whose traces are off, or on (for a collector that is not there)."""
    env = {"TIGERTALLY_TELEMETRY__OTLP_ENDPOINT": "http://127.0.0.1:9"} if request.param == "on" else None
    chain = Chain(fleet, PARSERS["qwen"].args, env)
    yield chain, request.param == "on"
    chain.close()


@STREAMING
def test_sglang_takes_up_the_trace_of_the_client(traced, stream):
    chain, is_on = traced
    sent = f"00-{TRACE}-{SPAN}-01"
    status, _, upstream = chain.ask(script("q_one"), stream, {"traceparent": sent})
    assert status == 200
    got = upstream.headers["traceparent"]
    version, trace, span, flags = got.split("-")
    assert (version, trace, flags) == ("00", TRACE, "01"), "the client's trace"
    assert (span != SPAN) == is_on, "the gateway's span stands between, if it makes one"
    rid = json.loads(upstream.body)["rid"]
    taken = chain.sglang.wait_for_line(f"request {rid} traceparent {got}", seconds=5)
    assert taken is not None, "SGLang's own reading of its request"
