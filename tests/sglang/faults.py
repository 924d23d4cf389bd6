"""Faults that are played at SGLang alone, and at SGLang behind the proxy: the rows of the table in docs/sglang.md.

A fault is a function that takes a `Side` and returns the last answer that its client got.
"""

import dataclasses
import http.client
import itertools
import json

from serving import TOOLS, calls_in, events, post, raw, script, whole
from tokens import tokens

SERIAL = itertools.count()
USER = {"role": "user", "content": "What is the weather in Paris?"}


class Side:
    """One conversation at one port. What it adds to a request, SGLang does not read."""

    def __init__(self, port):
        self.port, self.conversation = port, f"table-{next(SERIAL)}"

    def ask(self, messages, stream=False, generation=None, **options):
        connection = self.begin(messages, stream, generation, **options)
        return Given(*whole(connection), stream)

    def begin(self, messages, stream, generation, **options):
        headers = {} if generation is None else {
            "x-conversation-id": self.conversation, "x-generation": str(generation)}
        body = {"model": "scripted", "tools": TOOLS, "messages": messages, "stream": stream, **options}
        return post(self.port, body, headers)

    def proposed(self, generation, name="q_one"):
        """The assistant message of a first model call, as a client keeps it."""
        return self.ask([says(name)], generation=generation).message()

    def moves_on(self, generation):
        """The application says that the user moved on. SGLang has no such path."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("POST", f"/guard/v1/conversations/{self.conversation}/generation",
                           json.dumps({"generation": generation}), {"content-type": "application/json"})
        connection.getresponse().read()
        connection.close()


@dataclasses.dataclass(frozen=True)
class Given:
    """An answer as a client got it."""

    status: int
    body: bytes
    stream: bool

    def message(self):
        message = json.loads(self.body)["choices"][0]["message"]
        return {key: message[key] for key in ("role", "content", "tool_calls")}

    def error(self):
        """The error that it holds, if any."""
        payloads = events(self.body) if self.is_streamed() else [json.loads(self.body)]
        errors = [p.get("error") or (p if p.get("object") == "error" else None) for p in payloads]
        return next(filter(None, errors), None)

    def calls(self):
        return calls_in(self.body, self.is_streamed())

    def is_streamed(self):
        return self.stream and self.status == 200

    def text(self):
        if not self.is_streamed():
            return "".join(choice["message"].get("content") or "" for choice in json.loads(self.body)["choices"])
        deltas = (choice["delta"] for event in events(self.body) for choice in event.get("choices", []))
        return "".join(delta.get("content") or "" for delta in deltas)


def says(name):
    """A question that the model answers by that script."""
    return {"role": "user", "content": f"What is the weather in Paris? {script(name)}"}


def call(id="call_1", arguments='{"city":"Paris"}', name="get_weather"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def proposes(*calls):
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(id="call_1", content='{"sky":"clear"}'):
    """A tool's result. The script in it is what the model says to it: an answer."""
    return {"role": "tool", "tool_call_id": id, "content": content.replace("}", f',"then":"{script("plain")}"}}')}


def listed(*messages, **options):
    """A request with that list."""
    return lambda side: side.ask(list(messages), **options)


def run(one, **options):
    """A request whose list holds that call and its result."""
    return listed(USER, proposes(one), result(one["id"]), **options)


REQUESTS = {
    "a result and no call before it": listed(USER, result()),
    "the result alone, with `session_id` in place of the list": listed(result(), session_id="s1"),
    "a result whose id no call has": listed(USER, proposes(call()), result("call_2")),
    "two results for one call": listed(USER, proposes(call()), result(), result(content='{"sky":"grey"}')),
    "a call without its result": listed(USER, proposes(call(), call("call_2")), result(), USER),
    "a user message between a call and its result": listed(USER, proposes(call()), USER, result()),
    "an id twice in one message": listed(USER, proposes(call(), call(name="get_time", arguments="{}")), result()),
    "a call whose id is empty, and a result to it": run(call("")),
    "a result without `tool_call_id`": listed(USER, proposes(call()), {"role": "tool", "content": "{}"}),
    "arguments that are an object and not a string": run(call(arguments={"city": "Paris"})),
    "arguments that were cut": run(call(arguments='{"city":"Par')),
    "arguments of two calls in one string": run(call(arguments='{"city":"Paris"}{"city":"Rome"}')),
    "arguments encoded twice": run(call(arguments=json.dumps('{"city":"Paris"}'))),
    "arguments that are a list": run(call(arguments='["Paris"]')),
    "a key twice in the arguments": run(call(arguments='{"city":"Paris","city":"Rome"}')),
}


def model(name, **options):
    """What the model said by that script, whole and streamed."""
    return lambda side, stream: side.ask([says(name)], stream, **options)


def said(text, before="", **options):
    """What the model said, whole and streamed."""
    return lambda side, stream: side.ask([{"role": "user", "content": before + raw(text)}], stream, **options)


def hermes(text):
    return f"<tool_call>\n{text}\n</tool_call>"


OTHER = '{"name": "rm_rf", "arguments": {"path": "/"}}'
LOOKUP = hermes('{"name": "get_weather", "arguments": {"city": "Paris", "unit": "c"}}')
ANSWERS = {
    "cut by `max_tokens` in a value": said(LOOKUP, max_tokens=14),
    "cut by `max_tokens` after the last token of a call": said(LOOKUP, max_tokens=len(tokens(LOOKUP))),
    "cut by an abort in a value": said(LOOKUP, before="[[abort:14]]"),
    "the model stops in a value": model("q_truncated_stop"),
    "the server fails inside a call": model("abort_500_mid_call"),
    "a call, with `tool_choice: \"none\"`": said(LOOKUP, tool_choice="none"),
    "a required argument missing": model("q_missing_required"),
    "an argument of another type": said(hermes('{"name": "get_weather", "arguments": {"city": 75001}}')),
    "arguments that are a list": said(hermes('{"name": "get_weather", "arguments": ["Paris"]}')),
    "arguments that are a string": said(hermes('{"name": "get_weather", "arguments": "{\\"city\\": \\"Paris\\"}"}')),
    "a key twice in the arguments": said(hermes('{"name": "get_weather", "arguments": {"city": "Paris", "city": "Rome"}}')),
    "broken JSON": model("q_badjson"),
}

UNKNOWN = {
    "a tool that was not offered": model("q_unknown"),
    "a call of an offered tool, and one of another": said(f"{LOOKUP}\n{hermes(OTHER)}"),
}


def older_request(side):
    side.proposed(2)
    return side.ask([says("plain")], generation=1)


def older_result(side):
    message = side.proposed(1)
    return side.ask([says("q_one"), message, result(message["tool_calls"][0]["id"])], generation=2)


def delivered_again(side):
    answered = [says("q_one"), (message := side.proposed(1)), result(message["tool_calls"][0]["id"])]
    side.ask(answered, generation=1)
    return side.ask(answered, generation=1)


def other_result(side):
    message = side.proposed(1)
    id = message["tool_calls"][0]["id"]
    side.ask([says("q_one"), message, result(id)], generation=1)
    return side.ask([says("q_one"), message, result(id, '{"sky":"grey"}')], generation=1)


def never_proposed(side):
    side.proposed(1)
    return side.ask([says("q_one"), proposes(call("call_9")), result("call_9")], generation=1)


def other_arguments(side):
    id = side.proposed(1)["tool_calls"][0]["id"]
    return side.ask([says("q_one"), proposes(call(id, '{"city":"Rome"}')), result(id)], generation=1)


def another_conversation(side):
    other = Side(side.port)
    other.proposed(1)
    message = side.proposed(1)
    return other.ask([says("q_one"), message, result(message["tool_calls"][0]["id"])], generation=1)


def moved_on(side):
    """The user moves on while the model writes, and the client waits for the old answer."""
    connection = side.begin([says("slow_answer")], True, 1)
    answer = connection.getresponse()
    begun = answer.read(1)
    side.moves_on(2)
    body = begun + answer.read()
    connection.close()
    return Given(answer.status, body, True)


TASKS = {
    "a request of a task that is over": older_request,
    "a result of the old task in the new one": older_result,
    "a result that was answered already": delivered_again,
    "another result for the same call": other_result,
    "a result for a call that the model did not make": never_proposed,
    "arguments other than the model's": other_arguments,
    "the result of another conversation's call": another_conversation,
    "the user moves on while the model writes": moved_on,
}
