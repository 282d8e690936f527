// Keys, values and headers of messages: JSON as a tree that opens and closes, text as text, anything else as hex.

import { h } from "./dom.js";
import { bytes } from "./format.js";

const DEEPEST_OPEN = 2;
const MOST_CHILDREN = 200;
const LONGEST_TREE = 200_000; // characters; what is longer is shown as text, because a tree of it would be slow
const MOST_HEX_BYTES = 4096;

/** {kind: "json" | "text" | "hex" | "none", …} of a payload of the API. */
export function understood(payload) {
  if (payload === null || payload === undefined) return { kind: "none" };
  if (payload.encoding === "base64") return { kind: "hex", data: fromBase64(payload.text) };
  const text = payload.text;
  if (!payload.truncated && text.length <= LONGEST_TREE && /^\s*[[{]/.test(text)) {
    try {
      return { kind: "json", value: JSON.parse(text, digits), text };
    } catch {
      // It only looks like JSON: text.
    }
  }
  return { kind: "text", text };
}

/** A number as it is written, where JavaScript's numbers would change its digits: ids of 64 bits, money. */
class Digits {
  constructor(source) {
    this.source = source;
  }
}

function digits(_name, value, context) {
  return typeof value === "number" && context?.source && String(value) !== context.source ? new Digits(context.source) : value;
}

/** One line of it, for lists. */
export function preview(payload, most = 160) {
  const seen = understood(payload);
  if (seen.kind === "none") return h("span", { class: "null" }, "null");
  if (seen.kind === "hex") {
    return h("span", { class: "mono" }, [...seen.data.slice(0, 16)].map(hex).join(" "), h("span", { class: "muted" }, ` … ${bytes(payload.size)} binary`));
  }
  const line = seen.text.slice(0, most * 2).replace(/\s+/g, " ").trim();
  if (line === "") return h("span", { class: "muted" }, payload.size === 0 ? "empty" : "blank");
  return h("span", { class: "mono" }, line.length > most ? `${line.slice(0, most)}…` : line);
}

/** All of it. */
export function whole(payload, raw = false) {
  const seen = understood(payload);
  if (seen.kind === "none") return h("p", { class: "null" }, "null");
  const isCut = payload.truncated || (seen.kind === "hex" && seen.data.length > MOST_HEX_BYTES);
  const cut = isCut ? h("p", { class: "hint" }, `This is the beginning of ${bytes(payload.size)}; download it to see all.`) : null;
  if (seen.kind === "hex") return h("div", null, hexTable(seen.data), cut);
  if (seen.kind === "json" && !raw) return h("div", { class: "tree" }, branch(null, seen.value, 0), cut);
  return h("div", null, h("pre", { class: "payload", tabindex: "0", "aria-label": "Text" }, seen.text), cut);
}

function branch(name, value, depth) {
  const label = name === null ? null : h("span", { class: "tree-name" }, `${name}: `);
  if (value === null || typeof value !== "object" || value instanceof Digits) return h("div", { class: "leaf" }, label, leaf(value));
  const entries = Object.entries(value);
  const isList = Array.isArray(value);
  const size = isList ? `[${entries.length}]` : `{${entries.length}}`;
  if (!entries.length) return h("div", { class: "leaf" }, label, h("span", { class: "muted" }, isList ? "[]" : "{}"));
  const shown = entries.slice(0, MOST_CHILDREN);
  return h("details", { open: depth < DEEPEST_OPEN }, h("summary", null, label, h("span", { class: "muted" }, size)),
    h("div", { class: "twigs" }, shown.map(([key, child]) => branch(key, child, depth + 1)),
      entries.length > shown.length ? h("p", { class: "hint" }, `and ${entries.length - shown.length} more`) : null));
}

function leaf(value) {
  if (value instanceof Digits) return h("span", { class: "value-number" }, value.source);
  const kind = value === null ? "null" : typeof value;
  return h("span", { class: `value-${kind}` }, kind === "string" ? JSON.stringify(value) : String(value));
}

function hexTable(data) {
  const lines = [];
  for (let at = 0; at < data.length && at < MOST_HEX_BYTES; at += 16) {
    const part = [...data.slice(at, at + 16)];
    const text = part.map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${part.map(hex).join(" ").padEnd(47)}  ${text}`);
  }
  return h("pre", { class: "payload hex", tabindex: "0", "aria-label": "Bytes in hex" }, lines.join("\n"));
}

function hex(byte) {
  return byte.toString(16).padStart(2, "0");
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
}
