import { startRig } from "./rig.mjs"; import * as orders from "./desk.mjs";
import { Compatible, OpenAiProvider } from "./programs/ai-sdk.mjs";
const rig = await startRig();
for (const P of [Compatible, OpenAiProvider]) for (const stream of [false,true]) {
  const desk = new orders.Desk();
  try { console.log(P.name, stream, await new P(rig.baseURL, desk, {"x-conversation-id": P.name+stream}).ask(orders.oddArguments, stream)); } catch (e) { console.log(P.name, stream, "ARGS", e.constructor.name, e.message, e.responseBody); }
  console.log(JSON.stringify(desk.runs)); console.log(rig.exchanges.at(-1).body.slice(-900));
  for (const q of ["[[script:text_then_unknown_tool]]"]) {
  try { console.log(await new P(rig.baseURL, desk, {}).ask(q, stream)); } catch (e) { console.log(P.name, stream, "REF", e.constructor.name, e, Object.keys(e)); }
  }
}
await rig.close();
