// Vercel's AI SDK: `generateText` and `streamText` with tools, on its two providers for chat completions.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, RetryError, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

/** The tools. No default in a schema: the SDK would send it back as an argument that the model did not give. */
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
        parts: z.array(z.string()), urgent: z.boolean().optional(),
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
  /** Inside a stream an error is no `Error`: an object of message, type, param and code, without `faults`. */
  static streamed = Object;
  static streamedFaults = false;
  static tries = 3;
  static declaresRetries = false;
  /** What it throws when a retry of its own was refused. */
  static again = RetryError;
  static told(error) {
    const last = error.lastError ?? error;
    const body = last.responseBody ? JSON.parse(last.responseBody) : last;
    return body.error ?? body;
  }

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
  /** It takes an error event before the first output for a failure of the server, and asks again. */
  static streamedTries = 3;
  static modelAt = (baseURL) => createOpenAI({ baseURL, apiKey: "none" }).chat("scripted");
}
