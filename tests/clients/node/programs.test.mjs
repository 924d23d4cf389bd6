// The same stories through each client program: what its user sees, and what it sends.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { after, before, test } from "node:test";
import * as orders from "./desk.mjs";
import { Compatible, OpenAiProvider } from "./programs/ai-sdk.mjs";
import { Loop, RunTools } from "./programs/openai-loop.mjs";
import { startRig } from "./rig.mjs";

const programs = {
  "openai": Loop, "openai runTools": RunTools, "ai-sdk openai-compatible": Compatible, "ai-sdk openai": OpenAiProvider,
};
const timeout = 60_000;

let rig;
before(async () => { rig = await startRig(); }, { timeout });
after(() => rig?.close());

/** What a story needs: a desk, a conversation, and the program made ready for a task of it. */
function scene(Program) {
  const desk = new orders.Desk();
  const conversation = randomUUID();
  const begin = (generation) => new Program(rig.baseURL, desk, {
    "x-conversation-id": conversation,
    ...(generation === undefined ? {} : { "x-generation": String(generation) }),
  });
  return { desk, begin };
}

/** What `act` gave, and how many requests reached the gateway and the upstream meanwhile. */
async function counted(act) {
  const [sent, forwarded] = [rig.sent(), rig.forwarded()];
  const given = await act();
  return [given, [rig.sent() - sent, rig.forwarded() - forwarded]];
}

/** `act` must throw `kind`, from which its user reads code and way out. Gives the counts. */
async function refused(Program, act, kind, code) {
  const [, counts] = await counted(() => assert.rejects(act, (error) => {
    assert.ok(error instanceof kind, `${error?.constructor?.name}: ${error?.message}`);
    const told = Program.told(error);
    assert.equal(told.code, code);
    if (told.faults || Program.streamedFaults !== false) {
      assert.equal(told.faults[0].code, code);
      assert.ok(told.faults[0].recovery.length > 20);
    }
    return true;
  }));
  return counts;
}

for (const [name, Program] of Object.entries(programs)) {
  for (const stream of [false, true]) {
    const story = (title, act) => test(`${name}, ${stream ? "streamed" : "whole"}: ${title}`, { timeout }, act);

    for (const [title, question, answer, lookedUp, requests] of [
      ["one order", orders.orderA, orders.aIs, ["ORDER-A"], 2],
      ["one order, then another", orders.oneThenAnother, orders.bothAre, ["ORDER-A", "ORDER-B"], 3],
      ["both at once", orders.bothAtOnce, orders.bothAre, ["ORDER-A", "ORDER-B"], 2],
    ]) {
      story(`${title} is looked up`, async () => {
        const { desk, begin } = scene(Program);
        const [said, counts] = await counted(() => begin().ask(question, stream));
        assert.equal(said, answer);
        assert.deepEqual(desk.lookedUp().sort(), lookedUp);
        assert.deepEqual(counts, [requests, requests]);
        assert.deepEqual(rig.changed(), []);
      });
    }

    story("arguments come back as they went", async () => {
      const { desk, begin } = scene(Program);
      const [said, counts] = await counted(() => begin().ask(orders.oddArguments, stream));
      assert.equal(said, orders.claimed);
      assert.deepEqual(desk.runs.sort(), [["file_claim", orders.claim], ["list_orders", {}]]);
      assert.deepEqual(counts, [2, 2]);
      assert.deepEqual(rig.changed(), []);
    });

    story("a chat goes on from task to task", async () => {
      const { desk, begin } = scene(Program);
      const chat = begin();
      const said = [];
      for (const question of [orders.orderA, orders.bothAtOnce, orders.orderB, orders.orderA]) {
        said.push(await chat.ask(question, stream));
      }
      assert.deepEqual(said, [orders.aIs, orders.bothAre, orders.bIs, orders.aIs]);
      assert.equal(desk.runs.length, 5);
      assert.deepEqual(rig.changed(), []);
    });

    for (const [code, generations] of [["stale_generation", [1, 2]], ["stale", []]]) {
      story(`the user moves on: ${code}`, async () => {
        const { desk, begin } = scene(Program);
        let answer;
        desk.meanwhile = async () => {
          const chat = begin(generations[1]);
          if (!generations.length) chat.pending(orders.orderA);
          answer = await chat.ask(orders.orderB, stream);
        };
        const counts = await refused(
          Program, () => begin(generations[0]).ask(orders.orderA, stream), Program.whole, code);
        assert.equal(answer, orders.bIs);
        assert.deepEqual(desk.lookedUp(), ["ORDER-A", "ORDER-B"]);
        assert.deepEqual(counts, [4, 3]);
        assert.deepEqual(rig.changed(), []);
      });
    }

    story("a result without its call is refused", async () => {
      const { desk, begin } = scene(Program);
      const chat = begin();
      await chat.ask(orders.orderA, stream);
      chat.trim();
      const counts = await refused(
        Program, () => chat.ask(orders.orderB, stream), Program.whole400, "orphan_result");
      assert.deepEqual(desk.lookedUp(), ["ORDER-A"]);
      assert.deepEqual(counts, [1, 0]);
    });

    for (const [script, code] of [
      ["unknown_tool", "unknown_tool"],
      ["text_then_unknown_tool", "unknown_tool"],
      ["good_and_unknown_tool", "unknown_tool"],
      ["cut", "truncated_call"],
    ]) {
      story(`a bad call is refused: ${script}`, async () => {
        const { desk, begin } = scene(Program);
        const kind = stream ? Program.streamed : Program.whole;
        const counts = await refused(
          Program, () => begin().ask(`Go on. [[script:${script}]]`, stream), kind, code);
        assert.deepEqual(desk.runs, []);
        const tries = stream && !script.startsWith("text") ? Program.streamedTries ?? 1 : 1;
        assert.deepEqual(counts, [tries, tries]);
      });
    }
  }

  for (const script of ["busy", "taken"]) {
    test(`${name}: a failing upstream is asked again: ${script}`, { timeout }, async () => {
      const { begin } = scene(Program);
      const [, counts] = await counted(() => assert.rejects(begin().ask(`[[script:${script}]]`, false)));
      assert.deepEqual(counts, [Program.tries, Program.tries]);
    });
  }

  // The second answer is lost after the gateway gave it: only a declared retry gets another.
  test(`${name}: a lost answer is asked for again`, { timeout }, async () => {
    const { desk, begin } = scene(Program);
    desk.meanwhile = () => rig.loseNextAnswer();
    const ask = () => begin().ask(orders.orderA, false);
    if (Program.declaresRetries) {
      assert.deepEqual(await counted(ask), [orders.aIs, [3, 3]]);
    } else {
      assert.deepEqual(await refused(Program, ask, Program.again, "duplicate"), [3, 2]);
    }
    assert.deepEqual(desk.lookedUp(), ["ORDER-A"]);
  });
}
