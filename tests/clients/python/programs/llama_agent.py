"""LlamaIndex' `FunctionAgent` on `OpenAILike`."""

import asyncio

import openai
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import Memory
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike


class LlamaIndex:
    """`agent.run`, on the LLM's answer whole or streamed."""

    whole = openai.UnprocessableEntityError
    whole_400 = openai.BadRequestError
    streamed = openai.APIError
    # The SDK tries four times, and LlamaIndex has three rounds of that where it knows the status.
    tries = {"busy": 12, "taken": 4}
    declares_retries = True

    def __init__(self, url, desk, headers):
        self.url, self.headers = url, headers
        self.tools = [FunctionTool.from_defaults(run) for run in desk.tools()]
        self.history = []

    def ask(self, question, stream):
        return asyncio.run(self._ask(question, stream))

    async def _ask(self, question, stream):
        # It keeps its connections, which belong to the event loop: one for each `asyncio.run`.
        llm = OpenAILike(
            model="scripted", api_base=self.url, api_key="none", default_headers=self.headers,
            is_chat_model=True, is_function_calling_model=True)
        agent = FunctionAgent(tools=self.tools, llm=llm, streaming=stream)
        memory = Memory.from_defaults(chat_history=self.history)
        answer = await agent.run(question, memory=memory)
        self.history = await memory.aget_all()
        return answer.response.content

    def pending(self, question):
        self.history = [ChatMessage(role="user", content=question)]

    def trim(self):
        first = next(n for n, said in enumerate(self.history) if said.role == "tool")
        self.history = self.history[first:]

    @staticmethod
    def told(error):
        return error.body
