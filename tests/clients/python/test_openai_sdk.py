"""OpenAI's Python SDK, as an application uses it: default retries, sync and async, whole and streamed."""

import asyncio
import json
import threading
import time

import openai
import pytest

from conftest import CHAT, Rig

TOOL = {
    "type": "function",
    "function": {
        "name": "get_order_status",
        "parameters": {
            "type": "object",
            "properties": {"order_id": {"type": "string"}},
            "required": ["order_id"],
        },
    },
}
QUESTION = {"role": "user", "content": "Where is my ORDER-A?"}


class Blocking:
    """The sync client."""

    def __init__(self, url, **headers):
        self.client = openai.OpenAI(base_url=url, api_key="none", timeout=20, default_headers=headers)

    def complete(self, messages, stream, **extra):
        request = {"model": "scripted", "messages": messages, "tools": [TOOL], **extra}
        if not stream:
            return self.client.chat.completions.create(**request).choices[0].message.to_dict()
        return join(list(self.client.chat.completions.create(**request, stream=True)))


class Awaiting:
    """The async client, a loop for each request."""

    def __init__(self, url, **headers):
        self.url, self.headers = url, headers

    def complete(self, messages, stream, **extra):
        request = {"model": "scripted", "messages": messages, "tools": [TOOL], **extra}

        async def run():
            async with openai.AsyncOpenAI(
                base_url=self.url, api_key="none", timeout=20, default_headers=self.headers
            ) as client:
                if not stream:
                    answer = await client.chat.completions.create(**request)
                    return answer.choices[0].message.to_dict()
                events = await client.chat.completions.create(**request, stream=True)
                return join([event async for event in events])

        return asyncio.run(run())


def join(events):
    """The assistant message that a streamed answer amounts to."""
    text, calls = "", {}
    for choice in (choice for event in events for choice in event.choices):
        text += choice.delta.content or ""
        for piece in choice.delta.tool_calls or []:
            call = calls.setdefault(piece.index, {
                "id": "", "type": "function", "function": {"name": "", "arguments": ""}})
            call["id"] += piece.id or ""
            call["function"]["name"] += piece.function.name or ""
            call["function"]["arguments"] += piece.function.arguments or ""
    message = {"role": "assistant", "content": text}
    return {**message, "tool_calls": list(calls.values())} if calls else message


def result(call, content):
    return {"role": "tool", "tool_call_id": call["id"], "content": json.dumps(content)}


ORDER_A = {"ok": True, "order_id": "ORDER-A", "status": "in transit"}
EACH_CLIENT = pytest.mark.parametrize("sdk", [Blocking, Awaiting])
STREAMING = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@EACH_CLIENT
@STREAMING
def test_the_order_query_takes_two_model_calls(rig, conversation, sdk, stream):
    client = sdk(rig.base_url, **{"x-conversation-id": conversation})
    sent, forwarded = rig.sent(), rig.forwarded()

    proposal = client.complete([QUESTION], stream)
    [call] = proposal["tool_calls"]
    assert call["function"]["name"] == "get_order_status"
    assert json.loads(call["function"]["arguments"]) == {"order_id": "ORDER-A"}

    answer = client.complete([QUESTION, proposal, result(call, ORDER_A)], stream)
    assert not answer.get("tool_calls")
    assert "in transit" in answer["content"]
    assert (rig.sent() - sent, rig.forwarded() - forwarded) == (2, 2)


@EACH_CLIENT
@STREAMING
def test_an_orphan_result_raises_at_once(rig, sdk, stream):
    orphan = {"role": "tool", "tool_call_id": "call_gone", "content": "{}"}
    sent, forwarded = rig.sent(), rig.forwarded()
    with pytest.raises(openai.BadRequestError) as raised:
        sdk(rig.base_url).complete([QUESTION, orphan], stream)
    assert raised.value.code == "orphan_result"
    assert raised.value.type == "invalid_request_error"
    assert (rig.sent() - sent, rig.forwarded() - forwarded) == (1, 0)


@EACH_CLIENT
@STREAMING
@pytest.mark.parametrize("generation, code", [("1", "stale_generation"), ("2", "stale")])
def test_a_stale_result_raises_at_once(rig, conversation, sdk, stream, generation, code):
    def at(generation):
        return sdk(rig.base_url, **{"x-conversation-id": conversation, "x-generation": generation})

    proposal = at("1").complete([QUESTION], stream)
    at("2").complete([{"role": "user", "content": "No, where is ORDER-B?"}], stream)

    sent, forwarded = rig.sent(), rig.forwarded()
    late = [QUESTION, proposal, result(proposal["tool_calls"][0], ORDER_A)]
    with pytest.raises(openai.UnprocessableEntityError) as raised:
        at(generation).complete(late, stream)
    assert raised.value.code == code
    assert (rig.sent() - sent, rig.forwarded() - forwarded) == (1, 0)


REFUSED = [
    ("unknown_tool", "unknown_tool"),
    ("text_then_unknown_tool", "unknown_tool"),
    ("cut", "truncated_call"),
]


@EACH_CLIENT
@pytest.mark.parametrize("script, code", REFUSED)
def test_a_refused_answer_raises_at_once(rig, sdk, script, code):
    sent = rig.sent()
    with pytest.raises(openai.UnprocessableEntityError) as raised:
        sdk(rig.base_url).complete([{"role": "user", "content": f"[[script:{script}]]"}], False)
    assert raised.value.code == code
    assert rig.sent() - sent == 1


@EACH_CLIENT
@pytest.mark.parametrize("script, code", REFUSED)
def test_a_refused_stream_raises_and_does_not_hang(rig, sdk, script, code):
    sent = rig.sent()
    with pytest.raises(openai.APIError) as raised:
        sdk(rig.base_url).complete([{"role": "user", "content": f"[[script:{script}]]"}], True)
    assert raised.value.code == code
    assert rig.sent() - sent == 1


def test_an_overloaded_gateway_is_asked_again_until_it_has_room():
    """The only place is held by another stream; the SDK waits for as long as `retry-after` says."""
    rig = Rig({"TIGERTALLY_LIMITS__EXCHANGES": "1"})
    try:
        client = openai.OpenAI(base_url=rig.base_url, api_key="none", timeout=20)

        def ask(text, **extra):
            messages = [{"role": "user", "content": text}]
            return client.chat.completions.create(model="scripted", messages=messages, **extra)
        held = ask("[[script:stalled]]", stream=True)
        next(iter(held))

        def statuses():
            return [each.status for each in rig.tap.exchanges(CHAT)]

        def make_room():
            while 503 not in statuses():
                time.sleep(0.01)
            held.close()
        waiter = threading.Thread(target=make_room)
        waiter.start()
        assert ask("Hello").choices[0].message.content
        waiter.join()
        assert rig.forwarded() == 2
    finally:
        rig.close()
