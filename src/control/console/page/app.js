// The page: the list, the filters, one conversation, and what the keyboard does.

import { ago, byId, clock, duration, el, glyph, number } from "./dom.js";
import { Rates } from "./rates.js";
import { Locked, listen, lock, read, unlock } from "./source.js";
import { TASKS, draw, legend, model, story } from "./timeline.js";

const PAGE = 50;
const UNTRACKED = "untracked";

const page = {
  rows: new Map(),
  limit: PAGE,
  next: null,
  exact: null,
  skew: 0,
  chosen: null,
  shown: null,
  open: new Set(),
  asking: null,
};

// --- light and dark ---------------------------------------------------------------------------------

const THEMES = ["auto", "light", "dark"];

function theme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem("tigertally-theme", name);
  byId("theme").textContent = { auto: "Auto", light: "Light", dark: "Dark" }[name];
  byId("theme").setAttribute("aria-label", `Colours: ${name}. Change`);
}

byId("theme").addEventListener("click", () => {
  const at = THEMES.indexOf(document.documentElement.dataset.theme);
  theme(THEMES[(at + 1) % THEMES.length]);
});
theme(THEMES.includes(localStorage.getItem("tigertally-theme")) ? localStorage.getItem("tigertally-theme") : "auto");

// --- the list ---------------------------------------------------------------------------------------

const filters = () => {
  const asked = new URLSearchParams({ limit: PAGE });
  for (const name of ["text", "state", "code"]) {
    const value = byId(name).value.trim();
    if (value) asked.set(name, value);
  }
  return asked;
};

async function refresh({ anew = false, changed = [] } = {}) {
  page.asking?.abort();
  page.asking = new AbortController();
  const told = await read(`/admin/v1/conversations?${filters()}`, page.asking.signal);
  if (anew) {
    page.rows.clear();
    page.limit = PAGE;
  }
  // What changed and is not among the first any more does not fit the filter now.
  for (const handle of changed) page.rows.delete(handle);
  for (const row of told.rows) page.rows.set(row.handle, row);
  if (anew || page.rows.size <= told.rows.length) page.next = told.next;
  page.exact = told.exact;
  showRows(told.held);
  return told.changes;
}

async function more() {
  const asked = filters();
  asked.set("before", page.next);
  const told = await read(`/admin/v1/conversations?${asked}`);
  page.limit += PAGE;
  for (const row of told.rows) page.rows.set(row.handle, row);
  page.next = told.next;
  showRows(told.held);
}

const sorted = () => [...page.rows.values()].sort((one, other) => other.number - one.number);
const stateOf = (row) => (row.handle === UNTRACKED ? null : row.under_way ? "open" : row.ended ?? "open");
const nameOf = (row) => row.handle === UNTRACKED ? "Without a conversation" : row.name || `${row.handle.slice(32, 44)}…`;

function showRows(held) {
  const list = byId("rows");
  const before = document.activeElement?.dataset?.handle;
  const all = sorted();
  const rows = all.slice(0, page.limit);
  if (all.length > rows.length) {
    // Newer ones came: the page does not grow by itself.
    page.next = rows.at(-1).number;
    for (const row of all.slice(page.limit)) page.rows.delete(row.handle);
  }
  list.replaceChildren(...rows.map(rowOf));
  if (before) list.querySelector(`[data-handle="${CSS.escape(before)}"]`)?.focus({ preventScroll: true });
  byId("count").textContent = `${number(rows.length)}${page.next ? "+" : ""} of ${number(held)}`;
  const rest = [];
  if (rows.length === 0) rest.push(el("p", { class: "none" }, "No conversation fits. "));
  if (page.exact && !page.rows.has(page.exact)) {
    rest.push(el("p", {}, el("a", { href: `#/c/${page.exact}` }, "Look this id up in the store")));
  }
  if (page.next) {
    const button = el("button", { type: "button" }, "More");
    button.addEventListener("click", () => more().catch(failed));
    rest.push(button);
  }
  byId("rest").replaceChildren(...rest);
}

function rowOf(row) {
  const state = stateOf(row);
  const [shape, words] = state ? TASKS[state] : ["gone", "untracked"];
  const facts = [
    row.generation === null ? null : `gen ${row.generation}`,
    row.last_code ? null : `${number(row.exchanges)} exchange${row.exchanges === 1 ? "" : "s"}`,
  ].filter(Boolean).join(" · ");
  return el("li", {}, el("a", {
    href: `#/c/${row.handle}`, "data-handle": row.handle, title: row.name || null,
    "aria-current": row.handle === page.chosen ? "true" : null,
  },
    glyph(shape, words),
    el("span", { class: "name" }, nameOf(row)),
    el("time", { "data-at": row.last_at }, ago(Date.now() + page.skew - row.last_at)),
    el("span", { class: "facts" }, `${words} · ${facts}`),
    row.last_code
      ? el("span", { class: "code" }, glyph("cross"), el("code", {}, row.last_code), row.refused > 1 ? ` ×${number(row.refused)}` : "")
      : null));
}

// --- one conversation -------------------------------------------------------------------------------

async function show({ focus = false } = {}) {
  const handle = page.chosen;
  const told = await read(`/admin/v1/conversations/${handle}`);
  if (handle !== page.chosen) return;
  page.shown = { told, model: model(told) };
  showOne(focus);
}

function showOne(focus) {
  const { told, model: drawn } = page.shown;
  const detail = byId("detail");
  const held = document.activeElement?.closest?.("[data-key]")?.dataset.key;
  const inside = detail.contains(document.activeElement) ? document.activeElement.tagName.toLowerCase() : null;
  const row = told.row ?? { handle: told.handle, name: "", generation: null, exchanges: 0, refused: 0 };
  const back = el("a", { class: "back", href: "#/" }, "All conversations");
  const width = Math.max(280, Math.min(1200, detail.clientWidth - (matchMedia("(max-width: 760px)").matches ? 32 : 48)));
  const empty = drawn.lanes.length === 0;
  detail.replaceChildren(
    back,
    el("h2", { tabindex: -1, title: row.name || null }, nameOf(row)),
    el("p", { class: "sub" }, [
      row.generation === null ? null : `generation ${row.generation}`,
      `${number(row.exchanges)} exchanges seen`,
      row.refused ? `${number(row.refused)} refused or withheld` : null,
    ].filter(Boolean).join(" · ")),
    ...caveats(told, drawn),
    empty ? el("p", { class: "none" }, "Nothing is known of it: it never was, it expired, or it was deleted.") : el("ul", { class: "stories" },
      ...drawn.lanes.map((lane) => {
        const [shape] = TASKS[lane.task] ?? ["gone"];
        return el("li", {}, glyph(shape),
          el("b", {}, lane.generation === null ? "No generation" : `Generation ${lane.generation}`), el("span", {}, story(lane)));
      })),
    ...(empty ? [] : [el("div", { class: "canvas" }, draw(drawn, width, choose)), legend(),
      el("h3", {}, "What happened"), el("ol", { class: "events" }, ...drawn.events.map(eventOf))]),
  );
  if (focus) detail.querySelector("h2").focus({ preventScroll: true });
  else if (held) detail.querySelector(`${inside === "g" ? "g" : ".events"} [data-key="${CSS.escape(held)}"], ${inside === "g" ? "g" : "li"}[data-key="${CSS.escape(held)}"] summary`)?.focus({ preventScroll: true });
}

// What this page cannot know is said, not left to be guessed.
function caveats(told, drawn) {
  const said = [];
  const ledger = told.record?.exchanges ?? [];
  const seen = new Set(told.exchanges.map((exchange) => exchange.exchange));
  const elsewhere = ledger.filter((exchange) => !seen.has(exchange.exchange)).length;
  if (told.handle !== UNTRACKED && told.record === undefined) said.push("The store cannot be read now: tool calls are missing here.");
  if (elsewhere) said.push(`${number(elsewhere)} exchange(s) went through another replica or before a restart: this one does not know their times.`);
  if (told.forgot && told.row) said.push("Older parts are no longer kept by this replica.");
  if (told.record?.known === false && drawn.lanes.length) said.push("The ledger no longer holds it: expired or deleted.");
  return said.map((words) => el("p", { class: "caveat" }, words));
}

function eventOf(event) {
  const [time, took] = [clock(event.to), event.to > event.from ? duration(event.to - event.from) : ""];
  const head = [
    el("time", { title: new Date(event.to).toISOString() }, time),
    el("span", { class: "gen" }, event.lane.generation === null ? "–" : String(event.lane.generation)),
    glyph(event.shape),
    el("span", { class: "what" }, el("b", {}, event.name), ` ${event.words}`, event.code ? [" ", el("code", {}, event.code)] : null),
    el("span", { class: "took" }, took),
  ];
  const more = details(event);
  if (more.length === 0) return el("li", { "data-key": event.key }, el("div", { class: "head" }, ...head));
  const open = page.open.has(event.key);
  const fold = el("details", { open }, el("summary", { class: "head" }, ...head), ...more);
  fold.addEventListener("toggle", () => {
    if (fold.open) page.open.add(event.key);
    else page.open.delete(event.key);
  });
  return el("li", { "data-key": event.key, class: event.faults.length ? "faulty" : null }, fold);
}

function details(event) {
  const facts = [];
  const fact = (name, value) => { if (value !== null && value !== undefined && value !== "") facts.push(el("dt", {}, name), el("dd", {}, String(value))); };
  fact("Tool call", event.id);
  fact("", event.more);
  if (event.seen) {
    fact("Request", event.seen.request_id);
    fact("Upstream's id", event.seen.rid);
    fact("Status", event.seen.status);
    fact("Attempt", event.seen.attempt > 1 ? event.seen.attempt : null);
    fact("First byte", event.seen.first_data === null ? null : `after ${duration(event.seen.first_data)}`);
  }
  const faults = (event.faults ?? []).map((fault) => el("section", { class: `fault ${fault.verdict}` },
    el("h4", {}, glyph(fault.verdict === "note" ? "bang" : "cross"), el("code", {}, fault.code), fault.verdict === "note" ? " noted" : " refused"),
    el("p", {}, fault.message),
    el("dl", {},
      ...(fault.param ? [el("dt", {}, "Where"), el("dd", {}, el("code", {}, fault.param))] : []),
      ...(fault.tool_call_id ? [el("dt", {}, "Tool call"), el("dd", {}, el("code", {}, fault.tool_call_id))] : []),
      ...(fault.recovery ? [el("dt", {}, "Way out"), el("dd", { class: "way-out" }, fault.recovery)] : []))));
  const rest = event.seen?.more_faults ? [el("p", { class: "caveat" }, `${event.seen.more_faults} further faults are not shown.`)] : [];
  return [...faults, ...rest, ...(facts.length ? [el("dl", {}, ...facts)] : [])];
}

// An event was picked in the drawing: open what is told of it.
function choose(key, focus) {
  page.open.add(key);
  for (const item of byId("detail").querySelectorAll(".events > li")) {
    const here = item.dataset.key === key;
    item.classList.toggle("here", here);
    if (!here) continue;
    const fold = item.querySelector("details");
    if (fold) fold.open = true;
    item.scrollIntoView({ block: "nearest" });
    if (focus) item.querySelector("summary")?.focus();
  }
}

function route() {
  const found = /^#\/c\/([0-9a-f]{64}|untracked)$/.exec(location.hash);
  page.chosen = found ? found[1] : null;
  byId("split").dataset.showing = page.chosen ? "one" : "list";
  for (const link of byId("rows").querySelectorAll("a")) {
    if (link.dataset.handle === page.chosen) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  if (page.chosen) return show({ focus: true }).catch(failed);
  page.shown = null;
  byId("detail").replaceChildren(el("p", { class: "hint" }, "Choose a conversation to see its timeline."));
}

// --- what changes -----------------------------------------------------------------------------------

let due = null;
const waiting = new Set();

function pulse(told) {
  page.skew = told.now - Date.now();
  rates.add(told.buckets);
  codes();
  byId("live").title = told.dropped ? `${told.dropped} events came faster than they could be shown` : "";
  told.changed.forEach((handle) => waiting.add(handle));
  if (due || document.hidden || waiting.size === 0) return;
  due = setTimeout(() => {
    due = null;
    const changed = [...waiting];
    waiting.clear();
    refresh({ changed }).catch((problem) => {
      // Another reading came first, or none came: what changed is still to be told.
      changed.forEach((handle) => waiting.add(handle));
      failed(problem);
    });
    const going = page.shown?.model.events.some((event) => event.going);
    if (page.chosen && (changed.includes(page.chosen) || going)) show().catch(failed);
  }, 150);
}

function codes() {
  const select = byId("code");
  const known = new Set([...select.options].map((option) => option.value));
  for (const code of rates.known) if (!known.has(code)) select.append(el("option", { value: code }, code));
}

function state(name) {
  const live = byId("live");
  live.dataset.state = name;
  live.textContent = { live: "live", waiting: "connecting", lost: "no connection" }[name];
}

function failed(problem) {
  if (problem instanceof Locked) locked();
  else if (problem.name !== "AbortError") state("lost");
}

// --- the way in -------------------------------------------------------------------------------------

const rates = new Rates(byId("plots"), byId("codes"), (code) => {
  byId("code").value = code;
  refresh({ anew: true }).catch(failed);
});

function locked() {
  byId("main").hidden = true;
  byId("gate").hidden = false;
  byId("live").textContent = "locked";
  byId("live").dataset.state = "lost";
  byId("token").focus();
}

byId("gate").addEventListener("submit", (event) => {
  event.preventDefault();
  unlock(byId("token").value.trim());
  begin().then((open) => {
    if (!open) {
      lock();
      byId("gate-said").textContent = "That token is not the one.";
    }
  });
});

async function begin() {
  try {
    const overview = await read("/admin/v1/overview");
    byId("gate").hidden = true;
    byId("main").hidden = false;
    page.skew = overview.now - Date.now();
    byId("about").textContent = `${overview.profile}${overview.observe ? " (watches only)" : ""} · ${overview.store} · replica ${overview.replica} · ${overview.version}`;
    rates.all(overview);
    codes();
    const known = await refresh({ anew: true });
    route();
    listen("/admin/v1/events", known, { pulse, state, locked });
    return true;
  } catch (problem) {
    failed(problem);
    if (problem instanceof Locked) return false;
    setTimeout(begin, 2000);
    return true;
  }
}

// --- the keyboard -----------------------------------------------------------------------------------

let typing = null;
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filters").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => refresh({ anew: true }).catch(failed), 150);
});

function step(by) {
  const links = [...byId("rows").querySelectorAll("a")];
  const at = links.indexOf(document.activeElement);
  const from = at >= 0 ? at : links.findIndex((link) => link.dataset.handle === page.chosen);
  links[Math.min(links.length - 1, Math.max(0, from + by))]?.focus();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const writing = event.target.matches?.("input, select, textarea");
  if (event.key === "Escape") {
    if (writing) event.target.blur();
    else if (page.chosen) {
      const handle = page.chosen;
      location.hash = "#/";
      byId("rows").querySelector(`[data-handle="${CSS.escape(handle)}"]`)?.focus();
    }
    return;
  }
  if (writing) return;
  const act = {
    "/": () => byId("text").focus(),
    j: () => step(1),
    k: () => step(-1),
    t: () => byId("detail").querySelector('.event[tabindex="0"]')?.focus(),
  }[event.key];
  if (act) {
    event.preventDefault();
    act();
  }
});

addEventListener("hashchange", route);
addEventListener("resize", () => { if (page.shown) showOne(false); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh({}).catch(failed); });
setInterval(() => {
  for (const time of document.querySelectorAll("time[data-at]")) time.textContent = ago(Date.now() + page.skew - Number(time.dataset.at));
}, 5000);
begin();
