"""What an application does against the proxy, for the console to show."""

import http.client
import json

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


class Application:
    """One conversation's client."""

    def __init__(self, port, conversation):
        self.port, self.conversation = port, conversation

    def post(self, path, body, headers=None):
        wire = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            wire.request("POST", path, json.dumps(body), headers or {})
            answer = wire.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            wire.close()

    def chat(self, messages, generation=None, **more):
        headers = {"content-type": "application/json"}
        if self.conversation is not None:
            headers["x-conversation-id"] = self.conversation
        if generation is not None:
            headers["x-generation"] = str(generation)
        body = {"model": "m", "tools": [TOOL], "messages": messages, **more}
        return self.post("/v1/chat/completions", body, headers)


def question(order, delay="20"):
    return [{"role": "user", "content": f"Where is {order}? [[delay:{delay}]]"}]


def with_result(messages, answer, status):
    [call] = answer["choices"][0]["message"]["tool_calls"]
    order = json.loads(call["function"]["arguments"])["order_id"]
    content = json.dumps({"order_id": order, "status": status})
    return messages + [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": content},
    ]


def ask_a(app, generation=41):
    """The user asks for A: the question, and the model's call."""
    status, answer = app.chat(question("ORDER-A"), generation)
    assert status == 200, answer
    return question("ORDER-A"), answer


def ask_b_and_answer(app, list_a, answer_a, generation=42):
    """The user asks for B instead; A's result comes back stale, and B is answered."""
    list_b = question("ORDER-B", "20,60")
    status, answer = app.chat(list_b, generation)
    assert status == 200, answer
    status, refused = app.chat(with_result(list_b, answer_a, "in_transit"), generation)
    assert (status, refused["error"]["code"]) == (422, "stale"), refused
    status, refused = app.chat(with_result(list_a, answer_a, "in_transit"), generation - 1)
    assert (status, refused["error"]["code"]) == (422, "stale_generation"), refused
    status, last = app.chat(with_result(list_b, answer, "delivered"), generation)
    assert status == 200, last
    return last["choices"][0]["message"]["content"]
