// The list of topics.

import { read } from "../api.js";
import { h } from "../dom.js";
import { count, exact, rate } from "../format.js";
import { heading, nothing, pager, paused, table } from "../parts.js";
import { link } from "../route.js";

const SIZE = 50;

async function load({ search, sort, order, page, internal }, signal) {
  return read("topics", { search, sort: sort ?? "topic", order: order ?? "asc", page: page ?? 1, size: SIZE, internal: internal ? "true" : null }, signal);
}

const COLUMNS = [
  { name: "topic", label: "Topic", sort: true, wide: true, cell: (row) => [h("a", { href: link("topic", { topic: row.topic }), class: "name" }, row.topic), row.internal ? h("span", { class: "badge state-calm" }, "internal") : null] },
  { name: "partitions", label: "Partitions", sort: true, number: true, cell: (row) => count(row.partitions) },
  { name: "replication", label: "Replicas", number: true, cell: (row) => [count(row.replication), row.out_of_sync ? h("span", { class: "badge health-WARN" }, `${row.out_of_sync} not in sync`) : null, row.leaderless ? h("span", { class: "badge health-ERR" }, `${row.leaderless} without a leader`) : null] },
  { name: "records", label: "Records", sort: true, number: true, cell: (row) => h("span", { title: exact(row.records) }, count(row.records)) },
  { name: "produce_rate", label: "Written", sort: true, number: true, cell: (row) => rate(row.produce_rate) },
  { name: "groups", label: "Groups", sort: true, number: true, cell: (row) => count(row.groups) },
  { name: "messages", label: "Look", cell: (row) => h("a", { href: link("messages", { topic: row.topic }), "aria-label": `Messages of ${row.topic}` }, "messages") },
];

function view(list, page) {
  const { search, sort, order, internal } = page.parameters;
  const type = page.part("type", () => paused(200, (value) => page.set({ search: value, page: null })));
  if (list.total === 0 && !search && !internal) {
    return [heading("Topics"), h("section", { class: "card", key: "first" }, nothing("No topic yet", "Make one, or write to it: brokers that allow it create topics at the first record.",
      "kohort topics create orders --partitions 6", "echo hello | kohort produce orders"))];
  }
  return [heading("Topics"),
    h("form", { class: "filters", role: "search", key: "filters", "aria-label": "Filter the topics", on: { submit: (event) => event.preventDefault() } },
      h("input", { type: "search", "data-search": "", value: search ?? "", placeholder: "Search topics  /", "aria-label": "Search topics", on: { input: (event) => type(event.target.value) } }),
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: Boolean(internal), on: { change: (event) => page.set({ internal: event.target.checked ? "1" : null, page: null }) } }), "internal ones too")),
    h("section", { class: "card flush", key: "list", "aria-label": "Topics" }, table({
      id: "topics", caption: `Topics, ${list.total} in all`, columns: COLUMNS, rows: list.items.map((row) => ({ ...row, key: row.topic })), sort: sort ?? "topic", order: order ?? "asc",
      onSort: (by, to) => page.set({ sort: by, order: to, page: null }), empty: "No topic fits this filter.",
    })),
    pager({ total: list.total, page: list.page, size: list.size, what: "topics", onPage: (to) => page.set({ page: to }) })];
}

export default { tab: "topics", title: () => "Topics", load, view };
