// client → tap → gateway → scripted upstream, as in ../python/conftest.py: real processes, counted on the wire.
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
async function start(args, port, cwd) {
  const env = Object.fromEntries(
    Object.entries(process.env).filter(([name]) => !name.startsWith("TIGERTALLY_")),
  );
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

/** An HTTP relay that counts chat requests; it changes nothing. */
function countingTap(target, count) {
  return http.createServer((request, response) => {
    if (request.url === "/v1/chat/completions") count();
    const { method, url, headers } = request;
    const onward = http.request({ host: "127.0.0.1", port: target, method, path: url, headers });
    onward.on("response", (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
      answer.on("error", () => response.destroy());
    });
    onward.on("error", () => response.destroy());
    request.pipe(onward);
  });
}

export async function startRig() {
  const scratch = mkdtempSync(path.join(os.tmpdir(), "tigertally-"));
  const upstreamPort = await freePort();
  const script = path.join(here, "../script.json");
  const upstream = await start(
    ["scripted-upstream", "--listen", `127.0.0.1:${upstreamPort}`, "--script", script],
    upstreamPort, scratch);
  const [port, adminPort] = [await freePort(), await freePort()];
  let gateway;
  try {
    gateway = await start(
      ["serve", "--upstream", `http://127.0.0.1:${upstreamPort}`,
        "--listen", `127.0.0.1:${port}`, "--admin-listen", `127.0.0.1:${adminPort}`,
        "--store", "memory:"],
      port, scratch);
  } catch (error) {
    await stop(upstream);
    throw error;
  }
  let sent = 0;
  const tap = countingTap(port, () => (sent += 1));
  const tapPort = await listen(tap);
  return {
    baseURL: `http://127.0.0.1:${tapPort}/v1`,
    sent: () => sent,
    async forwarded() {
      const seen = await fetch(`http://127.0.0.1:${upstreamPort}/_seen`);
      return (await seen.json()).requests;
    },
    async close() {
      tap.closeAllConnections();
      tap.close();
      await stop(gateway);
      await stop(upstream);
      rmSync(scratch, { recursive: true, force: true });
    },
  };
}
