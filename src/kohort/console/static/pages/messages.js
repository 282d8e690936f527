// Messages of a topic, by offset, time and partition; with search, as a tree, and to take away.

import { ApiError, address, read } from "../api.js";
import { h } from "../dom.js";
import { bytes, clock, count, exact, moment, plural } from "../format.js";
import { choice, field, heading, nothing, select } from "../parts.js";
import { preview, understood, whole } from "../payload.js";

const LIMITS = [["20", "20"], ["50", "50"], ["100", "100"], ["200", "200"]];
const STARTS = [["end", "the newest"], ["beginning", "the oldest"], ["offset", "an offset"], ["time", "a time"]];

async function load(parameters, signal, page) {
  const topics = page.state.topics ??= await read("topics", { size: 200, internal: "true" }, signal);
  if (!parameters.topic) return { topics, found: null };
  const found = await read("topic/messages", { ...where(parameters), topic: parameters.topic, limit: parameters.limit ?? 50, search: parameters.search }, signal);
  return { topics, found };
}

/** Where to start, as the API takes it. */
function where({ from, offset, time, partition, cursor }) {
  if (cursor) return { cursor };
  const place = { partition };
  if (from === "offset") place.offset = offset || 0;
  else if (from === "time") place.time_ms = time;
  else place.from = from ?? "end";
  return place;
}

function view({ topics, found }, page) {
  return [heading("Messages"), form(page, topics), found ? results(page, found) : h("section", { class: "card", key: "which" }, choose(topics))];
}

function choose(topics) {
  return topics.total ? nothing("Choose a topic", "Its newest messages show here: keys, headers, JSON as a tree, anything else as text or hex.")
    : nothing("No topic yet", "Write a message to make one:", "echo '{\"id\": 1}' | kohort produce orders");
}

function form(page, topics) {
  const { topic, partition, from, offset, time, limit, search } = page.parameters;
  const start = page.state.start ?? from ?? "end";
  const submit = (event) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget);
    const chosen = given.get("from");
    page.set({
      topic: given.get("topic"), partition: given.get("partition"), from: chosen === "end" ? null : chosen, cursor: null, limit: given.get("limit"), search: given.get("search"),
      offset: chosen === "offset" ? given.get("offset") : null, time: chosen === "time" ? new Date(given.get("time")).getTime() : null,
    });
  };
  return h("form", { class: "card form", key: "form", role: "search", "aria-label": "Which messages", on: { submit } },
    h("div", { class: "fields" },
      field("Topic", h("input", { name: "topic", list: "topic-names", required: true, value: topic ?? "", autocomplete: "off", spellcheck: "false" })),
      field("Partition", h("input", { name: "partition", type: "number", min: "0", step: "1", placeholder: start === "offset" ? "0" : "all", required: start === "offset", value: partition ?? "" })),
      field("From", select({ name: "from", on: { change: (event) => { page.state.start = event.target.value; page.redraw(); } } }, start, STARTS)),
      start === "offset" ? field("Offset", h("input", { name: "offset", type: "number", min: "0", step: "1", required: true, value: offset ?? "0", key: "offset" })) : null,
      start === "time" ? field("Time", h("input", { name: "time", type: "datetime-local", step: "1", required: true, value: time ? local(Number(time)) : null, key: "time" })) : null,
      field("Contains", h("input", { name: "search", type: "search", "data-search": "", value: search ?? "", placeholder: "in key, value or header", key: "search" })),
      field("At most", select({ name: "limit" }, limit ?? "50", LIMITS)),
      h("button", { type: "submit", class: "button first" }, "Show")),
    h("datalist", { id: "topic-names" }, topics.items.map((each) => h("option", { value: each.topic }))));
}

function local(ms) {
  return new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

function results(page, found) {
  const newestFirst = !page.parameters.cursor && (page.parameters.from ?? "end") === "end";
  const messages = newestFirst ? [...found.messages].reverse() : found.messages;
  const searched = page.parameters.search ? `, ${count(found.scanned)} looked at${found.complete ? "" : "; there is more"}` : "";
  const move = (cursor) => page.set({ cursor });
  return h("section", { class: "card", key: "results", "aria-labelledby": "results-title" },
    h("div", { class: "card-head" }, h("h2", { id: "results-title" }, plural(messages.length, "message")), h("span", { class: "muted" }, `${found.ranges.map((each) => `${each.partition}: ${exact(each.first)}–${exact(each.next)}`).slice(0, 4).join(" · ")}${found.ranges.length > 4 ? " …" : ""}${searched}`),
      h("div", { class: "card-tools" },
        choice("as", page.parameters.as === "text" ? "text" : "tree", [["tree", "Tree"], ["text", "Text"]], (as) => page.set({ as: as === "text" ? "text" : null }), "How JSON is shown"),
        messages.length ? h("button", { type: "button", class: "button small", on: { click: () => download(`${found.topic.replace(/[^\w.-]/g, "_")}.jsonl`, messages.map((each) => JSON.stringify(each)).join("\n")) } }, "Download") : null)),
    found.partitions_left_out ? h("p", { class: "hint" }, `${plural(found.partitions_left_out, "partition")} more were not read; choose one of them.`) : null,
    messages.length ? h("div", { class: "messages" }, messages.map((each) => message(page, found.topic, each)))
      : nothing(page.parameters.search ? "Nothing found" : "No message here", page.parameters.search ? "No message that was looked at contains this text." : "There is no message at this place yet."),
    h("nav", { class: "pager", "aria-label": "Older and newer messages" },
      h("button", { type: "button", class: "button", disabled: !found.previous, on: { click: () => move(found.previous) } }, "Older"),
      h("button", { type: "button", class: "button", disabled: !found.next, on: { click: () => move(found.next) } }, "Newer")));
}

function message(page, topic, each) {
  const key = `${each.partition}-${each.offset}`;
  const open = page.state.open ??= new Set();
  const toggle = (event) => {
    if (event.currentTarget.open === open.has(key)) return;
    if (event.currentTarget.open) open.add(key);
    else open.delete(key);
    page.redraw();
    if (event.currentTarget.open && (each.value?.truncated || each.key?.truncated)) fetchWhole(page, topic, each, key);
  };
  return h("details", { class: "message", key, on: { toggle } },
    h("summary", null,
      h("span", { class: "message-place number" }, h("span", { class: "muted" }, `${each.partition}:`), exact(each.offset)),
      h("span", { class: "message-time muted number", title: moment(each.timestamp_ms) }, clock(each.timestamp_ms)),
      h("span", { class: "message-key" }, preview(each.key, 40)),
      h("span", { class: "message-value" }, preview(each.value))),
    open.has(key) ? body(page, topic, page.state.wholes?.get(key) ?? each) : null);
}

/** Lists hold the beginning of long messages; one that was opened comes as a whole, up to a megabyte. */
async function fetchWhole(page, topic, { partition, offset }, key) {
  const wholes = page.state.wholes ??= new Map();
  if (wholes.has(key)) return;
  try {
    wholes.set(key, (await read("topic/message", { topic, partition, offset })).message);
  } catch (trouble) {
    if (!(trouble instanceof ApiError)) throw trouble; // the beginning is shown, and says that it is one
  }
  page.redraw();
}

function body(page, topic, each) {
  const raw = page.parameters.as === "text";
  const text = understood(each.value).kind === "json" ? "json" : "bin";
  return h("div", { class: "message-body" },
    h("dl", { class: "facts" },
      fact("Partition", each.partition), fact("Offset", exact(each.offset)), fact(each.timestamp_type ?? "Time", moment(each.timestamp_ms)),
      fact("Key", each.key ? bytes(each.key.size) : "null"), fact("Value", each.value ? bytes(each.value.size) : "null")),
    h("h3", null, "Key"), whole(each.key, raw),
    h("h3", null, "Value"), whole(each.value, raw),
    each.headers.length ? [h("h3", null, "Headers"), h("dl", { class: "headers" }, each.headers.map((header) => [h("dt", { class: "mono" }, header.name), h("dd", null, preview(header.value))]))] : null,
    h("div", { class: "actions left" },
      h("a", { class: "button small", download: `${topic.replace(/[^\w.-]/g, "_")}-${each.partition}-${each.offset}.${text}`, href: address("topic/message/download", { topic, partition: each.partition, offset: each.offset }) }, "Download the value")));
}

function fact(name, value) {
  return h("div", { key: name }, h("dt", null, name), h("dd", null, value));
}

function download(name, text) {
  const url = URL.createObjectURL(new Blob([text, "\n"], { type: "application/x-ndjson" }));
  const anchor = h("a", { href: url, download: name });
  anchor.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export default { tab: "messages", title: ({ topic }) => (topic ? `Messages of ${topic}` : "Messages"), load, view, live: false };
