// client → tap → gateway → tap → scripted upstream, as in ../python/conftest.py: real processes, and what
// they sent each other.
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, rmSync, statSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const here = path.dirname(fileURLToPath(import.meta.url));
const root = path.resolve(here, "../../..");

/** The built program: TIGERTALLY_BIN, or the newest build in the target directory. */
function binary() {
  if (process.env.TIGERTALLY_BIN) return process.env.TIGERTALLY_BIN;
  const target = process.env.CARGO_TARGET_DIR ?? path.join(root, "target");
  const built = ["release", "debug"]
    .map((profile) => path.join(target, profile, "tigertally"))
    .filter((file) => existsSync(file))
    .sort((a, b) => statSync(b).mtimeMs - statSync(a).mtimeMs);
  if (!built.length) throw new Error("no tigertally binary: run `cargo build`, or set TIGERTALLY_BIN");
  return built[0];
}

function listen(server) {
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server.address().port)));
}

async function freePort() {
  const server = net.createServer();
  const port = await listen(server);
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Starts the program and waits until `GET /health` on `port` answers 200. */
async function start(args, port, cwd, settings = {}) {
  const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith("TIGERTALLY_"));
  const env = { ...Object.fromEntries(inherited), ...settings };
  const child = spawn(binary(), args, { cwd, env, stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  for (const pipe of [child.stdout, child.stderr]) pipe.on("data", (data) => (output += data));
  for (let tries = 0; tries < 400; tries += 1) {
    if (child.exitCode !== null) throw new Error(`${args[0]} ended early:\n${output}`);
    const healthy = await fetch(`http://127.0.0.1:${port}/health`).then((r) => r.ok, () => false);
    if (healthy) return child;
    await pause(50);
  }
  child.kill("SIGKILL");
  throw new Error(`${args[0]} did not answer:\n${output}`);
}

async function stop(child) {
  if (child.exitCode !== null) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill("SIGTERM");
  const timer = setTimeout(() => child.kill("SIGKILL"), 10_000);
  await ended;
  clearTimeout(timer);
}

/**
 * An HTTP relay that keeps each chat exchange: the bodies both ways and the status. It changes nothing;
 * told so, it loses one answer.
 */
function tap(target) {
  const exchanges = [];
  let losing = false;
  const server = http.createServer((request, response) => {
    const { method, url, headers } = request;
    const seen = { headers, body: "", status: undefined, answer: "" };
    if (url === "/v1/chat/completions") exchanges.push(seen);
    request.on("data", (data) => (seen.body += data.toString("latin1")));
    const onward = http.request({ host: "127.0.0.1", port: target, method, path: url, headers });
    onward.on("response", (answer) => {
      const lost = losing;
      losing = false;
      seen.status = answer.statusCode;
      answer.on("data", (data) => (seen.answer += data.toString("latin1")));
      answer.on("error", () => response.destroy());
      if (lost) {
        answer.on("end", () => response.destroy());
        return;
      }
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    onward.on("error", () => response.destroy());
    response.on("close", () => onward.destroy());
    request.pipe(onward);
  });
  return { server, exchanges, loseNextAnswer: () => (losing = true) };
}

/** Whether an answer came down that the gateway did not make itself. */
const passed = ({ status, answer }) => status === 200 && !answer.includes('"type":"guard_refusal"');
/** A request as it was before the gateway put in the request id for the upstream. */
const withoutRid = (body) => body.replace(/^\{"rid":"[^"]*",/, "{");

/** `settings`: environment variables for the gateway. */
export async function startRig(settings) {
  const scratch = mkdtempSync(path.join(os.tmpdir(), "tigertally-"));
  const upstreamPort = await freePort();
  const script = path.join(here, "../script.json");
  const upstream = await start(
    ["scripted-upstream", "--listen", `127.0.0.1:${upstreamPort}`, "--script", script],
    upstreamPort, scratch);
  const back = tap(upstreamPort);
  const backPort = await listen(back.server);
  const [port, adminPort] = [await freePort(), await freePort()];
  let gateway;
  try {
    gateway = await start(
      ["serve", "--upstream", `http://127.0.0.1:${backPort}`,
        "--listen", `127.0.0.1:${port}`, "--admin-listen", `127.0.0.1:${adminPort}`,
        "--store", "memory:"],
      port, scratch, settings);
  } catch (error) {
    back.server.close();
    await stop(upstream);
    throw error;
  }
  const front = tap(port);
  const frontPort = await listen(front.server);
  return {
    baseURL: `http://127.0.0.1:${frontPort}/v1`,
    exchanges: front.exchanges,
    loseNextAnswer: front.loseNextAnswer,
    /** Chat requests that reached the gateway. */
    sent: () => front.exchanges.length,
    /** Chat requests that reached the upstream. */
    forwarded: () => back.exchanges.length,
    /** Exchanges that were let through, but not as they came: none. */
    changed() {
      const beyond = new Set(back.exchanges.map((seen) => `${withoutRid(seen.body)}\n\n${seen.answer}`));
      return front.exchanges
        .filter((seen) => passed(seen) && !beyond.has(`${seen.body}\n\n${seen.answer}`));
    },
    async close() {
      for (const { server } of [front, back]) {
        server.closeAllConnections();
        server.close();
      }
      await stop(gateway);
      await stop(upstream);
      rmSync(scratch, { recursive: true, force: true });
    },
  };
}
