// The live connection: server-sent events, with the truth about whether it stands.

const RETRY_MS = [1000, 2000, 4000, 8000, 15000];
const SILENCE_MS = 180_000; // even of a huge cluster a sample comes each minute

/** Calls `onEvent(type, data)` for each event, and `onLink("live" | "lost", since_ms)` when the connection changes. */
export class Live {
  constructor(onEvent, onLink) {
    this.onEvent = onEvent;
    this.onLink = onLink;
    this.tries = 0;
    this.link = "waiting";
    this.source = null;
    this.timer = null;
    this.heard = Date.now();
  }

  start() {
    clearTimeout(this.timer);
    this.source?.close();
    const source = new EventSource("api/events");
    this.source = source;
    source.onopen = () => {
      this.tries = 0;
      this.set("live");
    };
    source.onerror = () => {
      if (source !== this.source) return;
      this.set("lost");
      source.close(); // our own retries: a browser gives up for good after some answers
      this.timer = setTimeout(() => this.start(), RETRY_MS[Math.min(this.tries++, RETRY_MS.length - 1)]);
    };
    for (const type of ["sample", "rebalance", "cluster"]) {
      source.addEventListener(type, (event) => this.hear(type, event.data));
    }
    clearInterval(this.watch);
    this.heard = Date.now();
    this.watch = setInterval(() => this.listenForSilence(), 5000);
  }

  hear(type, text) {
    this.heard = Date.now();
    this.set("live");
    let data = null;
    try {
      data = JSON.parse(text);
    } catch {
      return; // not ours
    }
    this.onEvent(type, data);
  }

  listenForSilence() {
    if (this.link === "live" && Date.now() - this.heard > SILENCE_MS) {
      this.set("lost");
      this.start();
    }
  }

  set(link) {
    if (link === this.link) return;
    this.link = link;
    this.onLink(link);
  }
}
