// Charts over time as SVG: lines (lag) and lollipops (rebalances), with one way to hover, zoom and read them by keyboard.
//
// A chart is an island: it draws itself, when `update` brings new values, when the pointer moves, and when its width
// changes. Its range is the page's, so that charts below each other zoom together.

import { h, morph, s } from "./dom.js";
import { clock, count, two } from "./format.js";

const MARGIN = { left: 52, right: 14, top: 12, bottom: 24 };
const MINIMAL_DRAG_PX = 8;
const MINIMAL_RANGE_MS = 2000;
const REACH_PX = 40;

/** A small line without axes for tables; the number beside it says the same in text. */
export function sparkline(points, label) {
  const [width, height] = [96, 24];
  if (points.length < 2) return h("span", { class: "muted", title: "Not enough samples yet" }, "·");
  const [from, to] = [points[0][0], points.at(-1)[0]];
  const top = Math.max(1, ...points.map((point) => point[1]));
  const place = points.map(([at, value]) =>
    `${(((at - from) / Math.max(1, to - from)) * (width - 4) + 2).toFixed(1)},${(height - 3 - (value / top) * (height - 6)).toFixed(1)}`);
  return s("svg", { class: "sparkline", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    s("polygon", { class: "fill", points: `2,${height - 1} ${place.join(" ")} ${width - 2},${height - 1}` }),
    s("polyline", { points: place.join(" ") }));
}

/** What both charts share: size, time axis, crosshair, zoom by dragging and by keys. */
class TimeChart {
  constructor(kind, height) {
    this.height = height;
    this.width = 640;
    this.wanted = null; // the last update
    this.at = null; // the time under the pointer or the keyboard's cursor
    this.drag = null;
    this.picture = h("div", { class: "chart-picture" });
    this.tip = h("div", { class: "chart-tip", hidden: true });
    this.element = h("div", { class: `chart ${kind}` }, this.picture, this.tip);
    new ResizeObserver(() => this.resized()).observe(this.element);
  }

  resized() {
    const width = Math.round(this.element.clientWidth);
    if (width > 0 && width !== this.width) {
      this.width = width;
      this.draw();
    }
  }

  update(wanted) {
    this.wanted = wanted;
    this.draw();
  }

  get plot() {
    return { left: MARGIN.left, right: this.width - MARGIN.right, top: MARGIN.top, bottom: this.height - MARGIN.bottom };
  }

  x(at) {
    const [from, to] = this.wanted.range;
    return this.plot.left + ((at - from) / Math.max(1, to - from)) * (this.plot.right - this.plot.left);
  }

  time(x) {
    const [from, to] = this.wanted.range;
    const share = (x - this.plot.left) / (this.plot.right - this.plot.left);
    return from + Math.min(1, Math.max(0, share)) * (to - from);
  }

  draw() {
    if (this.wanted === null) return;
    const svg = s("svg", {
      class: "chart-svg", viewBox: `0 0 ${this.width} ${this.height}`, height: this.height, width: this.width,
      tabindex: "0", role: "group", "aria-label": this.wanted.label, "aria-roledescription": "chart",
      on: {
        pointermove: (event) => this.pointed(event), pointerleave: () => this.point(null),
        pointerdown: (event) => this.pressed(event), pointerup: (event) => this.released(event),
        pointercancel: () => this.dropDrag(), dblclick: () => this.wanted.onZoom(null), keydown: (event) => this.key(event),
        blur: (event) => this.blurred(event),
      },
    }, this.axis(), this.content(), this.cursor(), this.dragged());
    morph(this.picture, h("div", null, svg));
  }

  axis() {
    const { left, right, bottom } = this.plot;
    const [from, to] = this.wanted.range;
    const ticks = timeTicks(from, to, Math.max(2, Math.floor((right - left) / 110)));
    return s("g", { class: "axis", "aria-hidden": "true" },
      s("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "base" }),
      ticks.map(([at, words]) => s("text", { x: this.x(at), y: bottom + 17, "text-anchor": "middle" }, words)),
      ticks.map(([at]) => s("line", { x1: this.x(at), x2: this.x(at), y1: bottom, y2: bottom + 4, class: "base" })));
  }

  cursor() {
    if (this.at === null || this.drag !== null) return null;
    const x = this.x(this.at);
    return s("line", { class: "cursor", x1: x, x2: x, y1: this.plot.top, y2: this.plot.bottom, "aria-hidden": "true" });
  }

  dragged() {
    if (this.drag === null) return null;
    const [a, b] = [this.drag.from, this.drag.to].sort((p, q) => p - q);
    return s("rect", { class: "dragged", x: a, width: b - a, y: this.plot.top, height: this.plot.bottom - this.plot.top });
  }

  place(event) {
    const box = this.picture.getBoundingClientRect();
    return Math.min(this.plot.right, Math.max(this.plot.left, event.clientX - box.left));
  }

  pointed(event) {
    if (this.drag !== null) {
      this.drag.to = this.place(event);
      this.draw();
      return;
    }
    this.point(this.time(this.place(event)));
  }

  pressed(event) {
    if (event.button !== 0 || event.pointerType === "touch") return; // a finger scrolls the page
    this.drag = { from: this.place(event), to: this.place(event) };
    event.currentTarget.setPointerCapture(event.pointerId);
  }

  released(event) {
    if (this.drag === null) return;
    const { from } = this.drag;
    const to = this.place(event);
    this.drag = null;
    if (Math.abs(to - from) >= MINIMAL_DRAG_PX) this.zoom(this.time(Math.min(from, to)), this.time(Math.max(from, to)));
    else this.draw();
  }

  dropDrag() {
    this.drag = null;
    this.draw();
  }

  zoom(from, to) {
    if (to - from >= MINIMAL_RANGE_MS) this.wanted.onZoom([Math.round(from), Math.round(to)]);
    this.draw();
  }

  key(event) {
    const [from, to] = this.wanted.range;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) this.point(this.stepped(step));
    else if (event.key === "Escape" || event.key === "0") this.wanted.onZoom(null);
    else if (event.key === "+" || event.key === "=") {
      const middle = this.at ?? (from + to) / 2;
      this.zoom(middle - (to - from) / 4, middle + (to - from) / 4);
    } else if (event.key === "-") this.zoom(from - (to - from) / 2, to + (to - from) / 2);
    else return;
    event.preventDefault();
  }

  blurred(event) {
    if (!event.currentTarget.contains(event.relatedTarget)) this.point(null);
  }

  /** Shows the values at a time, or none. */
  point(at) {
    this.at = at;
    this.draw();
    const lines = at === null ? null : this.reading(at);
    if (lines === null) {
      this.tip.hidden = true;
      return;
    }
    morph(this.tip, h("div", null, lines));
    this.tip.hidden = false;
    const x = this.x(at);
    const right = x > this.width / 2;
    this.tip.classList.toggle("at-left", right);
    this.tip.style.left = right ? "auto" : `${x + 12}px`;
    this.tip.style.right = right ? `${this.width - x + 12}px` : "auto";
  }
}

/** Lines over time. update({series: [{key, name, tone, points: [[at, value]]}], marks: [at], range, format, label, onZoom}). */
export class LineChart extends TimeChart {
  constructor() {
    super("line-chart", 240);
  }

  visible() {
    const [from, to] = this.wanted.range;
    return this.wanted.series.map((each) => ({ ...each, points: within(each.points, from, to) }));
  }

  content() {
    const { left, right, top, bottom } = this.plot;
    const lines = this.visible();
    const most = Math.max(0, ...lines.flatMap((line) => line.points.map((point) => point[1] ?? 0)));
    const ticks = valueTicks(most, this.wanted.format);
    const highest = ticks.at(-1);
    this.y = (value) => bottom - (value / highest) * (bottom - top);
    const grid = ticks.map((value) => s("g", { class: "axis", "aria-hidden": "true" },
      s("line", { x1: left, x2: right, y1: this.y(value), y2: this.y(value) }),
      s("text", { x: left - 8, y: this.y(value) + 4, "text-anchor": "end" }, this.wanted.format(value))));
    const marks = this.wanted.marks.filter((at) => at >= this.wanted.range[0] && at <= this.wanted.range[1])
      .map((at) => s("line", { class: "mark", x1: this.x(at), x2: this.x(at), y1: top, y2: bottom }));
    const paths = lines.map((line) => s("path", { key: line.key, class: `line tone-${line.tone}`, d: this.path(line.points) }));
    return s("g", null, grid, s("g", { "aria-hidden": "true" }, marks), s("g", { "aria-hidden": "true" }, paths), this.dots(lines));
  }

  path(points) {
    let pen = "M";
    return points.map(([at, value]) => {
      if (value === null) {
        pen = "M";
        return "";
      }
      const step = `${pen}${this.x(at).toFixed(1)} ${this.y(value).toFixed(1)}`;
      pen = "L";
      return step;
    }).join("");
  }

  dots(lines) {
    if (this.at === null || this.drag !== null) return null;
    return s("g", { "aria-hidden": "true" }, lines.map((line) => {
      const near = nearest(line.points, this.at);
      return near && near[1] !== null ? s("circle", { class: `dot tone-${line.tone}`, cx: this.x(near[0]), cy: this.y(near[1]), r: 3.5 }) : null;
    }));
  }

  stepped(step) {
    const times = this.visible()[0]?.points.map((point) => point[0]) ?? [];
    if (!times.length) return null;
    if (this.at === null) return step > 0 ? times[0] : times.at(-1);
    const here = times.findIndex((at) => at >= this.at - 1);
    return times[Math.min(times.length - 1, Math.max(0, (here < 0 ? times.length - 1 : here) + step))];
  }

  reading(at) {
    const lines = this.visible().map((line) => [line, nearest(line.points, at)]).filter(([, near]) => near);
    if (!lines.length) return null;
    return [h("p", { class: "tip-time" }, clock(lines[0][1][0])),
      lines.map(([line, near]) => h("p", { class: "tip-row" }, h("span", { class: `swatch tone-${line.tone}` }), h("span", null, line.name),
        h("strong", null, near[1] === null ? "–" : this.wanted.format(near[1]))))];
  }
}

/** Rebalances as lollipops: where in time, how long (height), why (shape and tone). */
export class RebalanceChart extends TimeChart {
  constructor() {
    super("rebalance-chart", 150);
  }

  // {rebalances: [{number, began_ms, duration_ms, kind, words}], range, selected, onSelect, label, onZoom}
  content() {
    const { top, bottom, left, right } = this.plot;
    const [from, to] = this.wanted.range;
    const seen = this.wanted.rebalances.filter((each) => each.began_ms >= from && each.began_ms <= to);
    const most = Math.max(1000, ...seen.map((each) => each.duration_ms ?? 0));
    this.heads = [];
    const y = (ms) => bottom - 14 - (Math.sqrt(ms) / Math.sqrt(most)) * (bottom - top - 28); // short ones stay visible
    const scale = [0, most].map((ms) => s("text", { x: left - 8, y: y(ms) + 4, "text-anchor": "end" }, ms === 0 ? "0 s" : `${count(ms / 1000)} s`));
    return s("g", null, s("g", { class: "axis", "aria-hidden": "true" }, scale, s("line", { x1: left, x2: right, y1: y(most), y2: y(most) })),
      seen.map((each) => this.lollipop(each, y(each.duration_ms ?? 0))));
  }

  lollipop(each, y) {
    const x = this.x(each.began_ms);
    this.heads.push([each.number, x, y]);
    const chosen = each.number === this.wanted.selected;
    const end = Math.max(x + 2, this.x(each.began_ms + (each.duration_ms ?? 0)));
    return s("g", {
      key: `rebalance-${each.number}`, class: `lollipop kind-${each.kind}${chosen ? " chosen" : ""}`, role: "button", tabindex: "0",
      "aria-label": each.words, "aria-pressed": String(chosen), "data-rebalance": each.number,
      on: {
        focus: () => this.wanted.onSelect(each.number), click: () => this.wanted.onSelect(each.number),
      },
    },
    s("rect", { class: "reach", x: x - 9, width: 18, y: this.plot.top, height: this.plot.bottom - this.plot.top }),
    s("rect", { class: "span", x, width: end - x, y: this.plot.bottom - 5, height: 5 }),
    s("line", { x1: x, x2: x, y1: this.plot.bottom, y2: y }),
    shape(each.kind, x, y));
  }

  /** The rebalance whose head is nearest to the pointer is shown: several may stand in one place. */
  pointed(event) {
    super.pointed(event);
    if (this.drag !== null) return;
    const box = this.picture.getBoundingClientRect();
    const away = ([, x, y]) => Math.hypot(x - (event.clientX - box.left), (y - (event.clientY - box.top)) / 3);
    const best = this.heads.reduce((a, b) => (a && away(a) <= away(b) ? a : b), null);
    if (best && away(best) < REACH_PX) this.wanted.onSelect(best[0]);
  }

  stepped(step) {
    const [from, to] = this.wanted.range;
    const seen = this.wanted.rebalances.filter((each) => each.began_ms >= from && each.began_ms <= to).sort((a, b) => a.began_ms - b.began_ms);
    if (!seen.length) return null;
    const here = seen.findIndex((each) => each.number === this.wanted.selected);
    const next = seen[here < 0 ? (step > 0 ? 0 : seen.length - 1) : Math.min(seen.length - 1, Math.max(0, here + step))];
    this.wanted.onSelect(next.number);
    return next.began_ms;
  }

  reading() {
    return null; // the card below says it all
  }
}

// Each kind has a shape of its own, so that colour is not needed to tell them apart.
function shape(kind, x, y) {
  if (kind === "joined") return s("circle", { cx: x, cy: y, r: 5.5 });
  if (kind === "left") return s("rect", { x: x - 5, y: y - 5, width: 10, height: 10, rx: 1.5 });
  if (kind === "failed") return s("path", { d: `M${x} ${y - 7}L${x + 7} ${y + 5}H${x - 7}Z` });
  return s("path", { d: `M${x} ${y - 6.5}L${x + 6.5} ${y}L${x} ${y + 6.5}L${x - 6.5} ${y}Z` });
}

function within(points, from, to) {
  return points.filter(([at]) => at >= from && at <= to);
}

function nearest(points, at) {
  let best = null;
  for (const point of points) if (best === null || Math.abs(point[0] - at) < Math.abs(best[0] - at)) best = point;
  return best;
}

function valueTicks(most, format) {
  const wanted = most <= 0 ? 1 : most;
  const rough = wanted / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  let step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= rough);
  if (format.whole) step = Math.max(1, Math.ceil(step));
  const ticks = [];
  for (let value = 0; value < wanted + step * 0.999 && ticks.length < 8; value += step) ticks.push(value);
  return ticks;
}

const TIME_STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800];

function timeTicks(from, to, most) {
  const span = (to - from) / 1000;
  const step = (TIME_STEPS_S.find((each) => span / each <= most) ?? Math.ceil(span / most)) * 1000;
  const zone = new Date(from).getTimezoneOffset() * 60_000;
  const ticks = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to && ticks.length < 40; at += step) {
    const date = new Date(at);
    const hours = `${two(date.getHours())}:${two(date.getMinutes())}`;
    const words = step < 60_000 ? `${hours}:${two(date.getSeconds())}` : step < 86_400_000 ? hours : `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
    ticks.push([at, words]);
  }
  return ticks;
}
