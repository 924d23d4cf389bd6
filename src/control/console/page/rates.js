// Rates and verdicts of the last quarter of an hour, as small plots that share one time axis.

import { el, glyph, number, svg } from "./dom.js";

const PLOTS = [
  { title: "Exchanges", series: [
    ["delivered", "Delivered", "check", "good"],
    ["refused", "Refused", "cross", "bad"],
    ["withheld", "Withheld", "diamond", "held"],
    ["upstream_error", "Upstream failed", "bang", "warn"],
    ["client_gone", "Client gone", "gone", "old"],
  ] },
  { title: "Tool results", series: [
    ["accepted_results", "Accepted", "check", "good"],
    ["refused_results", "Refused", "cross", "bad"],
    ["timed_out", "Timed out", "clock", "late"],
  ] },
  { title: "Tasks ended", series: [
    ["completed", "Answered", "check", "good"],
    ["superseded", "Superseded", "passed", "old"],
    ["incomplete", "Incomplete", "bang", "warn"],
    ["failed", "Failed", "cross", "bad"],
    ["expired", "Expired", "gone", "held"],
  ] },
];

const COLUMNS = 60;
const [WIDTH, HEIGHT] = [300, 64];

export class Rates {
  constructor(plots, codes, choose) {
    this.buckets = new Map();
    this.codes = codes;
    this.choose = choose;
    this.figures = PLOTS.map((plot) => {
      const parts = { plot, drawing: svg("svg", {
        class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none",
        role: "img",
      }), most: el("span", { class: "most" }), key: el("ul", { class: "key" }) };
      plots.append(el("figure", {},
        el("figcaption", {}, el("b", {}, plot.title), parts.most),
        parts.drawing, parts.key));
      return parts;
    });
  }

  all(overview) {
    this.seconds = overview.seconds;
    this.buckets.clear();
    this.add(overview.buckets);
  }

  add(buckets) {
    for (const bucket of buckets) this.buckets.set(bucket.number, bucket);
    const numbers = [...this.buckets.keys()].sort((one, other) => one - other);
    for (const old of numbers.slice(0, Math.max(0, numbers.length - 180))) this.buckets.delete(old);
    this.draw();
  }

  // Three buckets a column, so that a column is wide enough to be seen on a phone.
  columns() {
    const last = Math.max(0, ...this.buckets.keys());
    const each = 180 / COLUMNS;
    const end = Math.floor(last / each);
    const columns = Array.from({ length: COLUMNS }, () => ({}));
    for (const bucket of this.buckets.values()) {
      const column = columns[COLUMNS - 1 - (end - Math.floor(bucket.number / each))];
      if (!column) continue;
      for (const [name, value] of Object.entries(bucket)) {
        if (typeof value === "number") column[name] = (column[name] ?? 0) + value;
      }
    }
    return columns;
  }

  draw() {
    const columns = this.columns();
    for (const figure of this.figures) drawPlot(figure, columns);
    this.drawCodes();
  }

  drawCodes() {
    const counts = new Map();
    for (const bucket of this.buckets.values()) {
      for (const [code, count] of bucket.codes) counts.set(code, (counts.get(code) ?? 0) + count);
    }
    const sorted = [...counts].sort((one, other) => other[1] - one[1]);
    this.known = sorted.map(([code]) => code);
    const before = document.activeElement?.dataset?.code;
    this.codes.replaceChildren(el("h3", {}, "Refused for"),
      ...(sorted.length === 0 ? [el("p", {}, "Nothing in the last 15 minutes.")] : []),
      ...sorted.slice(0, 8).map(([code, count]) => {
        const button = el("button", { type: "button", class: "chip", "data-code": code },
          el("code", {}, code), el("b", {}, number(count)));
        button.addEventListener("click", () => this.choose(code));
        return button;
      }));
    if (before) this.codes.querySelector(`[data-code="${CSS.escape(before)}"]`)?.focus();
  }
}

function drawPlot({ plot, drawing, most, key }, columns) {
  const total = (column) => plot.series.reduce((sum, [name]) => sum + (column[name] ?? 0), 0);
  const highest = Math.max(1, ...columns.map(total));
  const step = WIDTH / COLUMNS;
  drawing.replaceChildren(
    svg("line", { class: "base", x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5 }),
    ...columns.flatMap((column, at) => {
      let y = HEIGHT - 1;
      return plot.series.filter(([name]) => column[name]).map(([name, , , kind]) => {
        const height = Math.max(2, (column[name] / highest) * (HEIGHT - 4));
        y -= height;
        return svg("rect", {
          class: `bar ${kind}`, x: (at * step + 0.6).toFixed(2), y: y.toFixed(2),
          width: (step - 1.2).toFixed(2), height: Math.max(1, height - 0.8).toFixed(2),
        });
      });
    }));
  most.textContent = `most in 15 s: ${number(highest === 1 && total(columns.at(-1)) === 0 && columns.every((c) => total(c) === 0) ? 0 : highest)}`;
  const sums = plot.series.map(([name, words, shape]) =>
    [columns.reduce((sum, column) => sum + (column[name] ?? 0), 0), words, shape]);
  drawing.setAttribute("aria-label",
    `${plot.title}, last 15 minutes: ${sums.map(([sum, words]) => `${words} ${sum}`).join(", ")}`);
  key.replaceChildren(...sums.map(([sum, words, shape], at) =>
    el("li", { class: sum || at < 2 ? null : "none" }, glyph(shape), `${words} `, el("b", {}, number(sum)))));
}
