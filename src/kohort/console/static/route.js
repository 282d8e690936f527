// The address of a page: #/group?group=orders&unit=seconds. Links can be kept and sent; back and forward work.

/** {page, parameters} of the address bar. */
export function current() {
  const text = location.hash.replace(/^#\/?/, "");
  const [page, query] = split(text);
  return { page: page || "groups", parameters: Object.fromEntries(new URLSearchParams(query)) };
}

/** The address of a page with parameters; those that are empty are left out. */
export function link(page, parameters = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, value);
  }
  const text = query.toString();
  return `#/${page}${text ? `?${text}` : ""}`;
}

/** Goes to a page; with `replace` the back button skips where we were. */
export function go(page, parameters = {}, { replace = false } = {}) {
  const address = link(page, parameters);
  if (address === location.hash) return;
  if (replace) history.replaceState(history.state, "", address);
  else history.pushState(null, "", address);
  window.dispatchEvent(new Event("kohort:route"));
}

function split(text) {
  const at = text.indexOf("?");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}
