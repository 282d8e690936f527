// Keys for the whole console, and the dialog that shows them.

import { h } from "./dom.js";

const GO = { g: "groups", t: "topics", m: "messages", p: "pipelines", n: "nodes" };
const ROWS = [
  ["/", "to the search field"],
  ["?", "these keys"],
  ["g g", "groups"], ["g t", "topics"], ["g m", "messages"], ["g p", "pipelines"], ["g n", "nodes"],
  ["← →", "in a chart: read its values"], ["+ −", "in a chart: zoom in and out"],
  ["Esc", "in a chart: show all time again; elsewhere: close"],
];

export function startKeys(go) {
  let before = null; // the key before this one, for two-key commands
  document.getElementById("show-keys").addEventListener("click", showKeys);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    const first = before;
    before = event.key;
    if (event.key === "/") {
      const search = document.querySelector("[data-search]");
      if (search) {
        event.preventDefault();
        search.focus();
        search.select();
      }
    } else if (event.key === "?") {
      showKeys();
    } else if (first === "g" && GO[event.key]) {
      before = null;
      go(GO[event.key]);
    }
  });
}

function isTyping(target) {
  return target.closest?.("input, textarea, select, [contenteditable]") !== null;
}

function showKeys() {
  const rows = ROWS.map(([keys, words]) => h("tr", null,
    h("th", { scope: "row" }, keys.split(" ").map((key) => h("kbd", null, key))), h("td", null, words)));
  const close = h("button", { type: "button", class: "button", on: { click: () => dialog.close() } }, "Close");
  const dialog = h("dialog", { class: "dialog", "aria-labelledby": "keys-title", on: { close: () => dialog.remove() } },
    h("h2", { id: "keys-title" }, "Keys"), h("table", { class: "keys" }, h("tbody", null, rows)),
    h("div", { class: "actions" }, close));
  document.body.append(dialog);
  dialog.showModal();
}
