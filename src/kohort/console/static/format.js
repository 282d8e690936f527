// Numbers, times and names as people read them. The exact value belongs into a title beside it.

const STEPS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
const exactly = new Intl.NumberFormat("en-US");

/** 950, 9,876, 12.3 k, 1.2 M; a dash for what is unknown. */
export function count(n) {
  if (n === null || n === undefined || Number.isNaN(n)) return "–";
  if (Math.abs(n) < 10_000) return exactly.format(Math.round(n));
  for (const [size, letter] of STEPS) {
    if (Math.abs(n) >= size * 0.9995) return `${short(n / size)} ${letter}`;
  }
  return exactly.format(n);
}

/** Every digit, with commas. */
export function exact(n) {
  return n === null || n === undefined ? "unknown" : exactly.format(n);
}

function short(x) {
  return Math.abs(x) >= 100 ? x.toFixed(0) : x.toFixed(1).replace(/\.0$/, "");
}

/** 12.3 k/s, 0.4/s. */
export function rate(n) {
  if (n === null || n === undefined) return "–";
  return Math.abs(n) > 0 && Math.abs(n) < 10 ? `${short(n)}/s` : `${count(n)}/s`;
}

/** 0.4 s, 42 s, 3 min, 2 h 5 min, 3 d 4 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (!Number.isFinite(seconds)) return "never";
  if (seconds < 0.0005) return "0 s";
  if (seconds < 0.95) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 9.95) return `${short(seconds)} s`;
  if (seconds < 99.5) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  const days = Math.floor(hours / 24);
  return hours % 24 ? `${days} d ${hours % 24} h` : `${days} d`;
}

/** 14:03:22, with the day in front when it is not today. */
export function clock(ms, { millis = false } = {}) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const at = new Date(ms);
  const time = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}` +
    (millis ? `.${String(at.getMilliseconds()).padStart(3, "0")}` : "");
  return sameDay(at, new Date()) ? time : `${day(at)} ${time}`;
}

/** The whole time, for titles. */
export function moment(ms) {
  return ms === null || ms === undefined || ms < 0 ? "unknown" : `${new Date(ms).toISOString().replace("T", " ").replace("Z", "")} UTC`;
}

/** 4 s ago, 3 min ago. */
export function ago(ms, now = Date.now()) {
  if (ms === null || ms === undefined) return "–";
  const seconds = (now - ms) / 1000;
  return seconds < 2 ? "just now" : `${duration(Math.round(seconds))} ago`;
}

/** 512 B, 3.4 KB, 12 MB. */
export function bytes(n) {
  if (n === null || n === undefined) return "–";
  if (n < 1024) return `${n} B`;
  let size = n;
  for (const unit of ["KB", "MB", "GB", "TB"]) {
    size /= 1024;
    if (size < 1024) return `${short(size)} ${unit}`;
  }
  return `${short(size / 1024)} PB`;
}

/** "1 member", "3 members". */
export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** A member id without most of its uuid: checkout-1-8102620c… */
export function shortMember(id) {
  return id.replace(/([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, "$1…");
}

export function two(n) {
  return String(n).padStart(2, "0");
}

function day(at) {
  const year = at.getFullYear() === new Date().getFullYear() ? "" : `${at.getFullYear()}-`;
  return `${year}${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

function sameDay(a, b) {
  return a.getFullYear() === b.getFullYear() && a.getMonth() === b.getMonth() && a.getDate() === b.getDate();
}
