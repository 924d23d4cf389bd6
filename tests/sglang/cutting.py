"""Cuts the answer of a parser at every token, and says what SGLang let out and what the proxy did with it."""

import concurrent.futures
import dataclasses
import json

import formats
from replay import places
from serving import calls_in, chat, events, post, raw, whole
from tokens import tokens

AT_ONCE = 4
FAULTS = ("length", "abort")


@dataclasses.dataclass(frozen=True)
class Setting:
    """A server's parsers, and what its model says."""

    name: str
    args: tuple
    said: str
    calls: list
    thinks: bool
    options: dict


def tool_setting(name):
    args = ("--tool-call-parser", name, *formats.SERVER_ARGS.get(name, ()))
    calls = formats.CALLS[:1] if name in formats.ONE_CALL else formats.CALLS
    return Setting(f"tool-{name}", args, formats.TOOL_FORMATS[name], calls, False, formats.OPTIONS.get(name, {}))


def reasoning_setting(name):
    tool_parser, thought = formats.REASONING_FORMATS[name]
    with_tools = tool_setting(tool_parser)
    return dataclasses.replace(
        with_tools, name=f"reasoning-{name}", args=(*with_tools.args, "--reasoning-parser", name), said=thought + with_tools.said,
        thinks=name not in formats.THOUGHT_IN_CONTENT, options=formats.OPTIONS.get(name, with_tools.options))


SETTINGS = {setting.name: setting for setting in (
    *map(tool_setting, formats.TOOL_FORMATS), *map(reasoning_setting, formats.REASONING_FORMATS))}


def uncut(setting, chain, stream):
    """All calls arrive, byte for byte; returns the answer."""
    status, body, upstream = chain.ask(raw(setting.said), stream, **setting.options)
    assert status == upstream.status == 200
    assert [(name, json.loads(arguments)) for name, arguments in calls_in(body, stream)] == setting.calls
    assert (b'"reasoning_content":"' in body) == setting.thinks
    assert body == upstream.answer
    return body


def cut_by_model(setting, chain, stream, fault):
    """Cuts after each token, the last included: what was cut there might have gone on.

    Returns in how many of the answers SGLang let a call out; through the proxy, none came.
    """
    def ask(after):
        if fault == "abort":
            return chain.send_whole(f"[[abort:{after}]] {raw(setting.said)}", stream, **setting.options)
        return chain.send_whole(raw(setting.said), stream, max_tokens=after, **setting.options)

    chain.tap.forget()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(ask, range(1, cuts(setting) + 1)))
    upstream = chain.upstream_exchanges()
    assert len(upstream) == len(answers)
    let_out = 0
    for after, (status, body, mark) in enumerate(answers, 1):
        given = upstream[mark].answer
        assert f'"finish_reason":"{fault}"'.encode() in given, (after, given)
        let_out += judge(status, body, given, stream, after)
    return let_out


def cuts(setting):
    return len(tokens(setting.said))


def judge(status, body, given, stream, after):
    """Whether SGLang gave a call, which must not come out; else it is a text, which must, as it is."""
    what = (after, status, given, body)
    if not calls_in(given, stream):
        assert (status, body) == (200, given), what
        return False
    if stream:
        assert status == 200 and calls_in(body, stream) == [] and b"[DONE]" not in body, what
        error = events(body)[-1]["error"]
    else:
        assert status == 422, what
        error = json.loads(body)["error"]
    assert "truncated_call" in [fault["code"] for fault in error["faults"]], what
    return True


def cut_by_connection(gateway, replay, answer, stream):
    """The beginnings of an answer, each of a dying server: no call comes out, and no end that looks like one."""
    replay.answer, replay.stream = answer, stream

    def ask(place):
        return whole(post(gateway.port, chat(f"[[replay:{place[0]}:{place[1]}]]", stream)))

    all_places = places(answer, stream, count=20)
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(ask, all_places))
    for place, (status, body) in zip(all_places, answers):
        what = (place, status, body)
        if stream:
            assert status == 200 and calls_in(body, stream) == [] and b"[DONE]" not in body, what
            assert "error" in events(body)[-1], what
        else:
            assert status == 502, what
