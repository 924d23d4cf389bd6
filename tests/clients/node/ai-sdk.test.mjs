// What the AI SDK does that other clients don't, and what helps.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";
import { generateText, stepCountIs, tool } from "ai";
import { z } from "zod";
import * as orders from "./desk.mjs";
import { Compatible } from "./programs/ai-sdk.mjs";
import { startRig } from "./rig.mjs";

const timeout = 60_000;
const rigs = {};
before(async () => {
  rigs.standard = await startRig();
  rigs.edits = await startRig({ TIGERTALLY_TOOLS__FILE_CLAIM__EDITS: "note" });
  rigs.repeated = await startRig({ TIGERTALLY_RESULTS__REPEATED: "allow" });
}, { timeout });
after(() => Promise.all(Object.values(rigs).map((rig) => rig.close())));

/** Files a claim with a tool whose schema has a default that the model's call leaves out. */
function withDefault(rig) {
  const inputSchema = z.object({
    order_id: z.string(), amount: z.number(), share: z.number(), note: z.string(),
    parts: z.array(z.string()), urgent: z.boolean().default(false),
  });
  const ran = [];
  const tools = {
    file_claim: tool({ inputSchema, execute: (given) => { ran.push(given); return "filed"; } }),
    list_orders: tool({ inputSchema: z.object({}), execute: () => "[]" }),
  };
  const answer = generateText({
    model: Compatible.modelAt(rig.baseURL), tools, prompt: orders.oddArguments,
    headers: { "x-conversation-id": randomUUID() }, stopWhen: stepCountIs(5),
  });
  return { answer, ran };
}

test("a default that the SDK fills in is not what the model proposed", { timeout }, async () => {
  const { answer, ran } = withDefault(rigs.standard);
  await assert.rejects(answer, (error) => Compatible.told(error).code === "mismatch");
  assert.deepEqual(ran, [{ ...orders.claim, urgent: false }]);
});

test("with `edits = \"note\"` it passes, and is noted", { timeout }, async () => {
  const { answer, ran } = withDefault(rigs.edits);
  const { text, response } = await answer;
  assert.equal(text, orders.claimed);
  assert.equal(ran.length, 1);
  assert.match(response.headers["x-tigertally-notes"], /^mismatch@/);
});

for (const [how, setting, header] of [
  ["an idempotency key for the task", "standard", { "idempotency-key": randomUUID() }],
  ["`repeated = \"allow\"`", "repeated", {}],
]) {
  test(`with ${how} a lost answer is given again`, { timeout }, async () => {
    const rig = rigs[setting];
    const desk = new orders.Desk();
    desk.meanwhile = () => rig.loseNextAnswer();
    const headers = { "x-conversation-id": randomUUID(), ...header };
    const sent = rig.sent();
    assert.equal(await new Compatible(rig.baseURL, desk, headers).ask(orders.orderA, false), orders.aIs);
    assert.deepEqual(desk.lookedUp(), ["ORDER-A"]);
    assert.equal(rig.sent() - sent, 3);
  });
}
