"""LangGraph: an agent that stops for a human and goes on later, and retries of its own."""

import openai
import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, RetryPolicy, interrupt

import desk as orders

THREAD = {"configurable": {"thread_id": "1"}}


def model(rig, conversation, generation=None):
    headers = {"x-conversation-id": conversation}
    if generation is not None:
        headers["x-generation"] = str(generation)
    return ChatOpenAI(
        model="scripted", base_url=rig.base_url, api_key="none", default_headers=headers)


def ask(question):
    return {"messages": [HumanMessage(question)]}


def approved(rig, conversation, desk, generation=None, saver=None):
    """A ReAct agent on whose calls a human decides."""
    return create_agent(
        model(rig, conversation, generation), [tool(run) for run in desk.tools()],
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"get_order_status": True})],
        checkpointer=saver or InMemorySaver())


def decide(*decisions):
    return Command(resume={"decisions": list(decisions)})


@pytest.mark.parametrize("question, answer, calls, rounds", [
    (orders.ORDER_A, orders.A_IS, 1, 1),
    (orders.ONE_THEN_ANOTHER, orders.BOTH_ARE, 1, 2),
    (orders.BOTH_AT_ONCE, orders.BOTH_ARE, 2, 1),
], ids=["one", "one-then-another", "both-at-once"])
def test_an_interrupted_agent_goes_on(rig, conversation, desk, question, answer, calls, rounds):
    agent = approved(rig, conversation, desk)
    state = agent.invoke(ask(question), THREAD)
    for _ in range(rounds):
        assert "__interrupt__" in state
        state = agent.invoke(decide(*[{"type": "approve"}] * calls), THREAD)
    assert state["messages"][-1].text == answer
    assert len(desk.looked_up()) == calls * rounds
    assert rig.counts() == (rounds + 1, rounds + 1)
    assert rig.changed() == []


def test_a_rejected_call_has_a_result_and_passes(rig, conversation, desk):
    agent = approved(rig, conversation, desk)
    agent.invoke(ask(orders.ORDER_A), THREAD)
    agent.invoke(decide({"type": "reject", "message": "Not today."}), THREAD)
    assert agent.invoke(ask(orders.ORDER_B), THREAD)["__interrupt__"]
    state = agent.invoke(decide({"type": "approve"}), THREAD)
    assert state["messages"][-1].text == orders.B_IS
    assert desk.looked_up() == ["ORDER-B"]
    assert rig.changed() == []


EDIT = {"type": "edit", "edited_action": {"name": "get_order_status", "args": {"order_id": "ORDER-B"}}}


def test_arguments_that_a_human_changed_pass(rig, conversation, desk):
    """The call stays in the list as it was proposed; the result's text says what ran in its place."""
    agent = approved(rig, conversation, desk)
    agent.invoke(ask("Where is it? [[script:look_a,both]]"), THREAD)
    assert agent.invoke(decide(EDIT), THREAD)["messages"][-1].text == orders.BOTH_ARE
    assert desk.looked_up() == ["ORDER-B"]
    assert rig.counts() == (2, 2)
    assert rig.changed() == []


def test_an_agent_that_goes_on_after_the_user_moved_on_is_refused(rig, conversation, desk):
    saver = InMemorySaver()
    first = approved(rig, conversation, desk, 1, saver)
    first.invoke(ask(orders.ORDER_A), THREAD)
    other = {"configurable": {"thread_id": "2"}}
    second = approved(rig, conversation, desk, 2, saver)
    second.invoke(ask(orders.ORDER_B), other)
    with pytest.raises(openai.UnprocessableEntityError) as refused:
        first.invoke(decide({"type": "approve"}), THREAD)
    assert refused.value.code == "stale_generation"
    assert second.invoke(decide({"type": "approve"}), other)["messages"][-1].text == orders.B_IS
    assert rig.counts() == (4, 3)


def graph(rig, conversation, desk, retry):
    """A graph of its own: a model, its tools, and a tool that stops for a human."""
    def approved(order_id: str) -> str:
        """Looks up the status of an order, once a human agrees."""
        assert interrupt({"order": order_id}) == "yes"
        return desk.get_order_status(order_id)
    tools = [tool("get_order_status")(approved)]
    bound = model(rig, conversation).bind_tools(tools)

    def speak(state: MessagesState):
        return {"messages": [bound.invoke(state["messages"])]}
    built = StateGraph(MessagesState)
    built.add_node("speak", speak, retry_policy=retry)
    built.add_node("tools", ToolNode(tools))
    built.add_edge(START, "speak")
    built.add_conditional_edges("speak", tools_condition, ["tools", END])
    built.add_edge("tools", "speak")
    return built.compile(checkpointer=InMemorySaver())


def test_a_tool_that_interrupts_runs_once(rig, conversation, desk):
    """One at a time: of two that interrupt side by side LangGraph runs the first again with the second."""
    agent = graph(rig, conversation, desk, None)
    assert agent.invoke(ask(orders.ORDER_A), THREAD)["__interrupt__"]
    state = agent.invoke(Command(resume="yes"), THREAD)
    assert state["messages"][-1].text == orders.A_IS
    assert desk.looked_up() == ["ORDER-A"]
    assert rig.counts() == (2, 2)


def may_help(error):
    """Whether asking again may help: not where an answer says no."""
    return not isinstance(error, openai.APIStatusError) or error.status_code >= 500


@pytest.mark.parametrize("retry, requests", [
    (None, 1),
    (RetryPolicy(initial_interval=0.01), 3),
    (RetryPolicy(initial_interval=0.01, retry_on=may_help), 1),
], ids=["none", "default", "told"])
def test_its_retry_policy_repeats_a_refusal_unless_told(rig, conversation, desk, retry, requests):
    agent = graph(rig, conversation, desk, retry)
    with pytest.raises(openai.UnprocessableEntityError) as refused:
        agent.invoke(ask("Go on. [[script:unknown_tool]]"), THREAD)
    assert refused.value.code == "unknown_tool"
    assert rig.counts() == (requests, requests)
