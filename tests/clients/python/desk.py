"""The application around the model: the tools with what runs behind them, and questions to which the
scripted model's answers are known."""

import json
import threading

ORDER_A = "Where is my ORDER-A?"
ORDER_B = "No, where is ORDER-B?"
ONE_THEN_ANOTHER = "Where is ORDER-A, and where is ORDER-B? [[script:look_a,look_b,both]]"
BOTH_AT_ONCE = "Where are ORDER-A and ORDER-B? [[script:look_both,both]]"
ODD_ARGUMENTS = "File a claim. [[script:odd,claimed]]"

A_IS = "ORDER-A is in transit."
B_IS = "ORDER-B is delivered."
BOTH_ARE = "ORDER-A is in transit, and ORDER-B is delivered."
CLAIMED = "订单 ORDER-Ä: claim filed. “Done.”"

CLAIM = {
    "order_id": "ORDER-Ä",
    "amount": 120000.0,
    "share": 1e-7,
    "note": "订单 / \"q\"\n😀",
    "parts": ["lid", "Ärmel"],
    "urgent": False,
}


class Desk:
    """What the tools do. `runs` tells which ran, in which order, and with what."""

    def __init__(self):
        self.runs = []
        self.meanwhile = None

    def get_order_status(self, order_id: str) -> str:
        """Looks up the status of an order.

        Args:
            order_id: The number of the order.
        """
        self._ran("get_order_status", order_id=order_id)
        status = {"ORDER-A": "in transit", "ORDER-B": "delivered"}[order_id]
        return json.dumps({"ok": True, "order_id": order_id, "status": status})

    def file_claim(
        self, order_id: str, amount: float, share: float, note: str, parts: list[str], urgent: bool = False
    ) -> str:
        """Files a claim about an order.

        Args:
            order_id: The number of the order.
            amount: What it cost.
            share: The part of it that is claimed.
            note: The reason.
            parts: What is broken.
            urgent: Whether it cannot wait.
        """
        self._ran("file_claim", order_id=order_id, amount=amount, share=share, note=note,
                  parts=list(parts), urgent=urgent)
        return json.dumps({"ok": True, "status": "filed"})

    def list_orders(self) -> str:
        """Lists all orders."""
        self._ran("list_orders")
        return json.dumps({"ok": True, "orders": ["ORDER-A", "ORDER-B"]})

    def tools(self):
        return [self.get_order_status, self.file_claim, self.list_orders]

    def looked_up(self):
        """The orders that were looked up, in order."""
        return [arguments["order_id"] for tool, arguments in self.runs if tool == "get_order_status"]

    def _ran(self, tool, **arguments):
        self.runs.append((tool, arguments))
        act, self.meanwhile = self.meanwhile, None
        if act is None:
            return
        # A thread of its own, since the tool may run inside an event loop. It is waited for.
        raised = []

        def run():
            try:
                act()
            except BaseException as error:
                raised.append(error)
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if raised:
            raise raised[0]


def schemas():
    """The tools as OpenAI's API takes them, for the clients that do not make this themselves."""
    def tool(name, required, **properties):
        return {"type": "function", "function": {"name": name, "parameters": {
            "type": "object", "properties": properties, "required": required}}}
    text, number = {"type": "string"}, {"type": "number"}
    return [
        tool("get_order_status", ["order_id"], order_id=text),
        tool("file_claim", ["order_id", "amount", "share", "note", "parts"], order_id=text,
             amount=number, share=number, note=text, parts={"type": "array", "items": text},
             urgent={"type": "boolean", "default": False}),
        tool("list_orders", []),
    ]
