// Changes to a group: reset of offsets (what would change is shown first), deletion of offsets and of the group.

import { ApiError } from "../api.js";
import { announce, h } from "../dom.js";
import { count, exact, plural } from "../format.js";
import { field, section, select, table } from "../parts.js";
import { changeWithToken } from "../token.js";

const TARGETS = [
  ["earliest", "the earliest record"], ["latest", "the end, skip all"], ["datetime", "a time"], ["duration", "a while ago"],
  ["offset", "an offset"], ["shift", "some records forth or back"], ["current", "where it is (commits it anew)"],
];
const UNITS = [["M", "minutes"], ["H", "hours"], ["D", "days"]];

export function manage(page, group) {
  return section("Change", "change", null,
    h("p", { class: "muted" }, group.members_total
      ? `While the group has members its offsets cannot be changed. Stop its ${plural(group.members_total, "member")} first; what a reset would do can be shown at any time.`
      : "The group has no members, so its offsets can be changed. Each change asks for the console's token."),
    h("details", { class: "change", key: "reset", id: "reset" }, h("summary", null, "Reset offsets"), resetForm(page, group)),
    h("details", { class: "change", key: "delete-offsets", id: "delete-offsets" }, h("summary", null, "Delete offsets of a topic"), deleteOffsets(page, group)),
    h("details", { class: "change", key: "delete", id: "delete-group" }, h("summary", null, "Delete the group"), deleteGroup(page, group)));
}

function topicsOf(page, group) {
  const seen = new Set([...(page.state.topics ?? []), ...group.partitions.map((row) => row.topic)]);
  page.state.topics = seen; // partitions come in pages
  return [...seen].sort();
}

function resetForm(page, group) {
  const reset = (page.state.reset ??= { kind: "earliest" });
  const topics = topicsOf(page, group);
  const form = h("form", { class: "form", "aria-label": "Reset offsets", on: { submit: (event) => { event.preventDefault(); tryReset(page, group, event.currentTarget); } } },
    h("div", { class: "fields" },
      field("Of", select({ name: "topic" }, "", [["", "all topics of the group"], ...topics.map((each) => [each, each])])),
      field("Partitions", h("input", { name: "partitions", placeholder: "all, or 0,2,5", inputmode: "numeric", pattern: "[0-9, ]*" })),
      field("To", select({ name: "kind", on: { change: (event) => { reset.kind = event.target.value; reset.plan = null; page.redraw(); } } }, reset.kind, TARGETS)),
      valueField(reset.kind)),
    h("div", { class: "actions left" }, h("button", { type: "submit", class: "button", disabled: reset.busy }, "Show what would change")));
  return h("div", null, form, trouble(reset), reset.plan ? plan(page, group, reset) : null);
}

function valueField(kind) {
  if (kind === "offset") return field("Offset", h("input", { name: "value", type: "number", min: "0", step: "1", required: true, key: "offset" }));
  if (kind === "shift") return field("Records", h("input", { name: "value", type: "number", step: "1", required: true, key: "shift", placeholder: "-100 reads 100 again" }));
  if (kind === "datetime") return field("Time", h("input", { name: "value", type: "datetime-local", step: "1", required: true, key: "datetime" }));
  if (kind === "duration") {
    return [field("How long", h("input", { name: "value", type: "number", min: "1", step: "1", required: true, key: "duration" })),
      field("Unit", select({ name: "unit" }, "M", UNITS))];
  }
  return null;
}

function question(group, form) {
  const given = new FormData(form);
  const body = { group: group.group, to: target(given), dry_run: true };
  const partitions = (given.get("partitions") ?? "").split(/[ ,]+/).filter(Boolean).map(Number);
  if (given.get("topic")) body.topics = [{ topic: given.get("topic"), ...(partitions.length ? { partitions } : {}) }];
  else if (partitions.length) throw new ApiError(0, "which_topic", "Partitions are numbers within a topic: choose the topic first.");
  return body;
}

function target(given) {
  const kind = given.get("kind");
  const value = given.get("value");
  if (kind === "datetime") return `datetime:${new Date(value).toISOString()}`;
  if (kind === "duration") return `duration:${{ M: `PT${value}M`, H: `PT${value}H`, D: `P${value}D` }[given.get("unit")]}`;
  return value === null ? kind : `${kind}:${value}`;
}

async function tryReset(page, group, form) {
  await attempt(page, page.state.reset, async (reset) => {
    reset.body = question(group, form);
    reset.plan = await changeWithToken("group/reset", reset.body, "Show what a reset would change");
    if (reset.plan === null) return;
    announce(`It would change ${plural(changes(reset.plan).length, "partition")}. Nothing is changed yet.`);
  });
}

async function doReset(page) {
  await attempt(page, page.state.reset, async (reset) => {
    const done = await changeWithToken("group/reset", { ...reset.body, dry_run: false }, "Reset the offsets");
    if (done === null) return;
    if (!done.executed) throw new ApiError(409, "obstacle", done.obstacle ?? "Nothing was changed.");
    reset.plan = null;
    reset.done = `The offsets of ${plural(changes(done).length || done.partitions.length, "partition")} are reset.`;
    announce(reset.done);
    page.reload();
  });
}

/** Runs a change: shows that it is under way, and what went wrong. */
async function attempt(page, state, work) {
  Object.assign(state, { busy: true, trouble: null, done: null });
  page.redraw();
  try {
    await work(state);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    state.trouble = error.message;
  } finally {
    state.busy = false;
    page.redraw();
  }
}

function trouble(state) {
  return [state?.trouble ? h("p", { class: "trouble", role: "alert", key: "trouble" }, state.trouble) : null,
    state?.done ? h("p", { class: "done", role: "status", key: "done" }, state.done) : null];
}

function changes(plan) {
  return plan.partitions.filter((row) => row.changes);
}

function plan(page, group, reset) {
  const { partitions, obstacle, skipped, again } = reset.plan;
  const columns = [
    { name: "topic", label: "Partition", wide: true, cell: (row) => `${row.topic} ${row.partition}` },
    { name: "old", label: "Now", number: true, cell: (row) => (row.old === null ? "–" : exact(row.old)) },
    { name: "new", label: "Then", number: true, cell: (row) => h("strong", null, exact(row.new)) },
    { name: "effect", label: "Effect", cell: effect },
    { name: "note", label: "Note", cell: (row) => row.note || "–" },
  ];
  const many = changes(reset.plan).length;
  const sums = [again ? `${count(again)} records will be read again` : null, skipped ? `${count(skipped)} records will be skipped` : null].filter(Boolean).join(", ");
  return h("div", { class: "plan", key: "plan", id: "plan" },
    h("p", null, h("strong", null, "Nothing is changed yet. "), many ? `${plural(many, "partition")} would change${sums ? `: ${sums}` : ""}.` : "Every offset is already there."),
    table({ id: "plan-table", caption: "What the reset would change", columns, rows: partitions.map((row) => ({ ...row, key: `${row.topic} ${row.partition}` })) }),
    obstacle ? h("p", { class: "trouble", role: "status" }, obstacle) : null,
    h("div", { class: "actions left" },
      h("button", { type: "button", class: "button danger", disabled: reset.busy || !partitions.length || Boolean(obstacle), on: { click: () => doReset(page) } }, `Reset ${plural(many || partitions.length, "offset")}`),
      h("button", { type: "button", class: "button", on: { click: () => { reset.plan = null; page.redraw(); } } }, "Cancel")));
}

function effect(row) {
  if (!row.changes) return h("span", { class: "muted" }, "none");
  if (row.again) return `${count(row.again)} read again`;
  return row.skipped ? `${count(row.skipped)} skipped` : "set";
}

function deleteOffsets(page, group) {
  const state = (page.state.deleteOffsets ??= {});
  const topics = topicsOf(page, group);
  const submit = (event) => {
    event.preventDefault();
    const topic = new FormData(event.currentTarget).get("topic");
    attempt(page, state, async () => {
      const done = await changeWithToken("group/delete-offsets", { group: group.group, topics: [{ topic }] }, `Delete the offsets of ${topic}`);
      if (done === null) return;
      state.done = `The committed offsets of ${topic} are deleted.`;
      page.state.topics.delete(topic);
      announce(state.done);
      page.reload();
    });
  };
  if (!topics.length) return h("div", null, h("p", { class: "muted" }, "The group has no committed offsets."), trouble(state));
  return h("div", null, h("form", { class: "form", on: { submit } },
    h("p", { class: "muted" }, "The group forgets how far it is in a topic; the next member starts where auto.offset.reset says."),
    h("div", { class: "fields" }, field("Topic", select({ name: "topic" }, topics[0], topics.map((each) => [each, each]))), confirmName(group)),
    h("div", { class: "actions left" }, h("button", { type: "submit", class: "button danger", disabled: state.busy }, "Delete offsets"))), trouble(state));
}

function deleteGroup(page, group) {
  const state = (page.state.deleteGroup ??= {});
  const submit = (event) => {
    event.preventDefault();
    attempt(page, state, async () => {
      const done = await changeWithToken("group/delete", { group: group.group }, `Delete the group ${group.group}`);
      if (done === null) return;
      announce(`The group ${group.group} is deleted.`);
      page.reload();
    });
  };
  return h("div", null, h("form", { class: "form", on: { submit } },
    h("p", { class: "muted" }, "All its committed offsets go with it. The records in the topics stay."),
    h("div", { class: "fields" }, confirmName(group)),
    h("div", { class: "actions left" }, h("button", { type: "submit", class: "button danger", disabled: state.busy }, "Delete the group"))), trouble(state));
}

/** The name must be typed: what is deleted does not come back. */
function confirmName(group) {
  const check = (event) => event.target.setCustomValidity(event.target.value === group.group ? "" : `Type the name of the group: ${group.group}`);
  return field("Type the group's name to confirm", h("input", { name: "confirm", required: true, autocomplete: "off", spellcheck: "false", on: { input: check } }));
}
