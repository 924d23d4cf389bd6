// OpenAI's Node SDK: the loop written out, with the streaming helper; and the loop of the SDK, `runTools`.
import OpenAI from "openai";
import { parameters } from "../desk.mjs";

const model = "scripted";

class Sdk {
  static whole = OpenAI.UnprocessableEntityError;
  static whole400 = OpenAI.BadRequestError;
  static streamed = OpenAI.APIError;
  static tries = 3;
  static declaresRetries = true;
  /** An `APIError` holds the `error` object of the answer, in a stream as well. */
  static told = (error) => error.error;

  history = [];

  constructor(baseURL, desk, headers) {
    this.desk = desk;
    this.client = new OpenAI({ baseURL, apiKey: "none", defaultHeaders: headers });
  }

  pending(question) {
    this.history = [{ role: "user", content: question }];
  }

  /** A window that cuts between a call and its result. */
  trim() {
    this.history = this.history.slice(this.history.findIndex(({ role }) => role === "tool"));
  }
}

/** The loop written out. */
export class Loop extends Sdk {
  async ask(question, stream) {
    const tools = Object.entries(parameters).map(([name, schema]) => (
      { type: "function", function: { name, parameters: schema } }));
    const messages = [...this.history, { role: "user", content: question }];
    for (;;) {
      const request = { model, messages, tools };
      const said = stream
        ? await this.client.chat.completions.stream(request).finalMessage()
        : (await this.client.chat.completions.create(request)).choices[0].message;
      messages.push(said);
      if (!said.tool_calls?.length) {
        this.history = messages;
        return said.content;
      }
      for (const call of said.tool_calls) {
        const given = JSON.parse(call.function.arguments || "{}");
        const content = await this.desk[call.function.name](given);
        messages.push({ role: "tool", tool_call_id: call.id, content });
      }
    }
  }
}

/** `runTools`, whole and streamed. */
export class RunTools extends Sdk {
  async ask(question, stream) {
    const tools = Object.entries(parameters).map(([name, schema]) => ({
      type: "function",
      function: {
        name,
        description: name,
        parameters: schema,
        parse: (given) => JSON.parse(given || "{}"),
        function: (given) => this.desk[name](given),
      },
    }));
    const messages = [...this.history, { role: "user", content: question }];
    const runner = this.client.chat.completions.runTools({ model, messages, tools, stream });
    const said = await runner.finalContent();
    this.history = runner.messages;
    return said;
  }
}
