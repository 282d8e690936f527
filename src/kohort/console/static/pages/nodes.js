// The brokers of the cluster.

import { read } from "../api.js";
import { h } from "../dom.js";
import { count, plural } from "../format.js";
import { figure, figures, heading, nothing, settingsSection, table } from "../parts.js";

async function load({ node }, signal) {
  const [nodes, one] = await Promise.all([read("nodes", {}, signal), node ? read("node", { node }, signal) : null]);
  return { nodes, one };
}

function view({ nodes, one }, page) {
  const columns = [
    { name: "id", label: "Node", cell: (row) => h("a", { href: `#/nodes?node=${row.id}`, class: "name", "aria-label": `Settings of node ${row.id}` }, `Node ${row.id}`) },
    { name: "address", label: "Address", wide: true, cell: (row) => h("span", { class: "mono" }, `${row.host}:${row.port}`) },
    { name: "role", label: "Role", cell: (row) => (row.controller ? h("span", { class: "badge state-good" }, "controller") : "broker") },
    { name: "rack", label: "Rack", cell: (row) => row.rack ?? "–" },
    { name: "leaders", label: "Leads", number: true, cell: (row) => count(row.leaders) },
    { name: "replicas", label: "Replicas", number: true, cell: (row) => [count(row.replicas), row.out_of_sync ? h("span", { class: "badge health-WARN" }, `${row.out_of_sync} not in sync`) : null] },
    { name: "groups", label: "Coordinates", number: true, cell: (row) => plural(row.groups, "group") },
  ];
  const sum = (name) => nodes.items.reduce((total, each) => total + each[name], 0);
  if (!nodes.items.length) return [heading("Nodes"), h("section", { class: "card", key: "none" }, nothing("No node answers", "The console looks for the cluster again and again."))];
  return [heading("Nodes"),
    figures(figure("Nodes", count(nodes.items.length)), figure("Partitions", count(sum("leaders")), "with a leader"), figure("Not in sync", count(sum("out_of_sync")), "replicas"), figure("Groups", count(sum("groups")), "coordinated")),
    h("section", { class: "card flush", key: "list", "aria-label": "Nodes" }, table({ id: "nodes", caption: "Nodes", columns, rows: nodes.items.map((row) => ({ ...row, key: String(row.id) })) })),
    one ? settingsSection(`Settings of node ${one.node.id}`, one.settings, page) : null];
}

export default { tab: "nodes", title: () => "Nodes", load, view };
