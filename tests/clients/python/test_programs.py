"""The same stories through each client program: what its user sees, and what it sends."""

import importlib
import os

import pytest

import desk as orders

# Which client programs there are, by the environment that they are installed in.
FAMILIES = {
    "agents": {
        "openai": ("openai_loop", "Blocking"),
        "openai-async": ("openai_loop", "Awaiting"),
        "langchain": ("langchain_agent", "LangChain"),
        "agents-sdk": ("agents_sdk", "AgentsSdk"),
        "pydantic-ai": ("pydantic_agent", "PydanticAi"),
        "smolagents": ("smol_agent", "SmolAgents"),
    },
    "llama": {
        "llama-index": ("llama_agent", "LlamaIndex"),
        "litellm": ("litellm_loop", "LiteLlm"),
    },
}
PROGRAMS = FAMILIES[os.environ.get("CLIENT_FAMILY", "agents")]

STREAMING = pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])


@pytest.fixture(params=PROGRAMS)
def program(request):
    module, name = PROGRAMS[request.param]
    return getattr(importlib.import_module(f"programs.{module}"), name)


@pytest.fixture
def begin(rig, program, desk, conversation):
    """Makes the program ready for a task of this test's conversation."""
    def begin(generation=None):
        headers = {"x-conversation-id": conversation}
        if generation is not None:
            headers["x-generation"] = str(generation)
        return program(rig.base_url, desk, headers)
    return begin


def counted(rig, act):
    """What `act` gave, and how many requests reached the gateway and the upstream meanwhile."""
    sent, forwarded = rig.counts()
    given = act()
    return given, (rig.sent() - sent, rig.forwarded() - forwarded)


def refused(rig, program, act, kind, code):
    """`act` must raise `kind`, from which its user reads code and way out. Gives the counts."""
    sent, forwarded = rig.counts()
    with pytest.raises(kind) as raised:
        act()
    told = program.told(raised.value)
    assert told["code"] == code
    assert told["faults"][0]["code"] == code
    assert len(told["faults"][0]["recovery"]) > 20
    return rig.sent() - sent, rig.forwarded() - forwarded


@STREAMING
@pytest.mark.parametrize("question, answer, looked_up, requests", [
    (orders.ORDER_A, orders.A_IS, ["ORDER-A"], 2),
    (orders.ONE_THEN_ANOTHER, orders.BOTH_ARE, ["ORDER-A", "ORDER-B"], 3),
    (orders.BOTH_AT_ONCE, orders.BOTH_ARE, ["ORDER-A", "ORDER-B"], 2),
], ids=["one", "one-then-another", "both-at-once"])
def test_orders_are_looked_up(rig, begin, desk, stream, question, answer, looked_up, requests):
    said, counts = counted(rig, lambda: begin().ask(question, stream))
    assert said == answer
    assert sorted(desk.looked_up()) == looked_up
    assert counts == (requests, requests)
    assert rig.changed() == []


@STREAMING
def test_arguments_come_back_as_they_went(rig, begin, desk, stream):
    said, counts = counted(rig, lambda: begin().ask(orders.ODD_ARGUMENTS, stream))
    assert said == orders.CLAIMED
    assert sorted(desk.runs, key=lambda run: run[0]) == [("file_claim", orders.CLAIM), ("list_orders", {})]
    assert counts == (2, 2)
    assert rig.changed() == []


@STREAMING
def test_a_chat_goes_on_from_task_to_task(rig, begin, desk, stream):
    chat = begin()
    said = [chat.ask(question, stream)
            for question in (orders.ORDER_A, orders.BOTH_AT_ONCE, orders.ORDER_B, orders.ORDER_A)]
    assert said == [orders.A_IS, orders.BOTH_ARE, orders.B_IS, orders.A_IS]
    assert sorted(desk.looked_up()) == ["ORDER-A"] * 3 + ["ORDER-B"] * 2
    assert rig.changed() == []


@STREAMING
def test_the_user_moves_on_in_a_new_generation(rig, program, begin, desk, stream):
    answers = []
    desk.meanwhile = lambda: answers.append(begin(2).ask(orders.ORDER_B, stream))
    counts = refused(rig, program, lambda: begin(1).ask(orders.ORDER_A, stream),
                     program.whole, "stale_generation")
    assert answers == [orders.B_IS]
    assert desk.looked_up() == ["ORDER-A", "ORDER-B"]
    assert counts == (4, 3)
    assert rig.changed() == []


@STREAMING
def test_the_user_moves_on_in_the_same_chat(rig, program, begin, desk, stream):
    if not getattr(program, "has_tool_messages", True):
        pytest.skip("its history is text: there is no result to refuse")
    answers = []

    def ask_b():
        chat = begin()
        chat.pending(orders.ORDER_A)
        answers.append(chat.ask(orders.ORDER_B, stream))
    desk.meanwhile = ask_b
    counts = refused(rig, program, lambda: begin().ask(orders.ORDER_A, stream), program.whole, "stale")
    assert answers == [orders.B_IS]
    assert desk.looked_up() == ["ORDER-A", "ORDER-B"]
    assert counts == (4, 3)
    assert rig.changed() == []


@STREAMING
def test_a_result_without_its_call_is_refused(rig, program, begin, desk, stream):
    if not getattr(program, "has_tool_messages", True):
        pytest.skip("its history is text: there is no result to refuse")
    chat = begin()
    chat.ask(orders.ORDER_A, stream)
    chat.trim()
    if getattr(program, "mends_orphans", False):
        assert counted(rig, lambda: chat.ask(orders.ORDER_B, stream)) == (orders.B_IS, (2, 2))
        return
    counts = refused(rig, program, lambda: chat.ask(orders.ORDER_B, stream),
                     program.whole_400, "orphan_result")
    assert desk.looked_up() == ["ORDER-A"]
    assert counts == (1, 0)


@STREAMING
@pytest.mark.parametrize("script, code", [
    ("unknown_tool", "unknown_tool"),
    ("text_then_unknown_tool", "unknown_tool"),
    ("good_and_unknown_tool", "unknown_tool"),
    ("cut", "truncated_call"),
])
def test_a_bad_call_is_refused(rig, program, begin, desk, stream, script, code):
    kind = program.streamed if stream else program.whole
    counts = refused(rig, program, lambda: begin().ask(f"Go on. [[script:{script}]]", stream), kind, code)
    assert desk.runs == []
    assert counts == (1, 1)


@pytest.mark.parametrize("script", ["busy", "taken"])
def test_a_failing_upstream_is_asked_again(rig, program, begin, script):
    sent = rig.sent()
    with pytest.raises(Exception):
        begin().ask(f"Go on. [[script:{script}]]", False)
    assert rig.sent() - sent == program.tries[script]


def test_a_lost_answer_is_asked_for_again(rig, program, begin, desk):
    """The second answer is lost after the gateway gave it: only a declared retry gets another."""
    desk.meanwhile = rig.tap.lose_next_answer
    def ask():
        return begin().ask(orders.ORDER_A, False)
    if program.declares_retries:
        said, counts = counted(rig, ask)
        assert said == orders.A_IS
    else:
        counts = refused(rig, program, ask, program.whole, "duplicate")
    assert desk.looked_up() == ["ORDER-A"]
    assert counts == (3, 3 if program.declares_retries else 2)
