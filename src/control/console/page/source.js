// What the page reads: JSON, and one stream of server-sent events. EventSource cannot send a token, so both go by fetch.

const KEY = "tigertally-token";
let token = sessionStorage.getItem(KEY);

export class Locked extends Error {}

export function unlock(text) {
  token = text;
  sessionStorage.setItem(KEY, text);
}

export function lock() {
  token = null;
  sessionStorage.removeItem(KEY);
}

async function ask(path, signal) {
  const headers = token ? { authorization: `Bearer ${token}` } : {};
  const answer = await fetch(path, { headers, signal, cache: "no-store", credentials: "omit" });
  if (answer.status === 401) throw new Locked("token");
  if (!answer.ok && answer.status !== 404) throw new Error(`${answer.status}`);
  return answer;
}

export const read = async (path, signal) => (await ask(path, signal)).json();

// Tells each event's data; returns when the stream ends.
async function follow(path, tell, signal) {
  const answer = await ask(path, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      const data = event.split("\n").find((line) => line.startsWith("data: "));
      if (data) tell(JSON.parse(data.slice(6)));
    }
  }
}

// Listens for what comes after that change until it is locked out: comes back after each end, sooner first, and
// goes on where it was.
export async function listen(path, after, { pulse, state, locked }) {
  let wait = 500;
  for (;;) {
    try {
      state("waiting");
      await follow(`${path}?after=${after}`, (told) => {
        wait = 500;
        after = told.changes;
        state("live");
        pulse(told);
      });
    } catch (problem) {
      if (problem instanceof Locked) return locked();
    }
    state("lost");
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(wait * 2, 10_000);
  }
}
