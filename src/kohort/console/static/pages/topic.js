// One topic: its partitions, the groups that read it, and its settings.

import { read } from "../api.js";
import { h } from "../dom.js";
import { count, exact } from "../format.js";
import { figure, figures, heading, healthBadge, nothing, pager, section, settingsSection, stateBadge, table } from "../parts.js";
import { link } from "../route.js";

const SIZE = 50;

async function load({ topic, page }, signal) {
  return read("topic", { topic, page: page ?? 1, size: SIZE }, signal);
}

function view(topic, page) {
  return [
    heading(topic.topic, h("div", { class: "badges" }, topic.internal ? h("span", { class: "badge state-calm" }, "internal") : null,
      h("a", { class: "button", href: link("messages", { topic: topic.topic }) }, "Messages"))),
    figures(figure("Records", count(topic.records), "offsets that its logs span", exact(topic.records)),
      figure("Partitions", count(topic.partitions_total)), figure("Groups", count(topic.groups.length), topic.groups.length ? "read it" : "nobody reads it")),
    h("div", { class: "columns", key: "columns" },
      h("div", { class: "column wide", key: "partitions" }, partitions(topic, page)),
      h("div", { class: "column", key: "readers" }, readers(topic))),
    settingsSection("Settings", topic.settings, page),
  ];
}

function partitions(topic, page) {
  const columns = [
    { name: "partition", label: "Partition", cell: (row) => row.partition },
    { name: "begin", label: "First", number: true, cell: (row) => exactOrDash(row.begin) },
    { name: "end", label: "End", number: true, cell: (row) => exactOrDash(row.end) },
    { name: "records", label: "Records", number: true, cell: (row) => count(row.records) },
    { name: "leader", label: "Leader", number: true, cell: (row) => (row.leader < 0 ? h("span", { class: "badge health-ERR" }, "none") : row.leader) },
    { name: "replicas", label: "Replicas", cell: (row) => [row.replicas.join(", "), row.isr.length < row.replicas.length ? h("span", { class: "badge health-WARN" }, `in sync ${row.isr.join(", ") || "none"}`) : null] },
    { name: "look", label: "Look", cell: (row) => h("a", { href: link("messages", { topic: topic.topic, partition: row.partition }), "aria-label": `Messages of partition ${row.partition}` }, "messages") },
  ];
  return section("Partitions", "partitions", h("span", { class: "muted" }, count(topic.partitions_total)),
    table({ id: "partition-table", caption: "Partitions", columns, rows: topic.partitions.map((row) => ({ ...row, key: String(row.partition) })) }),
    pager({ total: topic.partitions_total, page: topic.page, size: topic.size, what: "partitions", onPage: (to) => page.set({ page: to }) }));
}

function exactOrDash(n) {
  return n === null ? "–" : exact(n);
}

function readers(topic) {
  if (!topic.groups.length) return section("Read by", "readers", null, nothing("No group reads it", "A group shows here once it owns a partition or has committed an offset.", `kohort consume ${topic.topic} --group my-group`));
  const columns = [
    { name: "group", label: "Group", wide: true, cell: (row) => h("a", { href: link("group", { group: row.group }), class: "name" }, row.group) },
    { name: "health", label: "Health", cell: (row) => healthBadge(row.health) },
    { name: "state", label: "State", cell: (row) => stateBadge(row.state) },
    { name: "lag", label: "Lag here", number: true, cell: (row) => h("span", { title: exact(row.lag) }, count(row.lag)) },
  ];
  return section("Read by", "readers", h("span", { class: "muted" }, count(topic.groups.length)), table({ id: "reader-table", caption: "Groups that read it", columns, rows: topic.groups.map((row) => ({ ...row, key: row.group })) }));
}

function trouble(error) {
  if (error.status !== 404) return null;
  return h("div", { class: "trouble", role: "alert", key: "gone" }, h("p", { class: "trouble-title" }, "This topic is gone, or was never there"), h("p", null, error.message),
    h("a", { class: "button", href: link("topics") }, "To all topics"));
}

export default { tab: "topics", title: ({ topic }) => topic ?? "Topic", identity: ({ topic }) => topic, load, view, trouble };
