"""LangChain's agent (a LangGraph graph) on `ChatOpenAI`."""

import openai
from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI


class LangChain:
    """`create_agent`: invoked, or streamed message by message."""

    whole = openai.UnprocessableEntityError
    whole_400 = openai.BadRequestError
    streamed = openai.APIError
    tries = {"busy": 3, "taken": 3}
    declares_retries = True

    def __init__(self, url, desk, headers):
        model = ChatOpenAI(
            model="scripted", base_url=url, api_key="none", default_headers=headers)
        self.agent = create_agent(model, [tool(run) for run in desk.tools()])
        self.history = []

    def ask(self, question, stream):
        state = {"messages": [*self.history, HumanMessage(question)]}
        if not stream:
            self.history = self.agent.invoke(state)["messages"]
            return self.history[-1].text
        said = ""
        for mode, event in self.agent.stream(state, stream_mode=["messages", "values"]):
            if mode == "values":
                self.history = event["messages"]
            elif isinstance(event[0], AIMessageChunk):
                said += event[0].text
            else:
                said = ""
        return said

    def pending(self, question):
        self.history = [HumanMessage(question)]

    def trim(self):
        first = next(n for n, said in enumerate(self.history) if isinstance(said, ToolMessage))
        self.history = self.history[first:]

    @staticmethod
    def told(error):
        return error.body
