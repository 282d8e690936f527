// The list of groups: sorted, filtered and paged by the server, so that a thousand of them stay quick.

import { read } from "../api.js";
import { sparkline } from "../charts.js";
import { h } from "../dom.js";
import { count, duration, exact, plural } from "../format.js";
import { figure, figures, heading, healthBadge, healthWords, HEALTHS, nothing, pager, paused, select, stateBadge, table } from "../parts.js";
import { link } from "../route.js";

const SIZE = 50;
const STATES = ["Stable", "PreparingRebalance", "CompletingRebalance", "Empty", "Dead", "Assigning", "Reconciling"];

async function load(parameters, signal) {
  const { search, state, health, sort, order, page } = parameters;
  const [cluster, list] = await Promise.all([
    read("cluster", {}, signal),
    read("groups", { search, state, health, sort: sort ?? "lag", order: order ?? "desc", page: page ?? 1, size: SIZE }, signal),
  ]);
  return { cluster, list };
}

function view({ cluster, list }, page) {
  const { parameters } = page;
  const filtered = parameters.search || parameters.state || parameters.health;
  if (list.total === 0 && !filtered) return [heading("Groups"), trouble(cluster), firstGroup(cluster)];
  return [heading("Groups"), trouble(cluster), summary(cluster), filters(page, cluster), groupTable(page, list),
    pager({ total: list.total, page: list.page, size: list.size, what: "groups", onPage: (to) => page.set({ page: to }) })];
}

function trouble(cluster) {
  const words = [cluster.reachable === false ? cluster.problem : null, ...cluster.problems].filter(Boolean);
  return words.length ? h("div", { class: "trouble", role: "status", key: "cluster-trouble" }, words.map((each) => h("p", null, each))) : null;
}

function summary(cluster) {
  const states = Object.entries(cluster.groups_by_state).map(([state, n]) => `${n} ${state}`).join(", ");
  const ill = Object.entries(cluster.groups_by_health).filter(([health]) => !["OK", "NOTFOUND"].includes(health));
  const many = ill.reduce((sum, [, n]) => sum + n, 0);
  return figures(
    figure("Groups", count(cluster.groups), states),
    figure("Lag", count(cluster.lag), "records to read, all groups", exact(cluster.lag)),
    figure("Need a look", count(many), many ? ill.map(([health, n]) => `${n} ${health}`).join(", ") : "every group keeps up"),
    figure("Topics", count(cluster.topics), `${plural(cluster.partitions, "partition")} on ${plural(cluster.nodes, "node")}`));
}

function filters(page, cluster) {
  const { search, state, health } = page.parameters;
  const type = page.part("type", () => paused(200, (value) => page.set({ search: value, page: null })));
  const states = [...new Set([...Object.keys(cluster.groups_by_state), ...STATES])];
  return h("form", { class: "filters", role: "search", key: "filters", "aria-label": "Filter the groups", on: { submit: (event) => event.preventDefault() } },
    h("input", { type: "search", "data-search": "", value: search ?? "", placeholder: "Search groups  /", "aria-label": "Search groups", on: { input: (event) => type(event.target.value) } }),
    select({ "aria-label": "State", on: { change: (event) => page.set({ state: event.target.value, page: null }) } }, state,
      [["", "Every state"], ...states.map((each) => [each, each])]),
    select({ "aria-label": "Health", on: { change: (event) => page.set({ health: event.target.value, page: null }) } }, health,
      [["", "Every health"], ...HEALTHS.map((each) => [each, each])]));
}

const COLUMNS = [
  { name: "group", label: "Group", sort: true, wide: true, cell: (row) => h("a", { href: link("group", { group: row.group }), class: "name" }, row.group) },
  { name: "health", label: "Health", sort: true, cell: (row) => healthBadge(row.health) },
  { name: "state", label: "State", sort: true, cell: (row) => stateBadge(row.state) },
  { name: "members", label: "Members", sort: true, number: true, cell: (row) => count(row.members) },
  { name: "lag", label: "Lag", sort: true, number: true, cell: (row) => h("span", { title: `${exact(row.lag)} records` }, count(row.lag)) },
  { name: "trend", label: "Trend", cell: (row) => sparkline(row.trend, `Lag of ${row.group} over time, now ${count(row.lag)}`) },
  { name: "lag_seconds", label: "Behind", sort: true, number: true, title: "How old the oldest record is that it has not read", cell: (row) => duration(row.lag_seconds) },
  { name: "caught_up_in_s", label: "Caught up in", sort: true, number: true, title: "At the present rates", cell: (row) => caughtUp(row) },
];

/** When the lag will be gone: 3 min, now, not at this rate. */
export function caughtUp(row) {
  if (row.lag === 0) return h("span", { class: "muted" }, "caught up");
  if (row.caught_up_in_s === null || row.caught_up_in_s === undefined) {
    const grows = row.health !== "OK" && row.health !== "NOTFOUND";
    return h("span", { class: "muted", title: grows ? healthWords(row.health) : "Not enough samples yet" }, grows ? "not at this rate" : "–");
  }
  return row.caught_up_in_s < 1 ? "now" : duration(row.caught_up_in_s);
}

function groupTable(page, list) {
  const rows = list.items.map((row) => ({ ...row, key: row.group }));
  return h("section", { class: "card flush", key: "list", "aria-label": "Groups" }, table({
    id: "groups", caption: `Groups, ${list.total} in all`, columns: COLUMNS, rows,
    sort: page.parameters.sort ?? "lag", order: page.parameters.order ?? "desc",
    onSort: (sort, order) => page.set({ sort, order, page: null }), empty: "No group fits this filter.",
  }));
}

function firstGroup(cluster) {
  const first = cluster.bootstrap;
  return h("section", { class: "card", key: "first" }, nothing("No group yet",
    "A group appears here as soon as a consumer joins one. These two commands make a topic with a record and a group that reads it:",
    `echo '{"id": 1}' | kohort produce orders --bootstrap ${first}`, `kohort consume orders --group billing --bootstrap ${first}`));
}

export default { tab: "groups", title: () => "Groups", load, view };
