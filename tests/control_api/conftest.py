"""gateway → scripted upstream, and conversations whose calls are known to the test."""

import http.client
import json
import uuid

import pytest

from running.process import Gateway, ScriptedUpstream

TOOL = {
    "type": "function",
    "function": {
        "name": "get_order_status",
        "parameters": {
            "type": "object",
            "properties": {"order_id": {"type": "string"}},
            "required": ["order_id"],
        },
    },
}


class Rig:
    def __init__(self):
        self.upstream = ScriptedUpstream()
        try:
            self.gateway = Gateway(
                f"http://127.0.0.1:{self.upstream.port}",
                {"TIGERTALLY_TOOLS__GET_ORDER_STATUS__EFFECT": "write"})
        except BaseException:
            self.upstream.stop()
            raise
        self.url = f"http://127.0.0.1:{self.gateway.port}"

    def ask(self, method, path, body=None, headers=None):
        """Status, headers and JSON body of one call."""
        wire = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=30)
        try:
            wire.request(method, path, None if body is None else json.dumps(body), headers or {})
            answer = wire.getresponse()
            return answer.status, answer.headers, json.loads(answer.read())
        finally:
            wire.close()

    def conversation(self):
        """A new one in generation 1 with one open call: its id, the call's id and its operation key."""
        name = f"known-{uuid.uuid4()}"
        status, headers, answer = self.ask(
            "POST", "/v1/chat/completions",
            {"model": "scripted", "tools": [TOOL],
             "messages": [{"role": "user", "content": "Where is my ORDER-A?"}]},
            {"x-conversation-id": name, "x-generation": "1"})
        assert status == 200, answer
        [call] = answer["choices"][0]["message"]["tool_calls"]
        key = headers["x-tigertally-operations"].rpartition("=")[2]
        return name, call["id"], key

    def close(self):
        self.gateway.stop()
        self.upstream.stop()


@pytest.fixture(scope="session")
def rig():
    rig = Rig()
    yield rig
    rig.close()
