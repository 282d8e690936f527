// Parts that several pages use: headings, badges, tables, pagers, empty states and messages about trouble.

import { h } from "./dom.js";
import { count } from "./format.js";

const HEALTH = {
  OK: ["●", "It keeps up, or its lag shrinks."],
  WARN: ["▲", "It reads and commits, but its lag grows."],
  ERR: ["✕", "At least one partition is not read: it has stopped, stalled or gone back."],
  STOP: ["■", "It commits nothing any more, and records are waiting."],
  STALL: ["❙❙", "It commits, but always the same offset, and records are waiting."],
  REWIND: ["↺", "Its committed offset went back."],
  NOTFOUND: ["○", "Nothing is known yet."],
};
const STATES = {
  Stable: "good", Empty: "calm", Dead: "bad", PreparingRebalance: "busy", CompletingRebalance: "busy",
  Assigning: "busy", Reconciling: "busy",
};

export function heading(title, ...beside) {
  return h("div", { class: "heading", key: "heading" }, h("h1", { tabindex: "-1" }, title), beside);
}

export function section(title, id, beside, ...content) {
  return h("section", { class: "card", key: id, "aria-labelledby": `${id}-title` },
    h("div", { class: "card-head" }, h("h2", { id: `${id}-title` }, title), beside), content);
}

/** OK, WARN, ERR …: a sign and a word, not a colour alone. */
export function healthBadge(health) {
  const [glyph, words] = HEALTH[health] ?? ["○", "Nothing is known yet."];
  return h("span", { class: `badge health-${health}`, title: words }, h("span", { "aria-hidden": "true", class: "glyph" }, glyph),
    health === "NOTFOUND" ? "UNKNOWN" : health);
}

export function healthWords(health) {
  return HEALTH[health]?.[1] ?? "";
}

export const HEALTHS = Object.keys(HEALTH).filter((each) => each !== "NOTFOUND");

export function stateBadge(state) {
  return h("span", { class: `badge state-${STATES[state] ?? "calm"}` }, state || "unknown");
}

/** A tile with one number: what it is, the number, and what it means. */
export function figure(label, value, below = null, title = null) {
  return h("div", { class: "figure", key: label }, h("dt", null, label), h("dd", { title }, value), below ? h("dd", { class: "below" }, below) : null);
}

export function figures(...each) {
  return h("dl", { class: "figures", key: "figures" }, each);
}

/**
 * A table that becomes cards on a phone.
 * columns: [{name, label, sort: bool, number: bool, cell: (row) => node}], rows with `key`.
 */
export function table({ id, caption, columns, rows, sort = null, order = "asc", onSort = null, empty = "Nothing here." }) {
  const head = columns.map((column) => {
    const sorted = sort === column.name;
    const label = column.sort && onSort
      ? h("button", { type: "button", class: "sorter", on: { click: () => onSort(column.name, nextOrder(column, sorted, order)) } },
        column.label, h("span", { class: "arrow", "aria-hidden": "true" }, sorted ? (order === "asc" ? "↑" : "↓") : ""))
      : column.label;
    return h("th", {
      scope: "col", class: column.number ? "number" : null, title: column.title,
      "aria-sort": sorted ? (order === "asc" ? "ascending" : "descending") : null,
    }, label);
  });
  const body = rows.map((row) => h("tr", { key: row.key, class: row.tone ?? null }, columns.map((column, at) => {
    const cell = column.cell(row);
    const properties = { class: [column.number ? "number" : "", column.wide ? "wide" : ""].join(" ").trim() || null, "data-label": column.label };
    return at === 0 ? h("th", { scope: "row", ...properties }, cell) : h("td", properties, cell);
  })));
  return h("div", { class: "table-frame", key: id },
    h("table", { class: "table", id },
      h("caption", { class: "unseen" }, caption),
      h("thead", null, h("tr", null, head)),
      h("tbody", null, body.length ? body : h("tr", { key: "none" }, h("td", { colspan: columns.length, class: "none" }, empty)))));
}

function nextOrder(column, sorted, order) {
  if (sorted) return order === "asc" ? "desc" : "asc";
  return column.number ? "desc" : "asc";
}

/** Sorts rows in the page, for lists that came as a whole; unknown values come last. */
export function sorted(rows, sort, order) {
  const sign = order === "desc" ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [x, y] = [a[sort], b[sort]];
    if (x === y) return 0;
    if (x === null || x === undefined) return 1;
    if (y === null || y === undefined) return -1;
    return typeof x === "string" ? sign * x.localeCompare(y, "en", { numeric: true }) : sign * (x - y);
  });
}

export function pager({ total, page, size, onPage, what }) {
  const pages = Math.max(1, Math.ceil(total / size));
  if (pages === 1) return null;
  const from = (page - 1) * size + 1;
  return h("nav", { class: "pager", "aria-label": `Pages of ${what}`, key: "pager" },
    h("button", { type: "button", class: "button", disabled: page <= 1, on: { click: () => onPage(page - 1) } }, "Previous"),
    h("span", { class: "muted" }, `${count(from)} to ${count(Math.min(total, page * size))} of ${count(total)}`),
    h("button", { type: "button", class: "button", disabled: page >= pages, on: { click: () => onPage(page + 1) } }, "Next"));
}

/** Says that there is nothing yet, and what to do. */
export function nothing(title, words, ...commands) {
  return h("div", { class: "nothing", key: "nothing" }, h("p", { class: "nothing-title" }, title), words ? h("p", null, words) : null,
    commands.length ? h("pre", { class: "commands", tabindex: "0", "aria-label": "Commands" }, h("code", null, commands.join("\n"))) : null);
}

export function troubleBox(trouble, again) {
  return h("div", { class: "trouble", role: "alert", key: "trouble-box" },
    h("p", { class: "trouble-title" }, trouble.status === 404 ? "It is not there" : "That did not work"),
    h("p", null, trouble.message),
    again ? h("button", { type: "button", class: "button", on: { click: again } }, "Try again") : null);
}

/** A field with its label. */
export function field(label, control, hint = null) {
  return h("label", { class: "field" }, h("span", { class: "field-label" }, label), control, hint ? h("span", { class: "hint" }, hint) : null);
}

/** One of a few: [[value, words]]. */
export function choice(name, value, options, onChange, label) {
  return h("div", { class: "choice", role: "group", "aria-label": label }, options.map(([each, words]) =>
    h("button", { type: "button", "aria-pressed": String(each === value), on: { click: () => onChange(each) }, "data-choice": `${name}-${each}` }, words)));
}

export function select(properties, value, options) {
  return h("select", { ...properties, "data-value": value ?? "" }, options.map(([each, words]) => h("option", { value: each }, words)));
}

/** Waits until typing pauses. */
export function paused(wait_ms, call) {
  let timer = null;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), wait_ms);
  };
}

/** The settings of a topic or a node: what was set, or all of them. */
export function settingsSection(title, every, page) {
  const shown = page.state.all ? every : every.filter((each) => !each.is_default);
  const turn = () => {
    page.state.all = !page.state.all;
    page.redraw();
  };
  const toggle = h("button", { type: "button", class: "button small", on: { click: turn } }, page.state.all ? "Only what was set" : `All ${every.length}`);
  const columns = [
    { name: "name", label: "Setting", wide: true, cell: (row) => h("span", { class: "mono" }, row.name) },
    { name: "value", label: "Value", cell: (row) => (row.is_sensitive ? h("span", { class: "muted" }, "secret") : h("span", { class: "mono" }, row.value ?? "–")) },
    { name: "from", label: "From", cell: (row) => (row.is_default ? h("span", { class: "muted" }, "default") : "set here") },
  ];
  return section(title, "settings", h("div", { class: "card-tools" }, toggle), table({
    id: "setting-table", caption: title, columns, rows: shown.map((row) => ({ ...row, key: row.name })), empty: "Nothing was set: every setting has its default.",
  }));
}
