"""smolagents' `ToolCallingAgent`. It keeps calls and results as plain text, so its lists have no `tool`
messages to judge; it ends with a call, `final_answer`."""

import functools

import desk as orders
from smolagents import LogLevel, OpenAIModel, ToolCallingAgent, tool
from smolagents.utils import AgentGenerationError

# What the scripted model says after each result: it reads that in the result, which is the last user message.
THEN = {
    orders.ORDER_A: ["end_a"],
    orders.ORDER_B: ["end_b"],
    orders.ONE_THEN_ANOTHER: ["look_b", "end_both"],
    orders.BOTH_AT_ONCE: ["end_both", "end_both"],
    orders.ODD_ARGUMENTS: ["end_claim", "end_claim"],
}


class SmolAgents:
    """`agent.run`, and with `stream_outputs`."""

    whole = streamed = AgentGenerationError
    tries = {"busy": 3, "taken": 3}
    declares_retries = True
    has_tool_messages = False

    def __init__(self, url, desk, headers):
        self.desk = desk
        self.then = []
        model = OpenAIModel(
            "scripted", api_base=url, api_key="none", client_kwargs={"default_headers": headers})
        tools = [tool(self.followed(run)) for run in desk.tools()]
        self.agent = ToolCallingAgent(tools, model, verbosity_level=LogLevel.OFF, max_tool_threads=1)

    def followed(self, run):
        """A tool whose result also tells the scripted model what to say next."""
        @functools.wraps(run)
        def followed(*given, **named):
            return f"{run(*given, **named)} [[script:{self.then.pop(0)}]]"
        return followed

    def ask(self, question, stream):
        self.then = list(THEN.get(question, []))
        self.agent.stream_outputs = stream
        return self.agent.run(question, reset=False)

    @staticmethod
    def told(error):
        return error.__cause__.body
