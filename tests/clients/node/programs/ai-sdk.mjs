// Vercel's AI SDK: `generateText` and `streamText` with tools, on its two providers for chat completions.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

/** The tools, with zod's schemas: a default is filled in by the SDK, not by the model. */
function tools(desk) {
  const run = (name) => (given) => desk[name](given);
  return {
    get_order_status: tool({
      description: "Looks up the status of an order.",
      inputSchema: z.object({ order_id: z.string() }),
      execute: run("get_order_status"),
    }),
    file_claim: tool({
      description: "Files a claim about an order.",
      inputSchema: z.object({
        order_id: z.string(), amount: z.number(), share: z.number(), note: z.string(),
        parts: z.array(z.string()), urgent: z.boolean().default(false),
      }),
      execute: run("file_claim"),
    }),
    list_orders: tool({
      description: "Lists all orders.", inputSchema: z.object({}), execute: run("list_orders"),
    }),
  };
}

class AiSdk {
  static whole = APICallError;
  static whole400 = APICallError;
  static tries = 3;
  static declaresRetries = false;

  history = [];

  constructor(baseURL, desk, headers) {
    this.tools = tools(desk);
    this.headers = headers;
    this.model = this.constructor.modelAt(baseURL);
  }

  async ask(question, stream) {
    const messages = [...this.history, { role: "user", content: question }];
    const request = {
      model: this.model, messages, tools: this.tools, headers: this.headers, stopWhen: stepCountIs(5),
    };
    const [said, response] = stream ? await streamed(request) : await whole(request);
    this.history = [...messages, ...response.messages];
    return said;
  }

  pending(question) {
    this.history = [{ role: "user", content: question }];
  }

  trim() {
    this.history = this.history.slice(this.history.findIndex(({ role }) => role === "tool"));
  }
}

async function whole(request) {
  const answer = await generateText(request);
  return [answer.text, answer.response];
}

async function streamed(request) {
  let failed;
  const answer = streamText({ ...request, onError: ({ error }) => { failed ??= error; } });
  await answer.consumeStream();
  if (failed) throw failed;
  return [await answer.text, await answer.response];
}

/** The provider for servers that speak OpenAI's API. */
export class Compatible extends AiSdk {
  static modelAt = (baseURL) => createOpenAICompatible({ name: "tigertally", baseURL, apiKey: "none" })("scripted");
}

/** OpenAI's own provider, on chat completions. */
export class OpenAiProvider extends AiSdk {
  static modelAt = (baseURL) => createOpenAI({ baseURL, apiKey: "none" }).chat("scripted");
}
