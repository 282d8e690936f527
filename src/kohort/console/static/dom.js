// Makes elements, and brings what is on the page into line with what is wanted, node by node.
//
// Data only ever becomes text nodes and attributes; nothing here parses HTML. A page is drawn anew as a whole after each
// change, and `morph` then changes only what differs, so that focus, scroll, selection and open details stay.

const SVG = "http://www.w3.org/2000/svg";
const handlers = new WeakMap(); // element -> {event type: function}; replaced by morph, so listeners never pile up

function dispatch(event) {
  handlers.get(event.currentTarget)?.[event.type]?.(event);
}

function listen(element, wanted) {
  const known = handlers.get(element) ?? {};
  for (const type of Object.keys(wanted)) if (!(type in known)) element.addEventListener(type, dispatch);
  const stale = Object.fromEntries(Object.keys(known).map((type) => [type, undefined]));
  handlers.set(element, { ...stale, ...wanted });
}

function build(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") listen(element, value);
    else if (name === "key") element.dataset.key = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === "") continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

/** An HTML element: h("a", {href: "#/groups", on: {click}}, "Groups"). */
export function h(tag, properties, ...children) {
  const element = build(document.createElement(tag), properties, children);
  if (tag === "select" && properties?.["data-value"] !== undefined) element.value = properties["data-value"];
  return element;
}

/** An SVG element. */
export function s(tag, properties, ...children) {
  return build(document.createElementNS(SVG, tag), properties, children);
}

/** Several nodes as one child. */
export function all(...children) {
  const fragment = document.createDocumentFragment();
  append(fragment, children);
  return fragment;
}

const islands = new WeakMap(); // element -> its part

/** The place of a part that draws itself (`part.element`), such as a chart: morph leaves its inside alone. */
export function island(part) {
  const place = h("div", { "data-island": "" });
  islands.set(place, part);
  islands.set(part.element, part);
  return place;
}

/** Makes the children of `live` those of `wanted`; what is already there stays the same node. */
export function morph(live, wanted) {
  const focused = document.activeElement;
  morphChildren(live, wanted);
  if (focused && focused !== document.activeElement && focused.isConnected && live.contains(focused)) {
    focused.focus({ preventScroll: true }); // a move within the page takes the focus away
  }
}

function keyOf(node) {
  return node.nodeType === Node.ELEMENT_NODE ? node.dataset?.key : undefined;
}

function sameKind(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && keyOf(a) === keyOf(b) &&
    islands.get(a) === islands.get(b);
}

function morphChildren(live, wanted) {
  const keyed = new Map();
  for (const child of live.childNodes) if (keyOf(child) !== undefined) keyed.set(keyOf(child), child);
  let at = live.firstChild;
  for (const want of [...wanted.childNodes]) {
    const key = keyOf(want);
    let match = null;
    if (key !== undefined) {
      const candidate = keyed.get(key);
      if (candidate && candidate.parentNode === live && sameKind(candidate, want)) match = candidate;
    } else if (at && sameKind(at, want)) {
      match = at;
    }
    if (match === null) {
      live.insertBefore(settled(want), at);
      continue;
    }
    if (match === at) at = at.nextSibling;
    else live.insertBefore(match, at);
    if (!islands.has(match)) morphNode(match, want);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

/** A new node with the parts themselves where their places are. */
function settled(node) {
  if (islands.has(node)) return islands.get(node).element;
  for (const place of node.querySelectorAll?.("[data-island]") ?? []) place.replaceWith(islands.get(place).element);
  return node;
}

function morphNode(live, want) {
  if (live.nodeType !== Node.ELEMENT_NODE) {
    if (live.data !== want.data) live.data = want.data;
    return;
  }
  morphAttributes(live, want);
  if (handlers.has(want) || handlers.has(live)) listen(live, handlers.get(want) ?? {});
  morphChildren(live, want);
}

// What a person has typed, chosen or opened is theirs: it changes only when what the page wants has changed.
function morphAttributes(live, want) {
  for (const { name, value } of [...want.attributes]) {
    if (live.getAttribute(name) === value) continue;
    if (name === "open" && live.nodeName === "DETAILS") continue;
    live.setAttribute(name, value);
    if (name === "value" && live !== document.activeElement && "value" in live) live.value = value;
    if (name === "data-value" && live !== document.activeElement) queueMicrotask(() => (live.value = value));
    if (name === "checked") live.checked = true;
  }
  for (const { name } of [...live.attributes]) {
    if (want.hasAttribute(name) || (name === "open" && live.nodeName === "DETAILS")) continue;
    live.removeAttribute(name);
    if (name === "checked") live.checked = false;
  }
}

/** Says something to screen readers, without moving anything. */
export function announce(text) {
  const place = document.getElementById("announcer");
  const line = h("p", null, text);
  place.append(line);
  while (place.childNodes.length > 5) place.firstChild.remove();
}
