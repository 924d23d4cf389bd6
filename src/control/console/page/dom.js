// Elements by DOM calls only: what comes from traffic is text, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

export const el = (name, attributes, ...children) =>
  fill(document.createElement(name), attributes, children);

export const svg = (name, attributes, ...children) =>
  fill(document.createElementNS(SVG, name), attributes, children);

export const byId = (id) => document.getElementById(id);

// Marks have a shape of their own each, so that nothing is told by colour alone. Drawn in a box of 12 by 12.
const SHAPES = {
  check: { kind: "good", line: "M2.500 6.500 5 9l4.500-6" },
  cross: { kind: "bad", line: "M3 3l6 6M9 3 3 9" },
  diamond: { kind: "held", area: "M6 .8 11.200 6 6 11.200.8 6Z" },
  bang: { kind: "warn", area: "M6 .8 11.500 11H.5Z" },
  clock: { kind: "late", ring: true, line: "M6 3.500V6l2 1.500" },
  passed: { kind: "old", line: "M2 2.500 5.500 6 2 9.500M6.500 2.500 10 6l-3.500 3.500" },
  open: { kind: "open", ring: true },
  gone: { kind: "old", line: "M2.500 6h7" },
  app: { kind: "app", area: "M1 2h10L6 11Z" },
};

export const kindOf = (shape) => SHAPES[shape].kind;

export function mark(shape, x = 0, y = 0) {
  const { kind, line, area, ring } = SHAPES[shape];
  return svg("g", { class: `mark ${kind}`, transform: `translate(${x - 6} ${y - 6})` },
    ring ? svg("circle", { class: "ring", cx: 6, cy: 6, r: 5 }) : null,
    area ? svg("path", { class: "area", d: area }) : null,
    line ? svg("path", { class: "line", d: line }) : null);
}

export const glyph = (shape, words) => {
  const drawn = svg("svg", {
    class: "glyph", viewBox: "0 0 12 12", width: 12, height: 12,
    role: words ? "img" : null, "aria-label": words, "aria-hidden": words ? null : "true",
  }, mark(shape, 6, 6));
  return drawn;
};

export function duration(ms) {
  if (ms < 1) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  if (ms < 90_000) return `${Math.round(ms / 1000)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  if (ms < 172_800_000) return `${Math.round(ms / 3_600_000)} h`;
  return `${Math.round(ms / 86_400_000)} d`;
}

export function ago(ms) {
  if (ms < 2000) return "now";
  return ms < 10_000 ? `${Math.floor(ms / 1000)} s ago` : `${duration(ms)} ago`;
}

export const number = (value) => value.toLocaleString("en");

export function clock(at) {
  const time = new Date(at);
  const two = (value) => String(value).padStart(2, "0");
  return `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
}
