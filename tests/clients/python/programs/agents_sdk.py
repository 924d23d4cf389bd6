"""OpenAI's Agents SDK on chat completions."""

import asyncio

import openai
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)

set_tracing_disabled(True)


class AgentsSdk:
    """`Runner.run` and `Runner.run_streamed`."""

    whole = openai.UnprocessableEntityError
    whole_400 = openai.BadRequestError
    streamed = openai.APIError
    tries = {"busy": 3, "taken": 3}
    declares_retries = True

    def __init__(self, url, desk, headers):
        self.url, self.desk, self.headers = url, desk, headers
        self.history = []

    def ask(self, question, stream):
        return asyncio.run(self._ask(question, stream))

    async def _ask(self, question, stream):
        async with openai.AsyncOpenAI(base_url=self.url, api_key="none") as client:
            agent = Agent(
                name="desk",
                tools=[function_tool(run, strict_mode=False, failure_error_function=None)
                       for run in self.desk.tools()],
                model=OpenAIChatCompletionsModel(model="scripted", openai_client=client),
                model_settings=ModelSettings(extra_headers=self.headers))
            asked = [*self.history, {"role": "user", "content": question}]
            if stream:
                result = Runner.run_streamed(agent, asked)
                async for _ in result.stream_events():
                    pass
            else:
                result = await Runner.run(agent, asked)
            self.history = result.to_input_list()
            return result.final_output

    def pending(self, question):
        self.history = [{"role": "user", "content": question}]

    def trim(self):
        first = next(n for n, item in enumerate(self.history)
                     if item.get("type") == "function_call_output")
        self.history = self.history[first:]

    @staticmethod
    def told(error):
        return error.body
