// Speaks to /api, and to nothing else. Answers are JSON; errors say what happened and what to do.

const TOKEN = "kohort-token";
let kept = null; // where the browser keeps nothing

/** What the server, or the way to it, had to say; `status` is 0 if no answer came. */
export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** GET /api/<path>; names travel as parameters, because they may hold slashes. */
export async function read(path, parameters = {}, signal = undefined) {
  return answer(await send(address(path, parameters), { signal, headers: { Accept: "application/json" } }));
}

/** POST /api/<path> with the token, if there is one. */
export async function change(path, body, signal = undefined) {
  const headers = { Accept: "application/json", "Content-Type": "application/json" };
  if (token()) headers.Authorization = `Bearer ${token()}`;
  return answer(await send(address(path), { method: "POST", headers, body: JSON.stringify(body), signal }));
}

/** The address of a path of the API with its parameters; those that are empty are left out. */
export function address(path, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return `api/${path}${text ? `?${text}` : ""}`;
}

/** The token for changes, which lives as long as this tab. */
export function token() {
  try {
    return sessionStorage.getItem(TOKEN);
  } catch {
    return kept;
  }
}

export function keepToken(value) {
  kept = value;
  try {
    if (value === null) sessionStorage.removeItem(TOKEN);
    else sessionStorage.setItem(TOKEN, value);
  } catch {
    // Storage is switched off: the token is kept until the page is left.
  }
}

async function send(url, options) {
  try {
    return await fetch(url, { cache: "no-store", credentials: "omit", ...options });
  } catch (trouble) {
    if (trouble.name === "AbortError") throw trouble;
    throw new ApiError(0, "unreachable", "The console's server does not answer. Is it still running? This page tries again by itself.");
  }
}

async function answer(response) {
  let body = null;
  try {
    body = await response.json();
  } catch (trouble) {
    if (trouble.name === "AbortError") throw trouble;
  }
  if (response.ok && body !== null) return body;
  const error = body?.error ?? {};
  throw new ApiError(response.status, error.code ?? "unknown", error.message ?? `The server answered ${response.status} ${response.statusText}.`);
}
