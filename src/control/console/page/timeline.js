// One conversation drawn over time: a lane for each generation, bars for model calls, answers and tool waits, marks
// for verdicts. The drawing and the list of words beside it are made of the same events.

import { clock, duration, el, mark, svg } from "./dom.js";

const OUTCOMES = {
  delivered: ["check", "delivered"],
  refused: ["cross", "refused"],
  withheld: ["diamond", "withheld"],
  upstream_error: ["bang", "the upstream failed"],
  client_gone: ["gone", "the client went away"],
};

const CALLS = {
  open: ["open", "waits for its result"],
  accepted: ["check", "result accepted"],
  closed: ["gone", "closed by a notice"],
  timed_out: ["clock", "timed out"],
  superseded: ["passed", "superseded: the user moved on"],
  replaced: ["passed", "replaced by a newer attempt"],
  unchosen: ["gone", "left out of the run"],
};

export const TASKS = {
  open: ["open", "under way"],
  completed: ["check", "answered"],
  superseded: ["passed", "superseded"],
  incomplete: ["bang", "incomplete"],
  failed: ["cross", "failed"],
  expired: ["gone", "expired"],
};

const ASKS = {
  advance: "The application says that the user moved on",
  decide: "The application tells a tool's result",
  start: "The application asks whether a tool may run",
  resolve: "Somebody says what became of a write",
};

const millis = (text) => (text ? Date.parse(text) : null);

// From what was read to lanes with events.
export function model(read) {
  const lanes = new Map();
  const lane = (generation) => {
    if (!lanes.has(generation)) lanes.set(generation, { generation, bars: [], marks: [], task: null });
    return lanes.get(generation);
  };
  const calls = read.record?.calls ?? [];
  const proposed = new Map();
  for (const call of calls) {
    if (!proposed.has(call.exchange)) proposed.set(call.exchange, []);
    proposed.get(call.exchange).push(call.tool_call_id);
  }
  const owner = (id) => calls.findLast((call) => call.tool_call_id === id);
  const events = [];
  const push = (event) => {
    events.push(event);
    (event.from === event.to ? event.lane.marks : event.lane.bars).push(event);
    return event;
  };

  for (const seen of read.exchanges) {
    const named = seen.faults.find((fault) => fault.tool_call_id && owner(fault.tool_call_id));
    const generation = seen.generation ?? (named ? owner(named.tool_call_id).generation : null);
    const at = lane(generation);
    const from = seen.began + (seen.sent ?? 0);
    const to = seen.took === null ? read.now : seen.began + seen.took;
    const refusal = seen.faults.find((fault) => fault.verdict === "refuse");
    const ids = proposed.get(seen.exchange) ?? [];
    const common = { lane: at, seen, key: seen.exchange, code: refusal?.code, faults: seen.faults };
    if (seen.asks) {
      const [shape, words] = refusal ? ["cross", "refused"] : ["app", "done"];
      push({ ...common, kind: "app", from: to, to, shape, name: ASKS[seen.asks], words });
    } else if (seen.sent === null && seen.outcome) {
      // It never went up: a moment, and why.
      const [shape, words] = OUTCOMES[seen.outcome];
      push({ ...common, kind: "turned-away", from: to, to, shape, name: "Request", words });
    } else {
      const [shape, words] = seen.outcome ? OUTCOMES[seen.outcome] : ["open", "under way"];
      const answer = seen.outcome === "delivered" && ids.length === 0;
      const kind = answer ? "answer" : "model";
      const proposes = ids.length ? `proposes ${ids.length === 1 ? "a call" : `${ids.length} calls`}` : words;
      push({ ...common, kind, from, to, shape, split: seen.first_data === null ? null : seen.began + seen.first_data,
        going: !seen.outcome, name: answer ? "Answer" : "Model call",
        words: seen.outcome === "delivered" && ids.length ? proposes : words });
    }
    // A verdict on a call of another task stands in that task's lane, too.
    for (const fault of seen.faults) {
      const call = fault.verdict === "refuse" && fault.tool_call_id ? owner(fault.tool_call_id) : null;
      if (call && call.generation !== generation) {
        lane(call.generation).marks.push({ lane: lane(call.generation), kind: "verdict", from: to, to,
          shape: "cross", code: fault.code, name: `Result of ${call.tool}`, words: fault.code,
          key: seen.exchange, echo: true });
      }
    }
  }

  for (const call of calls) {
    const from = millis(call.registered_at);
    const ended = millis(call.ended_at);
    const [shape, words] = CALLS[call.state] ?? ["gone", call.state];
    push({ lane: lane(call.generation), kind: "wait", from, to: Math.max(from + 0.01, ended ?? read.now),
      shape, going: ended === null, name: `Tool ${call.tool}`, id: call.tool_call_id, words,
      key: `${call.exchange}/${call.tool_call_id}`, faults: [],
      more: call.outcome_unknown ? "Nobody knows yet whether this write happened." : null });
  }

  for (const task of read.tasks) lane(task.generation).task = task.outcome;
  for (const task of read.record?.generations ?? []) {
    const at = lane(task.generation);
    at.task = task.outcome ?? at.task ?? "open";
    at.reason = task.reason;
  }
  for (const task of read.tasks) {
    const [shape, words] = TASKS[task.outcome];
    events.push({ lane: lane(task.generation), kind: "task", from: task.at, to: task.at, shape,
      name: `Task ${words}`, words: `after ${duration(task.took)}`, key: `task/${task.generation}/${task.at}`, faults: [] });
  }
  events.sort((one, other) => one.to - other.to || one.from - other.from);
  const sorted = [...lanes.values()].sort((one, other) => (one.generation ?? -1) - (other.generation ?? -1));
  return { lanes: sorted, events };
}

// The story of each lane in a sentence.
export function story(lane) {
  const refused = lane.marks.concat(lane.bars).filter((event) => event.code);
  const codes = [...new Set(refused.map((event) => event.code))];
  const answered = lane.bars.some((event) => event.kind === "answer");
  if (lane.task === "completed") return "Answered while the user waited for it.";
  if (codes.some((code) => code === "stale" || code === "stale_generation")) {
    return "Left by the user; its result came back stale and was refused.";
  }
  if (codes.includes("stale_answer")) return "Left by the user; its answer came too late and was withheld.";
  if (lane.task === "superseded") return "Left by the user before it was answered.";
  if (codes.length) return `Refused: ${codes.join(", ")}.`;
  if (answered) return "An answer was delivered.";
  return lane.task === "incomplete" ? `Ended without an answer${lane.reason ? `: ${lane.reason}` : ""}.` : "Under way.";
}

// Time to places. A span in which nothing begins or ends, and which is far longer than everything shorter together, is
// cut to a fixed width, so that seconds stay legible beside an hour.
function scale(events, left, right) {
  const points = [...new Set(events.flatMap((event) => [event.from, event.to, event.split ?? event.from]))]
    .sort((one, other) => one - other);
  if (points.length < 2) points.push((points[0] ?? 0) + 1);
  const spans = points.slice(1).map((to, at) => ({ from: points[at], to, length: to - points[at] }));
  const rising = spans.map((span) => span.length).sort((one, other) => one - other);
  let sum = 0;
  let limit = Infinity;
  for (const [at, length] of rising.entries()) {
    if (at > 0 && sum >= 1 && length > 500 && length > sum * 8) { limit = length; break; }
    sum += length;
  }
  const cut = spans.filter((span) => span.length >= limit);
  const each = Math.min(44, (right - left) * 0.45 / Math.max(1, cut.length));
  const per = (right - left - each * cut.length) / Math.max(sum, 1e-9);
  let x = left;
  for (const span of spans) {
    span.x = x;
    span.cut = span.length >= limit;
    span.width = span.cut ? each : span.length * per;
    x += span.width;
  }
  const place = (at) => {
    const span = spans.find((one) => at <= one.to) ?? spans.at(-1);
    return span.x + Math.min(1, Math.max(0, (at - span.from) / (span.length || 1))) * span.width;
  };
  return { place, cut, spans, begins: points[0] };
}

// Where an event's bar and words are: words go into the bar, beside it, or, at the right edge, before it.
function extent(event, place, width) {
  const from = place(event.from);
  const lasts = event.to > event.from;
  const to = lasts ? Math.max(place(event.to), from + 3) : from;
  const end = to + (lasts ? 10 : 0);
  const letters = label(event).length * LETTER;
  const words = to - from > letters + 14 ? "inside" : end + 12 + letters < width - 6 ? "beside" : "before";
  return { from, to, end, words,
    left: words === "before" ? from - 12 - letters : from - 7,
    right: words === "beside" ? end + 12 + letters : end + 7 };
}

// Events that would overlap stand under one another.
function rows(events, extents) {
  const taken = [];
  for (const event of [...events].sort((one, other) => one.from - other.from || one.to - other.to)) {
    const { left, right } = extents.get(event);
    let row = taken.findIndex((others) => others.every((other) => right < other.left || left > other.right));
    if (row < 0) row = taken.push([]) - 1;
    taken[row].push({ left, right });
    event.row = row;
  }
  return Math.max(1, taken.length);
}

const ROW = 26;
const BAR = 14;
const LETTER = 6.4;

const label = (event) => {
  if (event.code) return event.code;
  if (event.kind === "wait") return event.name.slice(5);
  if (event.kind === "app") return event.words === "done" ? "application" : event.words;
  return event.going ? "under way" : event.name.toLowerCase();
};

const said = (event) => {
  const of = event.lane.generation === null ? "" : `generation ${event.lane.generation}: `;
  const took = event.to > event.from ? `, ${duration(event.to - event.from)}` : "";
  return `${of}${event.name}, ${event.words}${event.code ? `, ${event.code}` : ""}${took}`;
};

export function draw({ lanes }, width, choose) {
  const all = lanes.flatMap((lane) => lane.bars.concat(lane.marks));
  const { place, cut, begins, spans } = scale(all, 14, width - 28);
  const extents = new Map(all.map((event) => [event, extent(event, place, width)]));
  const drawn = svg("g", {});
  const backs = svg("g", {});
  let y = 30;
  for (const lane of lanes) {
    const count = rows(lane.bars.concat(lane.marks), extents);
    const height = 34 + count * ROW;
    const [shape, words] = TASKS[lane.task] ?? [null, ""];
    backs.append(svg("rect", { class: `lane ${lane.task ?? ""}`, x: 0.5, y: y + 0.5, width: width - 1, height: height - 6, rx: 6 }));
    const title = lane.generation === null ? "No generation" : `Generation ${lane.generation}`;
    drawn.append(svg("text", { class: "lane-title", x: 12, y: y + 20 }, title));
    if (shape) {
      drawn.append(svg("text", { class: "lane-state", x: width - 28, y: y + 20, "text-anchor": "end" }, words),
        mark(shape, width - 17, y + 16));
    }
    for (const event of lane.bars.concat(lane.marks)) {
      drawn.append(one(event, y + 30 + event.row * ROW, extents.get(event), place, choose));
    }
    y += height;
  }
  const breaks = svg("g", { class: "breaks" }, ...cut.flatMap((span) => {
    const middle = span.x + span.width / 2;
    return [
      svg("path", { d: `M${middle} 24${zigzag(24, y - 6)}` }),
      svg("text", { x: middle, y: 9, "text-anchor": "middle" }, duration(span.length)),
    ];
  }));
  const root = svg("svg", {
    class: "timeline", width, height: y, viewBox: `0 0 ${width} ${y}`,
    role: "group", "aria-label": "Timeline. Left and right arrow keys move from event to event.",
  }, svg("defs", {}, hatch()), backs, axis(spans, begins, y - 6, width), breaks, drawn);
  roving(root);
  return root;
}

function hatch() {
  return svg("pattern", { id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
    svg("rect", { class: "hatch-ground", width: 6, height: 6 }), svg("rect", { class: "hatch-line", width: 2.4, height: 6 }));
}

function zigzag(from, to) {
  let path = "";
  for (let y = from, side = 3; y < to; y += 6, side = -side) path += `l${side} 6`;
  return path;
}

// Ticks at round offsets; none within a span that is cut.
function axis(spans, begins, bottom, width) {
  const drawn = svg("g", { class: "axis" }, svg("text", { x: 12, y: 21 }, clock(begins)));
  const whole = spans.filter((span) => !span.cut);
  const longest = whole.reduce((sum, span) => sum + span.length, 0);
  const most = Math.max(2, Math.floor(width / 110));
  const steps = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_800_000, 3_600_000];
  const step = steps.find((length) => longest / length <= most) ?? longest;
  let last = 70;
  for (const span of whole) {
    for (let at = Math.ceil((span.from - begins) / step) * step; at <= span.to - begins; at += step) {
      if (at <= 0) continue;
      const x = span.x + ((at - (span.from - begins)) / (span.length || 1)) * span.width;
      if (x < last || x > width - 30) continue;
      last = x + 64;
      drawn.append(svg("line", { x1: x, x2: x, y1: 26, y2: bottom }),
        svg("text", { x, y: 21, "text-anchor": "middle" }, `+${duration(at)}`));
    }
  }
  return drawn;
}

function one(event, y, { from, to, end, words }, place, choose) {
  const group = svg("g", { class: `event ${event.kind}${event.going ? " going" : ""}`, role: "button", tabindex: -1,
    "aria-label": said(event), "data-key": `${event.echo ? "echo/" : ""}${event.key}` }, svg("title", {}, said(event)));
  const text = label(event);
  group.append(svg("rect", { class: "focus", x: from - 4, y: y - 3, width: end - from + 14, height: BAR + 6, rx: 4 }));
  if (event.to > event.from) {
    group.append(svg("rect", { class: "bar", x: from, y, width: Math.max(2, to - from), height: BAR, rx: 2.5 }));
    if (event.split && event.split > event.from) {
      const split = place(event.split);
      group.append(svg("rect", { class: "bar late-part", x: split, y, width: Math.max(1, to - split), height: BAR, rx: 2.5 }));
    }
  }
  group.append(mark(event.shape, end, y + BAR / 2));
  const x = { inside: from + 6, beside: end + 10, before: from - 10 }[words];
  group.append(svg("text", { class: words, x, y: y + 11, "text-anchor": words === "before" ? "end" : null }, text));
  group.addEventListener("click", () => choose(event.key));
  group.addEventListener("keydown", (pressed) => {
    if (pressed.key === "Enter" || pressed.key === " ") {
      pressed.preventDefault();
      choose(event.key, true);
    }
  });
  group.at = from;
  return group;
}

// One stop for the tab key; arrows go on from there.
function roving(root) {
  const events = [...root.querySelectorAll(".event")].sort((one, other) => one.at - other.at);
  events[0]?.setAttribute("tabindex", "0");
  root.addEventListener("keydown", (pressed) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[pressed.key];
    const at = events.indexOf(document.activeElement);
    const next = pressed.key === "Home" ? 0 : pressed.key === "End" ? events.length - 1 : at + (step ?? 0);
    if (at < 0 || next === at || !events[next]) return;
    pressed.preventDefault();
    events[at].setAttribute("tabindex", "-1");
    events[next].setAttribute("tabindex", "0");
    events[next].focus();
  });
}

export const legend = () => el("ul", { class: "legend", "aria-label": "What the bars are" },
  ...[["model", "Model call"], ["wait", "Tool wait"], ["answer", "Answer"]].map(([kind, words]) =>
    el("li", {}, svg("svg", { width: 22, height: 12, "aria-hidden": "true" },
      svg("g", { class: `event ${kind}` }, svg("rect", { class: "bar", width: 22, height: 12, rx: 2.5 }))), words)));
