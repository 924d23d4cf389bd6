"""OpenAI's Python SDK with the loop written out, sync and async."""

import asyncio
import json

import openai

from desk import schemas

MODEL = "scripted"


def run(desk, call):
    """The tool message that answers a call."""
    arguments = json.loads(call["function"]["arguments"] or "{}")
    content = getattr(desk, call["function"]["name"])(**arguments)
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


def told(error):
    """OpenAI's errors hold the `error` object of the answer, in a stream as well."""
    return error.body


class Loop:
    """What both have in common."""

    whole = openai.UnprocessableEntityError
    whole_400 = openai.BadRequestError
    streamed = openai.APIError
    told = staticmethod(told)
    tries = {"busy": 3, "taken": 3}
    declares_retries = True

    def __init__(self, url, desk, headers):
        self.url, self.desk, self.headers = url, desk, headers
        self.history = []

    def pending(self, question):
        self.history = [{"role": "user", "content": question}]

    def trim(self):
        """A window that cuts between a call and its result."""
        first = next(n for n, message in enumerate(self.history) if message["role"] == "tool")
        self.history = self.history[first:]


class Blocking(Loop):
    """`openai.OpenAI`, streamed with the helper that joins the pieces."""

    def ask(self, question, stream):
        client = openai.OpenAI(
            base_url=self.url, api_key="none", default_headers=self.headers)
        messages = [*self.history, {"role": "user", "content": question}]
        while True:
            request = {"model": MODEL, "messages": messages, "tools": schemas()}
            if stream:
                with client.chat.completions.stream(**request) as events:
                    message = events.get_final_completion().choices[0].message
            else:
                message = client.chat.completions.create(**request).choices[0].message
            said = message.to_dict()
            said.pop("parsed", None)
            for call in said.get("tool_calls") or []:
                call["function"].pop("parsed_arguments", None)
            messages.append(said)
            if not message.tool_calls:
                self.history = messages
                return message.content
            messages += [run(self.desk, call) for call in said["tool_calls"]]


class Awaiting(Loop):
    """`openai.AsyncOpenAI`, streamed piece by piece."""

    def ask(self, question, stream):
        return asyncio.run(self._ask(question, stream))

    async def _ask(self, question, stream):
        async with openai.AsyncOpenAI(
            base_url=self.url, api_key="none", default_headers=self.headers
        ) as client:
            messages = [*self.history, {"role": "user", "content": question}]
            while True:
                request = {"model": MODEL, "messages": messages, "tools": schemas()}
                if stream:
                    chunks = await client.chat.completions.create(**request, stream=True)
                    said = join([chunk async for chunk in chunks])
                else:
                    answer = await client.chat.completions.create(**request)
                    said = answer.choices[0].message.to_dict()
                messages.append(said)
                if not said.get("tool_calls"):
                    self.history = messages
                    return said["content"]
                messages += [run(self.desk, call) for call in said["tool_calls"]]


def join(chunks):
    """The assistant message that a streamed answer amounts to."""
    text, calls = "", {}
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        text += choice.delta.content or ""
        for piece in choice.delta.tool_calls or []:
            call = calls.setdefault(piece.index, {
                "id": "", "type": "function", "function": {"name": "", "arguments": ""}})
            call["id"] += piece.id or ""
            call["function"]["name"] += piece.function.name or ""
            call["function"]["arguments"] += piece.function.arguments or ""
    message = {"role": "assistant", "content": text}
    return {**message, "tool_calls": list(calls.values())} if calls else message
