"""Each tool-call parser and each reasoning parser of SGLang, its answers cut at every token: through the proxy no cut
call is a call, and what is whole comes out as SGLang wrote it.

A cut is by length, by an abort, or by the end of the connection; the last is played by an upstream that dies in the
middle of an answer that SGLang gave. What a cut must never bring is judged by what the client holds, and not by how
the proxy came to it.
"""

import collections
import concurrent.futures
import dataclasses
import json

import pytest

import formats
from replay import Replay, places
from running.process import Gateway
from serving import CHAT, Chain, calls_in, chat, events, post, raw, whole
from tokens import tokens

AT_ONCE = 4


@dataclasses.dataclass(frozen=True)
class Setting:
    """A server's parsers, and what its model says."""

    args: tuple
    said: str
    calls: list
    thinks: bool
    options: dict


def tool_setting(name):
    calls = formats.CALLS[:1] if name in formats.ONE_CALL else formats.CALLS
    args = ("--tool-call-parser", name, *formats.SERVER_ARGS.get(name, ()))
    return Setting(args, formats.TOOL_FORMATS[name], calls, False, formats.OPTIONS.get(name, {}))


def reasoning_setting(name):
    tool_parser, thought = formats.REASONING_FORMATS[name]
    with_tools = tool_setting(tool_parser)
    return dataclasses.replace(
        with_tools, args=(*with_tools.args, "--reasoning-parser", name), said=thought + with_tools.said,
        thinks=name not in formats.THOUGHT_IN_CONTENT, options=formats.OPTIONS.get(name, with_tools.options))


SETTINGS = {
    **{f"tool-{name}": tool_setting(name) for name in formats.TOOL_FORMATS},
    **{f"reasoning-{name}": reasoning_setting(name) for name in formats.REASONING_FORMATS},
}
STREAMING = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@pytest.mark.parametrize("kind, known", [("tool", formats.TOOL_FORMATS), ("reasoning", formats.REASONING_FORMATS)])
def test_no_parser_of_sglang_is_missed(fleet, kind, known):
    assert sorted(fleet.order("GET", "/parsers")[kind]) == sorted(known)


@pytest.fixture(scope="module")
def setting(request):
    return SETTINGS[request.param]


@pytest.fixture(scope="module")
def chain(setting, fleet):
    chain = Chain(fleet, setting.args)
    yield chain
    chain.close()


@pytest.fixture(scope="module")
def dying():
    """A gateway before an upstream that dies; the same for all settings."""
    replay = Replay()
    with Gateway(f"http://127.0.0.1:{replay.port}") as gateway:
        yield gateway, replay
    replay.close()


EACH_SETTING = pytest.mark.parametrize("setting", SETTINGS, indirect=True, scope="module")


@EACH_SETTING
@STREAMING
def test_a_parser(setting, chain, dying, stream, record_property):
    upstream = uncut(setting, chain, stream)
    for fault in ("length", "abort"):
        tally = cut_by_model(setting, chain, stream, fault)
        record_property(fault, dict(tally))
    cut_by_connection(*dying, upstream, stream)


def uncut(setting, chain, stream):
    """Both calls arrive, byte for byte; returns the answer."""
    status, body, upstream = chain.ask(raw(setting.said), stream, **setting.options)
    assert status == upstream.status == 200
    assert [(name, json.loads(arguments)) for name, arguments in calls_in(body, stream)] == setting.calls
    assert (b'"reasoning_content":"' in body) == setting.thinks
    assert body == upstream.answer
    return body


def cut_by_model(setting, chain, stream, fault):
    """Cuts after each token, the last included: an answer that was cut there is one that goes on."""
    def ask(after):
        if fault == "abort":
            return chain.send_whole(f"[[abort:{after}]] {raw(setting.said)}", stream, **setting.options)
        return chain.send_whole(raw(setting.said), stream, max_tokens=after, **setting.options)

    chain.tap.forget()
    count = len(tokens(setting.said))
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(ask, range(1, count + 1)))
    upstream = chain.upstream_exchanges()
    tally = collections.Counter()
    for after, (status, body, mark) in enumerate(answers, 1):
        given = upstream[mark]
        assert f'"finish_reason":"{fault}"'.encode() in given.answer, (after, given.answer)
        tally[judge(status, body, given.answer, stream, after)] += 1
    assert stream is False or tally["withheld"], "SGLang lets cut calls out in every stream"
    return tally


def judge(status, body, given, stream, after):
    """`passed` for an answer without a call, which is a text; `withheld` for one with."""
    what = (after, status, given, body)
    if not calls_in(given, stream):
        assert (status, body) == (200, given), what
        return "passed"
    if stream:
        assert status == 200 and calls_in(body, stream) == [] and b"[DONE]" not in body, what
        error = events(body)[-1]["error"]
    else:
        assert status == 422, what
        error = json.loads(body)["error"]
    assert error["code"] == "truncated_call", what
    return "withheld"


def cut_by_connection(gateway, replay, upstream, stream):
    """The answer's beginnings, each of a dying server."""
    replay.answer, replay.stream = upstream, stream

    def ask(place):
        return whole(post(gateway.port, chat(f"[[replay:{place[0]}:{place[1]}]]", stream)))

    cuts = places(upstream, stream, count=20)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(ask, cuts))
    for place, (status, body) in zip(cuts, answers):
        what = (place, status, body)
        if stream:
            assert status == 200 and calls_in(body, stream) == [] and b"[DONE]" not in body, what
        else:
            assert status == 502, what
