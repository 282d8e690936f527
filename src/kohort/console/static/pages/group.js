// One group: how far behind it is, why it rebalanced, who reads what, and changes to its offsets.

import { ApiError, read } from "../api.js";
import { announce, h } from "../dom.js";
import { count, duration, exact, plural, rate, shortMember } from "../format.js";
import { figure, figures, heading, healthBadge, healthWords, nothing, pager, section, stateBadge, table } from "../parts.js";
import { link } from "../route.js";
import { stateMachine } from "../state_machine.js";
import { caughtUp } from "./groups.js";
import { manage } from "./group_changes.js";
import { lagSection, rebalanceSection, rangeOf } from "./group_time.js";

const SIZE = 50;

async function load({ group, page }, signal, showing) {
  const [described, lag, rebalances, states] = await Promise.all([
    read("group", { group, page: page ?? 1, size: SIZE }, signal),
    optional(read("group/lag", { group }, signal), () => ({ total: [], partitions: [], partitions_total: 0 })),
    history(group, signal),
    showing.state.states ? null : read("group/states", { group }, signal),
  ]);
  if (states) showing.state.states = states; // the table never changes while the server runs; the current state is the group's
  return { group: described, lag, rebalances };
}

// A group may be too new to have a lag, and a cluster may forbid to read its history: that hides nothing else.
async function optional(answer, otherwise) {
  try {
    return await answer;
  } catch (trouble) {
    if (!(trouble instanceof ApiError) || trouble.status === 0) throw trouble;
    return otherwise(trouble);
  }
}

async function history(group, signal) {
  const answer = await optional(read("group/rebalances", { group }, signal), (trouble) => ({ unknown: [trouble.message], rebalances: [] }));
  return { ...answer, rebalances: [...answer.rebalances].sort((a, b) => b.began_ms - a.began_ms || b.number - a.number) };
}

/** Says aloud what is new. */
function changed(before, after) {
  if (before === null) return;
  if (before.group.state !== after.group.state) announce(`The group is ${after.group.state} now.`);
  if (before.group.health !== after.group.health) announce(`Its health is ${after.group.health} now: ${healthWords(after.group.health)}`);
}

function view({ group, lag, rebalances }, page) {
  const range = rangeOf(page, lag, rebalances, group.sampled_ms);
  return [
    heading(group.group, h("div", { class: "badges" }, healthBadge(group.health), stateBadge(group.state), h("span", { class: "muted" }, kindOf(group)))),
    numbers(group),
    h("div", { class: "columns", key: "columns" },
      h("div", { class: "column wide", key: "time" }, lagSection(page, lag, rebalances, range), rebalanceSection(page, rebalances, range)),
      h("div", { class: "column", key: "now" }, machineSection(page, group), membersSection(group))),
    partitionsSection(page, group),
    manage(page, group),
  ];
}

function kindOf(group) {
  return [group.type, group.protocol, group.coordinator ? `node ${group.coordinator.id}` : null].filter(Boolean).join(" · ");
}

function numbers(group) {
  return figures(
    figure("Lag", count(group.lag), "records to read", exact(group.lag)),
    figure("Behind", duration(group.lag_seconds), "age of the oldest unread record"),
    figure("Caught up in", group.lag === 0 ? "caught up" : caughtUp(group), healthWords(group.health)),
    figure("Reads", rate(group.consume_rate), `its topics get ${rate(group.produce_rate)}`),
    figure("Members", count(group.members_total), plural(group.partitions_total, "partition")));
}

function machineSection(page, group) {
  const { states, transitions } = page.state.states;
  const known = states.some((each) => each.name === group.state);
  return section("State", "state", null, group.type === "classic" || known
    ? stateMachine({ states, transitions, current: known ? group.state : null })
    : h("p", null, `${group.state}. A group of the type ${group.type} has a state machine of its own, which its broker runs.`));
}

function membersSection(group) {
  if (!group.members.length) {
    return section("Members", "members", null, nothing("No member", "Nobody reads at present; the committed offsets stay. A consumer with this group.id goes on from them."));
  }
  const cards = group.members.map((member, at) => h("li", { key: member.member_id, class: "member" },
    h("div", { class: "member-head" }, h("span", { class: `swatch owner-${at % 8}`, "aria-hidden": "true" }), h("strong", null, member.client_id || "no client id"),
      h("span", { class: "muted number" }, `${plural(member.assignment_total, "partition")} · lag ${count(member.lag)}`)),
    h("p", { class: "muted mono small", title: member.member_id }, shortMember(member.member_id), member.group_instance_id ? ` · static ${member.group_instance_id}` : "", ` · ${member.host.replace(/^\//, "")}`),
    h("ul", { class: "chips", "aria-label": "Its partitions" }, byTopic(member.assignment).map(([topic, numbers]) => h("li", { key: topic },
      h("a", { href: link("topic", { topic }) }, topic), ` ${ranges(numbers)}`)))));
  return section("Members", "members", h("span", { class: "muted" }, count(group.members_total)), h("ul", { class: "members" }, cards));
}

function byTopic(assignment) {
  const found = new Map();
  for (const { topic, partition } of assignment) found.set(topic, [...(found.get(topic) ?? []), partition]);
  return [...found];
}

/** 0–2, 5 */
function ranges(numbers) {
  const parts = [];
  for (const each of [...numbers].sort((a, b) => a - b)) {
    const last = parts.at(-1);
    if (last && last[1] === each - 1) last[1] = each;
    else parts.push([each, each]);
  }
  return parts.map(([a, b]) => (a === b ? `${a}` : `${a}–${b}`)).join(", ");
}

function partitionsSection(page, group) {
  const owners = new Map(group.members.map((member, at) => [member.member_id, [member, at]]));
  const rows = group.partitions.map((row) => ({ ...row, key: `${row.topic} ${row.partition}` }));
  const columns = [
    { name: "topic", label: "Partition", wide: true, cell: (row) => h("a", { href: link("topic", { topic: row.topic }) }, `${row.topic} ${row.partition}`) },
    { name: "health", label: "Health", cell: (row) => healthBadge(row.health) },
    { name: "committed", label: "Committed", number: true, cell: (row) => offset(row.committed) },
    { name: "end", label: "End", number: true, cell: (row) => offset(row.end) },
    { name: "lag", label: "Lag", number: true, cell: (row) => h("span", { title: exact(row.lag) }, count(row.lag)) },
    { name: "lag_seconds", label: "Behind", number: true, cell: (row) => duration(row.lag_seconds) },
    { name: "rate", label: "Reads", number: true, cell: (row) => rate(row.consume_rate) },
    { name: "owners", label: "Owner", cell: (row) => owner(row.owners, owners) },
    { name: "messages", label: "Next", cell: (row) => (row.committed === null ? "–" : h("a", { href: link("messages", { topic: row.topic, partition: row.partition, from: "offset", offset: row.committed }), "aria-label": `Messages of ${row.topic} ${row.partition} from offset ${row.committed} on` }, "messages")) },
  ];
  return section("Partitions", "partitions", h("span", { class: "muted" }, count(group.partitions_total)),
    table({ id: "partition-table", caption: "Partitions of the group", columns, rows, empty: "The group has no committed offset and owns no partition." }),
    pager({ total: group.partitions_total, page: group.page, size: group.size, what: "partitions", onPage: (to) => page.set({ page: to }) }));
}

function offset(n) {
  return n === null ? "–" : h("span", { title: exact(n) }, n.toLocaleString("en-US"));
}

function owner(ids, owners) {
  if (!ids.length) return h("span", { class: "muted" }, "nobody");
  return ids.map((id) => {
    const [member, at] = owners.get(id) ?? [null, 0];
    return h("span", { class: "owner", title: id }, h("span", { class: `swatch owner-${at % 8}`, "aria-hidden": "true" }), member?.client_id || shortMember(id));
  });
}

function trouble(error, page) {
  if (error.status !== 404) return null;
  return h("div", { class: "trouble", role: "alert", key: "gone" },
    h("p", { class: "trouble-title" }, "This group is gone, or was never there"),
    h("p", null, error.message),
    h("p", null, "It may have been deleted, or its offsets have expired. This page shows it when it comes back."),
    h("a", { class: "button", href: link("groups") }, "To all groups"), page.state.done ?? null);
}

export default { tab: "groups", title: ({ group }) => group ?? "Group", identity: ({ group }) => group, load, view, changed, trouble };
