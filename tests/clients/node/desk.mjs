// The application around the model, as in ../python/desk.py: the tools with what runs behind them, and
// questions to which the scripted model's answers are known.

export const orderA = "Where is my ORDER-A?";
export const orderB = "No, where is ORDER-B?";
export const oneThenAnother = "Where is ORDER-A, and where is ORDER-B? [[script:look_a,look_b,both]]";
export const bothAtOnce = "Where are ORDER-A and ORDER-B? [[script:look_both,both]]";
export const oddArguments = "File a claim. [[script:odd,claimed]]";

export const aIs = "ORDER-A is in transit.";
export const bIs = "ORDER-B is delivered.";
export const bothAre = "ORDER-A is in transit, and ORDER-B is delivered.";
export const claimed = "订单 ORDER-Ä: claim filed. “Done.”";

export const claim = {
  order_id: "ORDER-Ä", amount: 120000, share: 1e-7, note: '订单 / "q"\n😀', parts: ["lid", "Ärmel"],
};

/** What the tools do. `runs` tells which ran, in which order, and with what. */
export class Desk {
  runs = [];
  meanwhile = undefined;

  async get_order_status({ order_id }) {
    await this.#ran("get_order_status", { order_id });
    const status = { "ORDER-A": "in transit", "ORDER-B": "delivered" }[order_id];
    return JSON.stringify({ ok: true, order_id, status });
  }

  async file_claim({ order_id, amount, share, note, parts }) {
    await this.#ran("file_claim", { order_id, amount, share, note, parts });
    return JSON.stringify({ ok: true, status: "filed" });
  }

  async list_orders() {
    await this.#ran("list_orders", {});
    return JSON.stringify({ ok: true, orders: ["ORDER-A", "ORDER-B"] });
  }

  /** The orders that were looked up, in order. */
  lookedUp() {
    return this.runs.filter(([tool]) => tool === "get_order_status").map(([, given]) => given.order_id);
  }

  async #ran(tool, given) {
    this.runs.push([tool, given]);
    const act = this.meanwhile;
    this.meanwhile = undefined;
    await act?.();
  }
}

const text = { type: "string" };
const number = { type: "number" };

/** The parameters of each tool as JSON Schema. */
export const parameters = {
  get_order_status: { type: "object", properties: { order_id: text }, required: ["order_id"] },
  file_claim: {
    type: "object",
    properties: {
      order_id: text, amount: number, share: number, note: text, parts: { type: "array", items: text },
      urgent: { type: "boolean", default: false },
    },
    required: ["order_id", "amount", "share", "note", "parts"],
  },
  list_orders: { type: "object", properties: {} },
};
