"""pydantic-ai on its OpenAI chat model."""

from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.messages import ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


class PydanticAi:
    """`Agent.run_sync`, streamed through an event handler. (`run_stream` takes the first text for the last
    word: an answer with text beside a call ends it.)"""

    whole = ModelHTTPError
    whole_400 = ModelHTTPError
    streamed = ModelAPIError
    mends_orphans = True
    tries = {"busy": 3, "taken": 3}
    declares_retries = True

    def __init__(self, url, desk, headers):
        provider = OpenAIProvider(base_url=url, api_key="none")
        self.agent = Agent(
            OpenAIChatModel("scripted", provider=provider), tools=desk.tools(),
            model_settings={"extra_headers": headers})
        self.history = []

    def ask(self, question, stream):
        async def each(_context, events):
            async for _ in events:
                pass
        result = self.agent.run_sync(
            question, message_history=self.history, event_stream_handler=each if stream else None)
        self.history = result.all_messages()
        return result.output

    def pending(self, question):
        self.history = [ModelRequest(parts=[UserPromptPart(question)])]

    def trim(self):
        first = next(n for n, said in enumerate(self.history)
                     if any(isinstance(part, ToolReturnPart) for part in said.parts))
        self.history = self.history[first:]

    @staticmethod
    def told(error):
        return error.body
