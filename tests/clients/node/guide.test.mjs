// The snippets of docs/clients.md, as they stand there but for the address and the conversation.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import path from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { startRig } from "./rig.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const guide = readFileSync(path.join(here, "../../../docs/clients.md"), "utf8");
const timeout = 60_000;

let rig;
let room; // beside node_modules, where the snippets look for what they import
before(async () => {
  rig = await startRig();
  room = mkdtempSync(path.join(here, "node_modules/.guide-"));
}, { timeout });
after(() => {
  rmSync(room, { recursive: true, force: true });
  return rig?.close();
});

for (const section of ["OpenAI Node", "AI SDK"]) {
  test(`the snippet for ${section} sends both headers`, { timeout }, async () => {
    const conversation = randomUUID();
    const rest = guide.split(`\n### ${section}\n`)[1].split("\n### ")[0];
    const code = rest.match(/```js\n([^]*?)```/)[1]
      .replaceAll("http://127.0.0.1:8090/v1", rig.baseURL)
      .replaceAll("chat-17", conversation);
    const file = path.join(room, `${randomUUID()}.mjs`);
    writeFileSync(file, `${code}\nexport { answer };\n`);
    const sent = rig.sent();
    const { answer } = await import(pathToFileURL(file));
    assert.ok(answer);
    const seen = rig.exchanges.slice(sent);
    assert.deepEqual(seen.map(({ status }) => status), [200]);
    assert.equal(seen[0].headers["x-conversation-id"], conversation);
    assert.equal(seen[0].headers["x-generation"], "1");
  });
}
