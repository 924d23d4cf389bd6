"""LiteLLM as a client, with the loop written out."""

import json
import os

from desk import schemas

# It would ask the network for prices when it is loaded.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm  # noqa: E402

litellm.suppress_debug_info = True


class LiteLlm:
    """`litellm.completion`, streamed and joined with `stream_chunk_builder`."""

    # It has an `UnprocessableEntityError`, but does not use it here; `status_code` is 422.
    whole = litellm.BadRequestError
    whole_400 = litellm.BadRequestError
    streamed = litellm.exceptions.MidStreamFallbackError
    tries = {"busy": 3, "taken": 3}
    declares_retries = True

    def __init__(self, url, desk, headers):
        self.url, self.desk, self.headers = url, desk, headers
        self.history = []

    def ask(self, question, stream):
        messages = [*self.history, {"role": "user", "content": question}]
        while True:
            answer = litellm.completion(
                model="openai/scripted", api_base=self.url, api_key="none",
                extra_headers=self.headers, messages=messages, tools=schemas(), stream=stream)
            if stream:
                answer = litellm.stream_chunk_builder(list(answer), messages=messages)
            said = answer.choices[0].message
            messages.append(said)
            if not said.tool_calls:
                self.history = messages
                return said.content
            for call in said.tool_calls:
                run = getattr(self.desk, call.function.name)
                content = run(**json.loads(call.function.arguments or "{}"))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})

    def pending(self, question):
        self.history = [{"role": "user", "content": question}]

    def trim(self):
        """A window that cuts between a call and its result."""
        first = next(n for n, message in enumerate(self.history) if message["role"] == "tool")
        self.history = self.history[first:]

    @staticmethod
    def told(error):
        """In a stream LiteLLM's own error has neither code nor body: the SDK's, which it came from, has."""
        return error.body or error.__context__.body
