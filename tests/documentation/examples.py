"""One example of each code, provoked at the built program: docs/error-bodies.md is what it answered.

    python examples.py --write    writes the page anew
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from running.process import ROOT, Process, binary, free_port  # noqa: E402
from world import PATIENCE, World  # noqa: E402

PAGE = ROOT / "docs/error-bodies.md"
HEAD = """\
# The error body of each code

What the guard answers, code by code, word for word. This page is written by a test that provokes each code at the
built program and fails when an answer is another one (`tests/documentation`). [codes.md](codes.md) has each code's
cause and way out.

Above each body stands what was done; a list, or the model's answer, is shortened to what matters. In a stream that
has begun, the same body is the last event, `data: {"error": …}`.
"""

PARAMETERS = {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": PARAMETERS}}
         for name in ("get_order_status", "refund_order")]
FOUND = '{"ok":true,"order_id":"ORDER-A","status":"in transit"}'
USER = {"role": "user", "content": "Where is ORDER-A?"}
NEXT = {"role": "user", "content": "And ORDER-B?"}
TEXT = {"content": "ORDER-A is in transit."}
EXAMPLES = {}


def call(id="call_1", name="get_order_status", arguments='{"order_id":"ORDER-A"}'):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def proposes(*calls):
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(id="call_1", content=FOUND):
    return {"role": "tool", "tool_call_id": id, "content": content}


def asks(*messages, **more):
    return {"model": "m", "messages": list(messages), "tools": TOOLS, **more}


def answered(one, content=FOUND):
    """The list that feeds a result back."""
    return asks(USER, proposes(one), result(one["id"], content))


class Example:
    """What was done, what of it is shown, and the answer."""

    def __init__(self, words, answer, shown=()):
        self.words, self.answer, self.shown = words, answer, list(shown)

    def text(self, code):
        head = [f"### `{code}`", "", self.words, ""]
        if self.shown:
            head += ["```", *(compact(one) for one in self.shown), "```", ""]
        kept = ("x-should-retry", "retry-after", "www-authenticate", "x-tigertally-notes")
        streamed = self.answer.headers["content-type"].startswith("text/event-stream")
        lines = [f"{self.answer.status}" + ", and in the last event of the stream:" * streamed]
        lines += [f"{name}: {self.answer.headers[name]}" for name in kept if name in self.answer.headers]
        if "x-tigertally-notes" not in self.answer.headers:
            lines += ["", json.dumps(self.answer.error(), indent=1, ensure_ascii=False)]
        return "\n".join([*head, "```", *lines, "```", ""])


def compact(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def example(code, **settings):
    """Registers what provokes `code`, at a guard with these settings."""
    def register(provoke):
        EXAMPLES[code] = (provoke, settings)
        return provoke
    return register


# --- the request ------------------------------------------------------------------------------------

def malformed(code, words, *messages):
    @example(code)
    def provoke(world):
        return Example(words, world.chat(asks(*messages)), messages)


@example("body_invalid")
def body_invalid(world):
    body = '{"model":"m","messages":[],"messages":[]}'
    return Example("A body in which a key stands twice: two parsers would read two lists.",
                   world.chat(body.encode()), [body])


malformed("orphan_result", "A result that no call stands before, as trimming leaves it.", USER, result())
malformed("unknown_result_id", "A result with another id than the call's.",
          USER, proposes(call()), result("call_2"))
malformed("repeated_result", "Two results for one call.",
          USER, proposes(call()), result(content="cancelled"), result())
malformed("missing_result", "Two calls and one result.",
          USER, proposes(call(), call("call_2")), result())
malformed("repeated_call_id", "One id for two calls.", USER, proposes(call(), call()), result())
malformed("missing_call_id", "A call without an id, in a list.", USER, proposes(call("")), result())
malformed("missing_result_id", "A result that names no call.",
          USER, proposes(call()), {"role": "tool", "content": FOUND})
malformed("arguments_not_string", "Arguments as an object, in a list.",
          USER, proposes(call(arguments={"order_id": "ORDER-A"})), result())
malformed("arguments_not_object", "Arguments that were cut, in a list.",
          USER, proposes(call(arguments='{"order_id":"ORD')), result())


@example("conversation_invalid")
def conversation_invalid(world):
    headers = [("x-conversation-id", "chat-17"), ("x-conversation-id", "chat-18")]
    return Example("Two conversation headers that disagree.", world.chat(asks(USER), headers=headers),
                   [f"{name}: {value}" for name, value in headers])


@example("generation_invalid")
def generation_invalid(world):
    return Example("A generation that is no number.", world.chat(asks(USER), "chat-17", "latest"),
                   ["x-generation: latest"])


# --- the ledger -------------------------------------------------------------------------------------

def proposed(world, one=None, generation=1, *before):
    """The model proposes a call in chat-17, and the client gets it."""
    one = one or call()
    world.model.says(proposes(one))
    got = world.chat(asks(*(before or (USER,))), "chat-17", generation)
    assert got.status == 200, got.text
    world.model.says(TEXT, "stop")
    return one


@example("stale_generation")
def stale_generation(world):
    world.model.says(TEXT, "stop")
    world.chat(asks(USER), "chat-17", 2)
    return Example("Generation 2 has begun, and a request of generation 1 comes in.",
                   world.chat(asks(USER), "chat-17", 1), ["x-generation: 1"])


@example("generation_required")
def generation_required(world):
    world.model.says(TEXT, "stop")
    world.chat(asks(USER), "chat-17", 1)
    return Example("A conversation that has used the header, and a request without it.",
                   world.chat(asks(NEXT), "chat-17"))


@example("unmatched")
def unmatched(world):
    proposed(world)
    invented = call("call_9")
    request = answered(invented)
    return Example("A call that nobody proposed in this conversation, with its result.",
                   world.chat(request, "chat-17", 1), request["messages"][1:])


@example("stale")
def stale(world):
    one = proposed(world)
    return Example("The call is of generation 1. The user has moved on to generation 2, and there its result comes in.",
                   world.chat(answered(one), "chat-17", 2), ["x-generation: 2", *answered(one)["messages"][1:]])


@example("late", tools__get_order_status__deadline="50ms")
def late(world):
    one = proposed(world)
    ends = time.monotonic() + PATIENCE
    while '"timed_out"' not in world.control("GET", "").text:
        assert time.monotonic() < ends
        time.sleep(0.05)
    return Example("The result of a call whose deadline has passed.", world.chat(answered(one), "chat-17", 1),
                   answered(one)["messages"][1:])


@example("mismatch", tools__get_order_status__echo="order_id")
def mismatch(world):
    one = proposed(world)
    request = answered(one, FOUND.replace("ORDER-A", "ORDER-B"))
    return Example('`echo = ["order_id"]`, and the result is of another order than the call.',
                   world.chat(request, "chat-17", 1), request["messages"][1:])


@example("duplicate")
def duplicate(world):
    one = proposed(world)
    world.chat(answered(one), "chat-17", 1)
    return Example("The same list again, after its answer was delivered.", world.chat(answered(one), "chat-17", 1))


@example("conflict")
def conflict(world):
    one = proposed(world)
    world.chat(answered(one), "chat-17", 1)
    request = answered(one, FOUND.replace("in transit", "lost"))
    return Example("Another result for a call that has one.", world.chat(request, "chat-17", 1),
                   request["messages"][1:])


@example("budget_exhausted", budget__model_calls="1")
def budget_exhausted(world):
    world.model.says(TEXT, "stop")
    world.chat(asks(USER), "chat-17", 1)
    return Example("`model_calls = 1`, and a second model call of the same task.",
                   world.chat(asks(NEXT), "chat-17", 1))


REFUND = call("call_refund", "refund_order")
AGAIN = call("call_refund_2", "refund_order")


@example("write_outcome_unknown", tools__refund_order__effect="write")
def write_outcome_unknown(world):
    proposed(world, REFUND)
    world.model.says(proposes(AGAIN))
    return Example("A refund went out in generation 1, and nobody said what became of it. In generation 2 the model "
                   "proposes the same one.", world.chat(asks(NEXT), "chat-17", 2), [AGAIN])


@example("write_applied", tools__refund_order__effect="write")
def write_applied(world):
    proposed(world, REFUND)
    world.model.says(TEXT, "stop")
    world.chat(asks(NEXT), "chat-17", 2)
    calls = json.loads(world.control("GET", "").text)["calls"]
    told = world.control("POST", f"/writes/{calls[0]['operation_key']}", {"outcome": "applied"})
    assert told.status == 200, told.text
    world.model.says(proposes(AGAIN))
    return Example("The same, but somebody said `applied` after generation 2 had begun.",
                   world.chat(asks(NEXT, {"role": "user", "content": "Well?"}), "chat-17", 2), [AGAIN])


# --- the model's answer -----------------------------------------------------------------------------

def bad_answer(code, words, *calls, finish="tool_calls", settings=None, **request):
    @example(code, **(settings or {}))
    def provoke(world):
        world.model.says(proposes(*calls), finish)
        return Example(words, world.chat(asks(USER, **request)), calls)


bad_answer("unknown_tool", "The model calls a tool that the request did not offer.", call(name="rm_rf"))
bad_answer("tool_not_allowed", '`allow = ["get_order_status"]`, and the model calls another tool.',
           call(name="refund_order"), settings={"tools__allow": "get_order_status"})
bad_answer("arguments_malformed", "Arguments that are not one JSON object.", call(arguments='{"order_id":"ORD'))
bad_answer("arguments_schema", "Arguments that do not fit the tool's schema.", call(arguments="{}"))
bad_answer("server_owned_argument", '`server_owned = ["user_id"]`, and the model says who the user is.',
           call(arguments='{"order_id":"ORDER-A","user_id":"42"}'),
           settings={"tools__get_order_status__server_owned": "user_id"})
bad_answer("tool_choice_violated", '`"tool_choice": "none"`, and a call.', call(), tool_choice="none")
bad_answer("too_many_calls", '`"parallel_tool_calls": false`, and two calls.', call(), call("call_2"),
           parallel_tool_calls=False)
bad_answer("truncated_call", '`"finish_reason": "length"`: the call was cut, though its text parses.',
           call(arguments='{"order_id":"ORD"}'), finish="length")


def piece(index, arguments, id=None, name=None):
    function = {"arguments": arguments} | ({"name": name} if name else {})
    one = {"index": index, "type": "function", "function": function} | ({"id": id} if id else {})
    return {"tool_calls": [one]}


def bad_stream(code, words, *deltas, shown=(), **more):
    settings = more.pop("settings", {})

    @example(code, **settings)
    def provoke(world):
        world.model.streams(*deltas, **more)
        return Example(words, world.chat(asks(USER, stream=True)), shown or deltas)


HEAD_OF_CALL = piece(0, "", "call_1", "get_order_status")
bad_stream("broken_stream", "In a stream: a second id at an index that is taken.",
           HEAD_OF_CALL, piece(0, '{"order_id":"ORDER-A"}', "call_2"))
bad_stream("truncated_stream", "A stream that ends without a finish.",
           {"role": "assistant", "content": "ORDER-A is"}, finish=None, done=False)
bad_stream("held_too_large", '`held_bytes = "1 KiB"`, and a longer call in a stream.',
           HEAD_OF_CALL, piece(0, '{"order_id":"' + "A" * 2000 + '"}'),
           shown=[HEAD_OF_CALL, piece(0, '{"order_id":"AAAA…"}')], settings={"limits__held_bytes": "1 KiB"})


# --- the way out ------------------------------------------------------------------------------------

def in_the_background(ask):
    """Asks while the model holds its answer; gives what waits for it."""
    got = []
    thread = threading.Thread(target=lambda: got.append(ask()))
    thread.start()

    def wait():
        thread.join(PATIENCE)
        return got[0]
    return wait


@example("stale_answer")
def stale_answer(world):
    world.model.says(TEXT, "stop")
    world.model.holds()
    wait = in_the_background(lambda: world.chat(asks(USER), "chat-17", 1))
    assert world.model.asked.wait(PATIENCE)
    assert world.control("POST", "/generation", {"generation": 2}).status == 200
    world.model.lets_go()
    return Example("The user moved on while the model was writing.", wait())


@example("overtaken")
def overtaken(world):
    world.model.says(TEXT, "stop")
    world.model.holds()
    wait = in_the_background(lambda: world.chat(asks(USER), "chat-17", 1))
    assert world.model.asked.wait(PATIENCE)
    newer = in_the_background(lambda: world.chat(asks(USER), "chat-17", 1))
    older = wait()
    world.model.lets_go()
    assert newer().status == 200
    return Example("The same was asked again while the model was writing: what the first one was told.", older)


# --- ports, sizes, failures -------------------------------------------------------------------------

def with_keys(provoke):
    """Runs it at a guard that knows one key, and gives it the key."""
    def run():
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "keys.toml")
            made = subprocess.run([binary(), "keys", "add", "--file", file, "--name", "agent", "--model", "qwen3"],
                                  capture_output=True, text=True, check=True)
            with World(auth__mode="keys", auth__keys_file=str(file)) as world:
                return provoke(world, [("authorization", f"Bearer {made.stdout.strip()}")])
    EXAMPLES[provoke.__name__] = (run, None)
    return provoke


@with_keys
def unauthenticated(world, _):
    return Example("No key where one is needed.", world.chat(asks(USER)))


@with_keys
def model_not_allowed(world, headers):
    return Example("A model that this key may not ask.", world.chat(asks(USER), headers=headers), ['"model": "m"'])


@example("route_closed")
def route_closed(world):
    return Example("A path that is not guarded.", world.send("POST", "/v1/embeddings", b"{}"), ["POST /v1/embeddings"])


@example("body_too_large", limits__body_bytes="1 KiB")
def body_too_large(world):
    return Example('`body_bytes = "1 KiB"`, and a longer request.',
                   world.chat(asks({"role": "user", "content": "A" * 2000})))


@example("upstream_unreachable", upstream=True)
def upstream_unreachable(world):
    return Example("Nobody listens at the upstream's address.", world.chat(asks(USER)))


@example("upstream_invalid")
def upstream_invalid(world):
    world.model.reply = (200, "application/json", b'{"choices":')
    return Example("An answer that is not the JSON that it says it is.", world.chat(asks(USER)), ['{"choices":'])


@example("upstream_timeout", upstream__first_byte_timeout="200ms")
def upstream_timeout(world):
    world.model.holds()
    got = world.chat(asks(USER))
    world.model.lets_go()
    return Example('`first_byte_timeout = "200ms"`, and a model that takes longer.', got)


def store_unavailable():
    """A disk that is full: a limit on the size of files is the same."""
    with tempfile.TemporaryDirectory() as folder, World() as world:
        port = free_port()
        small = "trap '' XFSZ; ulimit -f 4; exec \"$@\""
        argv = ["bash", "-c", small, "bash", binary(), "serve", "--upstream", f"http://127.0.0.1:{world.model.port}",
                "--listen", f"127.0.0.1:{port}", "--admin-listen", f"127.0.0.1:{free_port()}",
                "--store", f"embedded:{folder}/s"]
        world.model.says(TEXT, "stop")
        with Process(argv, f"http://127.0.0.1:{port}/health"):
            for number in range(100):
                got = world.send("POST", "/v1/chat/completions", json.dumps(asks(USER)).encode(),
                                 [("x-conversation-id", f"chat-{number}")], port)
                if got.status != 200:
                    return Example("The disk is full.", got)
    raise AssertionError("the disk never became full")


EXAMPLES["store_unavailable"] = (store_unavailable, None)


@example("identity_unavailable", auth__mode="jwt", auth__jwks_url="http://127.0.0.1:9/keys",
         auth__issuer="https://issuer.example/", auth__audience="tigertally")
def identity_unavailable(world):
    token = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImEifQ.eyJzdWIiOiJhZ2VudCJ9.c2lnbmF0dXJl"
    return Example("The issuer's keys could not be fetched even once.",
                   world.chat(asks(USER), headers=[("authorization", f"Bearer {token}")]))


@example("overloaded", limits__exchanges="1")
def overloaded(world):
    world.model.says(TEXT, "stop")
    world.model.holds()
    wait = in_the_background(lambda: world.chat(asks(USER)))
    assert world.model.asked.wait(PATIENCE)
    got = world.chat(asks(USER))
    world.model.lets_go()
    assert wait().status == 200
    return Example("`exchanges = 1`, and one is under way.", got)


@example("draining", limits__drain_timeout="200ms")
def draining(world):
    world.model.says(TEXT, "stop")
    world.model.holds()
    wait = in_the_background(lambda: world.chat(asks(USER)))
    assert world.model.asked.wait(PATIENCE)
    os.kill(world.guard.child.pid, signal.SIGTERM)
    got = wait()
    world.model.lets_go()
    return Example("The proxy was told to end, and this exchange was not done when the drain was.", got)


# --- notes ------------------------------------------------------------------------------------------

@example("schema_unusable")
def schema_unusable(world):
    world.model.says(proposes(call(name="f", arguments="{}")))
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": 7}}}]
    return Example("A call of a tool whose schema is none.", world.chat({**asks(USER), "tools": tools}),
                   ['"parameters": {"type": 7}'])


@example("history_changed")
def history_changed(world):
    one = proposed(world)
    world.chat(answered(one), "chat-17", 1)
    request = asks(USER, proposes(one), result(content="…"), {"role": "assistant", **TEXT}, NEXT)
    return Example("An old result that the client has shortened since.", world.chat(request, "chat-17", 2),
                   request["messages"][1:3])


@example("adopted")
def adopted(world):
    world.model.says(TEXT, "stop")
    request = answered(call())
    return Example("A conversation that began elsewhere: its first request here brings a call and its result.",
                   world.chat(request, "chat-17", 1), request["messages"][1:])


@example("substituted")
def substituted(world):
    one = proposed(world)
    request = asks(USER, proposes(one), result(), NEXT)
    return Example("In generation 2 the list still has the result of a call that was superseded: the model gets the notice.",
                   world.chat(request, "chat-17", 2), ["x-generation: 2", *request["messages"][1:]])


# --- the page ---------------------------------------------------------------------------------------

SECTIONS = {
    "The request": "body_invalid orphan_result unknown_result_id repeated_result missing_result repeated_call_id "
                   "missing_call_id missing_result_id arguments_not_string arguments_not_object conversation_invalid "
                   "generation_invalid",
    "The ledger": "stale_generation generation_required unmatched stale late mismatch duplicate conflict "
                  "budget_exhausted write_outcome_unknown write_applied",
    "The model's answer": "unknown_tool tool_not_allowed arguments_malformed arguments_schema server_owned_argument "
                          "tool_choice_violated too_many_calls truncated_call broken_stream truncated_stream "
                          "held_too_large",
    "The way out": "stale_answer overtaken",
    "Ports, sizes, failures": "unauthenticated model_not_allowed route_closed body_too_large upstream_unreachable "
                              "upstream_invalid identity_unavailable store_unavailable overloaded draining "
                              "upstream_timeout",
    "Notes only": "schema_unusable history_changed adopted substituted",
}


def provoked(code):
    """The example of a code, played anew."""
    provoke, settings = EXAMPLES[code]
    if settings is None:
        return provoke()
    settings = dict(settings)
    upstream = f"http://127.0.0.1:{free_port()}" if settings.pop("upstream", False) else None
    with World(upstream, **settings) as world:
        return provoke(world)


def told(code, one):
    """Whether the answer of an example tells that code."""
    notes = one.answer.headers.get("x-tigertally-notes", "")
    return code in notes if notes else code == one.answer.code()


def on_the_page():
    """The examples of the page as it is, by their codes."""
    parts = PAGE.read_text().split("\n### `")[1:]
    return {part.partition("`")[0]: "### `" + part.partition("\n## ")[0].rstrip() + "\n" for part in parts}


def main():
    page = [HEAD]
    for section, codes in SECTIONS.items():
        page += [f"## {section}", ""]
        for code in codes.split():
            print(code, file=sys.stderr)
            one = provoked(code)
            assert told(code, one), one.answer.text
            page += [one.text(code)]
    PAGE.write_text("\n".join(page).rstrip() + "\n")


if __name__ == "__main__" and "--write" in sys.argv:
    main()
