// Starts the console: finds the page of the address, draws it, and draws it anew after each event of the server.

import { ApiError, read } from "./api.js";
import { announce, h, morph } from "./dom.js";
import { ago, moment, shortMember } from "./format.js";
import { startKeys } from "./keys.js";
import { Live } from "./live.js";
import { heading, troubleBox } from "./parts.js";
import { current, go, link } from "./route.js";
import { startThemeButton } from "./theme_button.js";
import group from "./pages/group.js";
import groups from "./pages/groups.js";
import messages from "./pages/messages.js";
import nodes from "./pages/nodes.js";
import pipelines from "./pages/pipelines.js";
import topic from "./pages/topic.js";
import topics from "./pages/topics.js";

const PAGES = { groups, group, topics, topic, messages, pipelines, nodes };
const EVERY_MS = 1000; // at most one reload in this time, however fast events come
const main = document.getElementById("main");

let shown = null; // the Showing of the page on the screen
let sampledMs = null;
const scrolls = new Map(); // address -> scroll position, for the back button

/** A page on the screen: its data, and what the person did on it. */
class Showing {
  constructor(page, name, parameters) {
    this.page = page;
    this.name = name;
    this.identity = identityOf(page, name, parameters);
    this.parameters = parameters;
    this.state = {}; // the page's own
    this.parts = new Map();
    this.data = null;
    this.trouble = null;
    this.abort = null;
    this.again = null;
    this.loadedMs = 0;
  }

  /** A part that draws itself and lives as long as the page, such as a chart. */
  part(key, make) {
    if (!this.parts.has(key)) this.parts.set(key, make());
    return this.parts.get(key);
  }

  /** Changes parameters in the address, without a new entry for the back button. */
  set(changes) {
    if (this !== shown) return; // typed just before the page was left
    go(this.name, { ...this.parameters, ...changes }, { replace: true });
  }

  async reload() {
    this.abort?.abort();
    const abort = new AbortController();
    this.abort = abort;
    clearTimeout(this.again);
    this.again = null;
    this.loadedMs = Date.now();
    try {
      const data = await this.page.load(this.parameters, abort.signal, this);
      if (abort.signal.aborted) return;
      this.page.changed?.(this.data, data, this);
      this.data = data;
      this.trouble = null;
    } catch (trouble) {
      if (abort.signal.aborted) return;
      if (!(trouble instanceof ApiError)) throw trouble;
      this.trouble = trouble;
    }
    this.abort = null;
    this.redraw();
  }

  /** Reloads soon: at once if the last time is long ago, and once for many calls. */
  reloadSoon() {
    if (this.again !== null || this.abort !== null || document.hidden || this.page.live === false) return;
    const wait = Math.max(0, this.loadedMs + EVERY_MS - Date.now());
    this.again = setTimeout(() => this.reload(), wait);
  }

  redraw() {
    if (this !== shown || (this.data === null && this.trouble === null)) return;
    const first = main.dataset.shown !== this.identity;
    const wanted = h("div", null, this.view());
    main.dataset.shown = this.identity;
    morph(main, wanted);
    main.setAttribute("aria-busy", "false");
    if (first) this.arrive();
  }

  view() {
    const gone = this.trouble !== null && this.trouble.status !== 0;
    if (gone || (this.trouble !== null && this.data === null)) {
      return h("div", { key: "trouble", class: "page" }, heading(this.page.title(this.parameters)), this.page.trouble?.(this.trouble, this) ??
        troubleBox(this.trouble, () => this.reload()));
    }
    return h("div", { key: this.identity, class: `page page-${this.name}` }, this.page.view(this.data, this));
  }

  arrive() {
    const kept = scrolls.get(location.hash);
    window.scrollTo(0, kept ?? 0);
    if (document.activeElement === document.body || !document.activeElement?.isConnected) {
      main.querySelector("h1")?.focus({ preventScroll: true });
    }
  }

  leave() {
    this.abort?.abort();
    clearTimeout(this.again);
  }
}

function identityOf(page, name, parameters) {
  return `${name} ${page.identity?.(parameters) ?? ""}`;
}

function show() {
  const { page: name, parameters } = current();
  const page = PAGES[name];
  if (page === undefined) {
    go("groups", {}, { replace: true });
    return;
  }
  if (shown?.identity === identityOf(page, name, parameters)) {
    shown.parameters = parameters;
    shown.redraw(); // what depends on the address alone shows at once
    shown.reload();
  } else {
    shown?.leave();
    document.activeElement?.blur?.();
    shown = new Showing(page, name, parameters);
    main.setAttribute("aria-busy", "true");
    const waiting = setTimeout(() => shown?.data === null && shown.trouble === null && drawWaiting(), 150);
    shown.reload().finally(() => clearTimeout(waiting));
  }
  document.title = `${page.title(parameters)} · Kohort`;
  for (const each of document.querySelectorAll("#pages a")) {
    if (each.dataset.page === page.tab) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
}

function drawWaiting() {
  const bars = ["a", "b", "c", "d"].map((key) => h("div", { class: "bone", key }));
  morph(main, h("div", null, h("div", { key: "waiting", class: "page" }, heading(shown.page.title(shown.parameters)), h("p", { class: "unseen" }, "Loading"), bars)));
}

function heard(type, data) {
  if (type === "sample") {
    sampledMs = data?.at_ms ?? Date.now();
    drawLink("live");
    shown?.reloadSoon();
  }
  if (type === "rebalance" && data) {
    announce(`Group ${data.group}: a rebalance, because ${shortMember(data.rebalance?.reason ?? "")}`);
    shown?.reloadSoon();
  }
  if (type === "cluster") {
    announce(data?.reachable ? "The cluster can be reached again." : "The cluster cannot be reached.");
    shown?.reloadSoon();
  }
}

function drawLink(link) {
  const place = document.getElementById("link-state");
  const text = { live: "Live", lost: "Connection lost", waiting: "Connecting" }[link];
  const words = document.getElementById("link-text");
  if (words.textContent !== text) words.textContent = text; // said by screen readers, so only when it changes
  place.dataset.link = link;
  place.title = sampledMs === null ? text : `Last sample of the cluster: ${moment(sampledMs)}, ${ago(sampledMs)}`;
}

function linkChanged(state) {
  const before = document.getElementById("link-state").dataset.link;
  drawLink(state);
  const banner = document.getElementById("banner");
  banner.hidden = state !== "lost";
  banner.textContent = state === "lost" ? "The connection to the console's server is lost. What you see is from before; the page tries again by itself." : "";
  if (state === "live" && before === "lost") {
    announce("The connection is back.");
    shown?.reload();
  }
}

async function drawFoot() {
  try {
    const cluster = await read("cluster");
    morph(document.getElementById("foot"), h("div", null,
      h("span", null, `Cluster ${cluster.cluster_id ?? ""} at ${cluster.bootstrap}`),
      h("span", null, `Kohort ${cluster.kohort_version}`),
      h("a", { href: "api/openapi.json" }, "API")));
  } catch (trouble) {
    if (!(trouble instanceof ApiError)) throw trouble; // the page itself says what is wrong
  }
}

function start() {
  window.addEventListener("popstate", show); // links, the address bar, back and forward
  window.addEventListener("kohort:route", show);
  window.addEventListener("scroll", () => scrolls.set(location.hash, window.scrollY), { passive: true });
  document.addEventListener("visibilitychange", () => shown?.reloadSoon());
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the hash is the address of the page
    main.focus();
  });
  startThemeButton();
  startKeys(go);
  if (!location.hash) history.replaceState(null, "", link("groups"));
  show();
  drawFoot();
  new Live(heard, linkChanged).start();
}

start();
