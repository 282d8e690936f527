// The part of a group's page that runs along time: lag, and below it the rebalances. Both show the same range.

import { LineChart, RebalanceChart } from "../charts.js";
import { h, island } from "../dom.js";
import { ago, clock, count, duration, moment, plural, shortMember } from "../format.js";
import { choice, nothing, section, table } from "../parts.js";

const MOST_LINES = 7;
const HOUR_MS = 3_600_000;
const TABLE_ROWS = 60;

/** The time that is shown: as zoomed (it is in the address), else up to the last hour of what is known. */
export function rangeOf(page, lag, rebalances, nowMs) {
  const { from_ms, to_ms } = page.parameters;
  const [from, to] = [Number(from_ms), Number(to_ms)];
  if (from_ms && to_ms && from < to) return [from, to];
  const known = [lag.total[0]?.[0], rebalances.rebalances.at(-1)?.began_ms].filter((each) => each !== undefined);
  const now = Math.max(nowMs ?? 0, lag.total.at(-1)?.[0] ?? 0);
  const first = Math.max(now - HOUR_MS, Math.min(now - 60_000, ...known));
  return [first - (now - first) * 0.02, now + (now - first) * 0.02];
}

function zoom(page, range) {
  page.set({ from_ms: range?.[0] ?? null, to_ms: range?.[1] ?? null });
}

function zoomTools(page) {
  const zoomed = page.parameters.from_ms && page.parameters.to_ms;
  return zoomed ? h("button", { type: "button", class: "button small", "data-unzoom": "", on: { click: () => zoom(page, null) } }, "Show all time") : null;
}

export function lagSection(page, lag, rebalances, range) {
  const unit = page.parameters.unit === "seconds" ? "seconds" : "records";
  const column = unit === "seconds" ? 2 : 1;
  const lines = linesOf(lag, column);
  const format = unit === "seconds" ? duration : Object.assign((n) => count(n), { whole: true });
  const last = lag.total.at(-1);
  const chart = page.part("lag-chart", () => new LineChart());
  chart.update({
    series: lines, marks: rebalances.rebalances.map((each) => each.began_ms), range, format, onZoom: (to) => zoom(page, to),
    label: `Lag over time in ${unit}, ${plural(lines.length, "line")}. ${last ? `Now ${format(last[column])}.` : ""} Arrow keys read values, plus and minus zoom, Escape shows all time. A table follows.`,
  });
  const tools = h("div", { class: "card-tools" }, zoomTools(page),
    choice("unit", unit, [["records", "Records"], ["seconds", "Seconds"]], (to) => page.set({ unit: to === "records" ? null : to }), "Unit of the lag"));
  if (lag.total.length < 2) {
    return section("Lag", "lag", tools, h("p", { class: "muted" }, "The first samples are being taken; the picture follows in a few seconds."));
  }
  return section("Lag", "lag", tools, island(chart), legend(lines, lag), h("p", { class: "hint pointer-only" }, "Drag over time to zoom; double click shows all time."), lagTable(page, lines, format, unit));
}

function linesOf(lag, column) {
  const pick = (points) => points.map((point) => [point[0], point[column]]);
  const parts = lag.partitions.slice(0, MOST_LINES)
    .map((each) => [each, `${each.topic} ${each.partition}`])
    .sort((a, b) => a[1].localeCompare(b[1], "en", { numeric: true }))
    .map(([each, name], at) => ({ key: name, name, tone: at + 1, points: pick(each.points) }));
  const total = { key: "total", name: column === 2 ? "longest" : "all partitions", tone: 0, points: pick(lag.total) };
  return lag.partitions.length === 1 ? [total] : [total, ...parts];
}

function legend(lines, lag) {
  const left = (lag.partitions_total ?? lag.partitions.length) - (lines.length - 1);
  return h("ul", { class: "legend", "aria-label": "Lines" }, lines.map((line) => h("li", { key: line.key }, h("span", { class: `swatch tone-${line.tone}`, "aria-hidden": "true" }), line.name)),
    lines.length > 1 && left > 0 ? h("li", { class: "muted", key: "more" }, `and ${plural(left, "partition")} with less lag`) : null);
}

function lagTable(page, lines, format, unit) {
  const step = Math.max(1, Math.ceil(lines[0].points.length / TABLE_ROWS));
  const rows = lines[0].points.map(([at], index) => ({ key: String(at), at, index })).filter((row, index, all) => index % step === 0 || index === all.length - 1).reverse();
  const columns = [{ name: "at", label: "Time", cell: (row) => clock(row.at) },
    ...lines.map((line) => ({ name: line.key, label: line.name, number: true, cell: (row) => format(line.points.find((point) => point[0] === row.at)?.[1] ?? null) }))];
  const draw = () => table({ id: "lag-table", caption: `Lag in ${unit}`, columns, rows });
  return lazyDetails(page, "Lag as a table", "lag-as-table", draw);
}

// A table that nobody opened is not made: it would be made anew with each sample.
function lazyDetails(page, words, key, draw) {
  page.state.opened ??= new Set();
  const toggle = (event) => {
    if (event.currentTarget.open === page.state.opened.has(key)) return;
    if (event.currentTarget.open) page.state.opened.add(key);
    else page.state.opened.delete(key);
    page.redraw();
  };
  return h("details", { class: "as-table", key, on: { toggle } }, h("summary", null, words), page.state.opened.has(key) ? draw() : null);
}

export function rebalanceSection(page, history, range) {
  const { rebalances } = history;
  const newest = rebalances[0];
  const chosen = rebalances.find((each) => each.number === page.state.chosen) ?? newest;
  const chart = page.part("rebalance-chart", () => new RebalanceChart());
  chart.update({
    rebalances: rebalances.map((each) => ({ ...each, kind: kindOf(each), words: spoken(each) })), range, selected: chosen?.number,
    onSelect: (number) => {
      if (page.state.chosen === number) return;
      page.state.chosen = number;
      page.redraw();
    },
    onZoom: (to) => zoom(page, to),
    label: `Rebalances over time: ${rebalances.length}. Arrow keys go from one to the next. A table follows.`,
  });
  const unknown = history.unknown?.length ? h("ul", { class: "hint", key: "unknown" }, history.unknown.map((each) => h("li", null, each))) : null;
  if (!rebalances.length) {
    return section("Rebalances", "rebalances", null, nothing("No rebalance is on record", "The next one shows here as it happens: who caused it, why, and how long it took."), unknown);
  }
  const seen = rebalances.filter((each) => each.began_ms >= range[0] && each.began_ms <= range[1]).length;
  const earlier = rebalances.length - seen;
  const all = () => zoom(page, [rebalances.at(-1).began_ms - 5000, Date.now()]);
  const tools = h("div", { class: "card-tools" }, zoomTools(page),
    earlier > 0 ? h("button", { type: "button", class: "button small", on: { click: all } }, `Show ${count(earlier)} more`) : null,
    h("span", { class: "muted" }, `${rebalances.length} on record`));
  return section("Rebalances", "rebalances", tools, island(chart), kinds(), card(chosen), unknown, rebalanceTable(page, rebalances, chosen));
}

/** joined, left, failed or other: the shape in the chart. */
function kindOf(each) {
  const reason = each.reason.toLowerCase();
  if (/expire|session|fail|fenced|timeout|timed out|did not/.test(reason)) return "failed";
  if (/left|leav|unsubscri|closed|removed/.test(reason)) return "left";
  if (/join/.test(reason) && !/rejoin/.test(reason)) return "joined";
  return "other";
}

function kinds() {
  const words = [["joined", "●", "joined"], ["left", "■", "left"], ["failed", "▲", "failed"], ["other", "◆", "other"]];
  return h("ul", { class: "legend", "aria-label": "Shapes", key: "kinds" }, words.map(([kind, glyph, text]) => h("li", null, h("span", { class: `kind-${kind} glyph`, "aria-hidden": "true" }, glyph), text)));
}

function spoken(each) {
  return `${clock(each.began_ms)}: ${shortMember(each.reason)}. ${lasted(each)}. Generation ${each.generation_before} to ${each.generation_after ?? "unknown"}. ${each.outcome}.`;
}

function lasted(each) {
  return each.duration_ms === null ? (each.outcome === "running" ? "running" : "duration unknown") : `took ${duration(each.duration_ms / 1000)}`;
}

/** Everything about one rebalance: who caused it and why. */
function card(each) {
  const facts = [
    ["Caused by", each.member_id ? shortMember(each.member_id) : "no single member", each.member_id],
    ["Took", each.duration_ms === null ? (each.outcome === "running" ? "still running" : "unknown") : `${duration(each.duration_ms / 1000)}${parts(each)}`],
    ["Generation", `${each.generation_before} → ${each.generation_after ?? "?"}`],
    ["Outcome", `${each.outcome}, ${plural(each.size, "member")}`],
    ["Last to join", each.last_to_join ? shortMember(each.last_to_join) : null, each.last_to_join],
    ["Last to sync", each.last_to_sync ? shortMember(each.last_to_sync) : null, each.last_to_sync],
    ["Came", names(each.came)],
    ["Went", each.went.length ? each.went.map(({ member_id, reason }) => `${shortMember(member_id)}: ${shortMember(reason)}`).join("; ") : null],
    ["Assignment changed", each.moved.length ? names(each.moved) : null],
  ].filter(([, value]) => value);
  return h("div", { class: "rebalance-card", key: "card", "data-shown": each.number },
    h("p", { class: "rebalance-when muted" }, h("span", { title: moment(each.began_ms) }, clock(each.began_ms)), ` · ${ago(each.began_ms)}`),
    h("p", { class: "rebalance-reason", title: each.reason }, h("span", { class: `kind-${kindOf(each)} glyph`, "aria-hidden": "true" }, GLYPHS[kindOf(each)]), shortMember(each.reason)),
    h("dl", { class: "facts" }, facts.map(([name, value, title]) => h("div", { key: name }, h("dt", null, name), h("dd", { title: title ?? null }, value)))));
}

const GLYPHS = { joined: "●", left: "■", failed: "▲", other: "◆" };

function parts(each) {
  return each.join_ms !== null && each.sync_ms !== null ? ` (join ${duration(each.join_ms / 1000)}, sync ${duration(each.sync_ms / 1000)})` : "";
}

function names(ids) {
  return ids.length ? ids.map(shortMember).join(", ") : null;
}

function rebalanceTable(page, rebalances, chosen) {
  const columns = [
    { name: "began", label: "When", cell: (row) => h("button", { type: "button", class: "link", "aria-pressed": String(row.number === chosen.number), title: moment(row.began_ms), on: { click: () => { page.state.chosen = row.number; page.redraw(); } } }, clock(row.began_ms)) },
    { name: "reason", label: "Why", wide: true, cell: (row) => h("span", { title: row.reason }, shortMember(row.reason)) },
    { name: "took", label: "Took", number: true, cell: (row) => (row.duration_ms === null ? "–" : duration(row.duration_ms / 1000)) },
    { name: "generation", label: "Generation", number: true, cell: (row) => `${row.generation_after ?? "?"}` },
    { name: "size", label: "Members", number: true, cell: (row) => count(row.size) },
    { name: "outcome", label: "Outcome", cell: (row) => row.outcome },
  ];
  const rows = rebalances.map((each) => ({ ...each, key: String(each.number), tone: each.number === chosen.number ? "chosen" : null }));
  return h("details", { class: "as-table", key: "rebalances-as-table" }, h("summary", null, "All rebalances as a table"),
    table({ id: "rebalance-table", caption: "Rebalances, the newest first", columns, rows }));
}
