// Pipelines on Spark, as they wrote their status the last time.

import { read } from "../api.js";
import { h } from "../dom.js";
import { ago, clock, count, duration, rate } from "../format.js";
import { heading, nothing, stateBadge } from "../parts.js";
import { link } from "../route.js";

const TONES = { running: "OK", starting: "WARN", stopping: "WARN", failed: "ERR", died: "ERR", stopped: "NOTFOUND" };
const GLYPHS = { running: "●", starting: "▲", stopping: "▲", failed: "✕", died: "✕", stopped: "■" };

function view(answer) {
  if (!answer.available) return [heading("Pipelines"), h("section", { class: "card", key: "none" }, nothing("Pipelines are not shown here", answer.why))];
  if (!answer.items.length) {
    return [heading("Pipelines"), h("section", { class: "card", key: "none" }, nothing("No pipeline yet", "A pipeline reads topics as a group and writes with Spark. These two commands make one and run it:",
      "kohort pipeline new orders.sql --topic orders --sink parquet:./orders --yes", "kohort pipeline run orders.sql"))];
  }
  return [heading("Pipelines"), h("div", { class: "tiles", key: "tiles" }, answer.items.map(pipeline))];
}

function pipeline(each) {
  const facts = [
    ["Rows", `${count(each.rows)} since ${clock(each.started_ms)}`], ["Speed", rate(each.rows_per_second)], ["Lag", count(each.total_lag)],
    ["Last batch", each.batch === null ? "none yet" : `no. ${each.batch}, ${count(each.batch_rows)} rows in ${duration(each.batch_duration_ms / 1000)}`],
    ["Updated", ago(each.updated_ms)], ["From", each.origin], ["To", each.sink || null], ["Spark", each.master], ["Process", each.pid || null], ["Checkpoint", each.checkpoint],
  ].filter(([, value]) => value !== null && value !== "");
  return h("section", { class: "card", key: each.name, "aria-label": each.name },
    h("div", { class: "card-head" }, h("h2", null, each.name), h("span", { class: `badge health-${TONES[each.state] ?? "NOTFOUND"}` }, h("span", { class: "glyph", "aria-hidden": "true" }, GLYPHS[each.state] ?? "○"), each.state)),
    each.error ? h("p", { class: "trouble" }, each.error) : null,
    h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", { key: name }, h("dt", null, name), h("dd", null, value)))),
    each.groups.length ? h("ul", { class: "chips" }, each.groups.map((group) => h("li", { key: group.group }, h("a", { href: link("group", { group: group.group }) }, group.group), " ", stateBadge(group.state)))) : null);
}

export default { tab: "pipelines", title: () => "Pipelines", load: (_parameters, signal) => read("pipelines", {}, signal), view };
