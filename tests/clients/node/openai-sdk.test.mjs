// OpenAI's Node SDK, as an application uses it: default retries, whole and streamed.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";
import OpenAI from "openai";
import { startRig } from "./rig.mjs";

const tools = [{
  type: "function",
  function: {
    name: "get_order_status",
    parameters: {
      type: "object",
      properties: { order_id: { type: "string" } },
      required: ["order_id"],
    },
  },
}];
const question = { role: "user", content: "Where is my ORDER-A?" };
const orderA = { ok: true, order_id: "ORDER-A", status: "in transit" };
const timeout = 60_000;

let rig;
before(async () => { rig = await startRig(); }, { timeout });
after(() => rig?.close());

function client(headers = {}) {
  return new OpenAI({ baseURL: rig.baseURL, apiKey: "none", timeout: 20_000, defaultHeaders: headers });
}

/** The assistant message of an answer, whole or joined from a stream. */
async function complete(openai, messages, stream) {
  const request = { model: "scripted", messages, tools };
  if (!stream) return (await openai.chat.completions.create(request)).choices[0].message;
  const message = { role: "assistant", content: "" };
  const calls = new Map();
  for await (const event of await openai.chat.completions.create({ ...request, stream: true })) {
    for (const { delta } of event.choices) {
      message.content += delta.content ?? "";
      for (const piece of delta.tool_calls ?? []) {
        const call = calls.get(piece.index)
          ?? { id: "", type: "function", function: { name: "", arguments: "" } };
        calls.set(piece.index, call);
        call.id += piece.id ?? "";
        call.function.name += piece.function?.name ?? "";
        call.function.arguments += piece.function?.arguments ?? "";
      }
    }
  }
  return calls.size ? { ...message, tool_calls: [...calls.values()] } : message;
}

function result(call, content) {
  return { role: "tool", tool_call_id: call.id, content: JSON.stringify(content) };
}

/** What `act` sent to the gateway, and what of it reached the upstream. */
async function counted(act) {
  const [sent, forwarded] = [rig.sent(), rig.forwarded()];
  await act();
  return [rig.sent() - sent, rig.forwarded() - forwarded];
}

for (const stream of [false, true]) {
  const how = stream ? "streamed" : "whole";

  test(`the order query takes two model calls, ${how}`, { timeout }, async () => {
    const openai = client({ "x-conversation-id": randomUUID() });
    const counts = await counted(async () => {
      const proposal = await complete(openai, [question], stream);
      assert.equal(proposal.tool_calls.length, 1);
      const [call] = proposal.tool_calls;
      assert.equal(call.function.name, "get_order_status");
      assert.deepEqual(JSON.parse(call.function.arguments), { order_id: "ORDER-A" });
      const answer = await complete(openai, [question, proposal, result(call, orderA)], stream);
      assert.equal(answer.tool_calls, undefined);
      assert.match(answer.content, /in transit/);
    });
    assert.deepEqual(counts, [2, 2]);
  });

  test(`an orphan result throws at once, ${how}`, { timeout }, async () => {
    const orphan = { role: "tool", tool_call_id: "call_gone", content: "{}" };
    const counts = await counted(() => assert.rejects(
      complete(client(), [question, orphan], stream),
      (error) => error instanceof OpenAI.BadRequestError && error.code === "orphan_result"));
    assert.deepEqual(counts, [1, 0]);
  });

  for (const [generation, code] of [["1", "stale_generation"], ["2", "stale"]]) {
    test(`${code} throws at once, ${how}`, { timeout }, async () => {
      const conversation = randomUUID();
      const at = (number) => client({ "x-conversation-id": conversation, "x-generation": number });
      const proposal = await complete(at("1"), [question], stream);
      await complete(at("2"), [{ role: "user", content: "No, where is ORDER-B?" }], stream);
      const late = [question, proposal, result(proposal.tool_calls[0], orderA)];
      const counts = await counted(() => assert.rejects(
        complete(at(generation), late, stream),
        (error) => error instanceof OpenAI.UnprocessableEntityError && error.code === code));
      assert.deepEqual(counts, [1, 0]);
    });
  }

  for (const [script, code] of [
    ["unknown_tool", "unknown_tool"],
    ["text_then_unknown_tool", "unknown_tool"],
    ["cut", "truncated_call"],
  ]) {
    test(`a refused answer throws at once: ${script}, ${how}`, { timeout }, async () => {
      const kind = stream ? OpenAI.APIError : OpenAI.UnprocessableEntityError;
      const counts = await counted(() => assert.rejects(
        complete(client(), [{ role: "user", content: `[[script:${script}]]` }], stream),
        (error) => error instanceof kind && error.code === code));
      assert.equal(counts[0], 1);
    });
  }
}
