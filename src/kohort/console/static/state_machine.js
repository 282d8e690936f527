// Draws the state machine of a group from the table that the coordinator runs on, with the current state lit.

import { h, s } from "./dom.js";

const SIZE = [400, 236];
const BOX = { width: 172, height: 40 };
// Where the states of a classic group stand; any other state gets a place on a circle.
const PLACES = {
  Empty: [58, 30], PreparingRebalance: [266, 30], CompletingRebalance: [266, 118], Stable: [266, 206], Dead: [58, 206],
};
const NARROW = new Set(["Empty", "Dead"]);

export function stateMachine({ states, transitions, current }) {
  const names = states.map((each) => each.name);
  const places = new Map(names.map((name, at) => [name, PLACES[name] ?? onCircle(at, names.length)]));
  const lines = transitions.filter((each) => places.has(each.source) && places.has(each.target)).map((each) => {
    const both = transitions.some((other) => other.source === each.target && other.target === each.source);
    const [from, to] = [places.get(each.source), places.get(each.target)];
    const path = isHidden(from, to, places) ? around(from, to) : straight(each, from, to, both);
    return edge(each, path, each.source === current);
  });
  const boxes = names.map((name) => box(name, places.get(name), name === current));
  const next = transitions.filter((each) => each.source === current);
  return h("div", { class: "machine" },
    s("svg", { viewBox: `0 0 ${SIZE[0]} ${SIZE[1]}`, class: "machine-svg", role: "img", "aria-label": words(names, current) },
      s("defs", null, arrowHead("arrow"), arrowHead("arrow-lit")), lines, boxes),
    next.length ? h("div", { class: "machine-next" }, h("p", { class: "muted" }, `From ${current} it goes`),
      h("ul", null, next.map((each) => h("li", { key: each.target }, h("strong", null, `to ${each.target}`), ` when: ${each.why}`)))) : null,
    h("details", { class: "as-table" }, h("summary", null, "All transitions"),
      h("ul", null, transitions.map((each) => h("li", null, h("strong", null, `${each.source} → ${each.target}`), `: ${each.why}`)))));
}

function words(names, current) {
  return `State machine with the states ${names.join(", ")}. ${current ? `The group is ${current}.` : "The group's state is not one of them."}`;
}

function widthOf(name) {
  return NARROW.has(name) ? 92 : BOX.width;
}

function box(name, [x, y], lit) {
  const width = widthOf(name);
  return s("g", { class: lit ? "state lit" : "state", "data-state": name, "data-lit": String(lit) },
    s("rect", { x: x - width / 2, y: y - BOX.height / 2, width, height: BOX.height, rx: 10 }),
    s("text", { x, y: y + 4.5, "text-anchor": "middle" }, name));
}

function edge(each, path, lit) {
  return s("g", { class: `edge${lit ? " lit" : ""}${each.target === "Dead" ? " last" : ""}` },
    s("title", null, `${each.source} → ${each.target}: ${each.why}`),
    s("path", { d: path, "marker-end": `url(#${lit ? "arrow-lit" : "arrow"})` }));
}

/** Two arrows between the same states stand beside each other. */
function straight(each, from, to, both) {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
  const shift = both ? 7 / Math.hypot(dx, dy) : 0;
  const [sx, sy] = [-dy * shift, dx * shift];
  const start = border(from, [dx, dy], widthOf(each.source), 2);
  const end = border(to, [-dx, -dy], widthOf(each.target), 5);
  return `M${start[0] + sx} ${start[1] + sy}L${end[0] + sx} ${end[1] + sy}`;
}

/** Whether another state stands in the way of a straight arrow. */
function isHidden(from, to, places) {
  return [...places.values()].some(([x, y]) => x === from[0] && x === to[0] && (y - from[1]) * (y - to[1]) < 0);
}

/** A curve along the right side. */
function around([x, from], [, to]) {
  const side = x + BOX.width / 2;
  return `M${side + 2} ${from}C${side + 38} ${from} ${side + 38} ${to} ${side + 6} ${to}`;
}

/** Where a line from the middle of a box leaves it, plus a gap. */
function border([x, y], [dx, dy], width, gap) {
  const share = Math.min(width / 2 / Math.max(1e-9, Math.abs(dx)), BOX.height / 2 / Math.max(1e-9, Math.abs(dy)));
  const more = share + gap / Math.hypot(dx, dy);
  return [x + dx * more, y + dy * more];
}

function arrowHead(id) {
  return s("marker", { id, class: id, viewBox: "0 0 8 8", refX: "6", refY: "4", markerWidth: "7", markerHeight: "7", orient: "auto-start-reverse" },
    s("path", { d: "M0 0.8 7 4 0 7.2z" }));
}

function onCircle(at, total) {
  const angle = (at / total) * 2 * Math.PI - Math.PI / 2;
  return [SIZE[0] / 2 + Math.cos(angle) * 110, SIZE[1] / 2 + Math.sin(angle) * 90];
}
