// Asks for the token that changes need, and asks again when it was wrong.

import { ApiError, change, keepToken, token } from "./api.js";
import { h } from "./dom.js";

/** Makes a change with the token; null if the person gave up. Errors that are not about the token are the caller's. */
export async function changeWithToken(path, body, what) {
  for (;;) {
    try {
      return await change(path, body);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 401) throw error;
    }
    const given = await ask(what, token() ? "This token is not the right one." : null);
    if (given === null) return null;
    keepToken(given);
  }
}

function ask(what, trouble) {
  return new Promise((resolve) => {
    let given = null;
    const input = h("input", {
      type: "password", id: "token", autocomplete: "off", required: true, spellcheck: "false",
      "aria-describedby": trouble ? "token-trouble token-hint" : "token-hint", "aria-invalid": trouble ? "true" : null,
    });
    const submit = (event) => {
      event.preventDefault();
      given = input.value.trim();
      if (given) dialog.close();
    };
    const dialog = h("dialog", { class: "dialog", "aria-labelledby": "token-title", on: { close: () => { dialog.remove(); resolve(given); } } },
      h("form", { on: { submit } },
        h("h2", { id: "token-title" }, what),
        trouble ? h("p", { class: "trouble", id: "token-trouble", role: "alert" }, trouble) : null,
        h("label", { class: "field", for: "token" }, h("span", { class: "field-label" }, "Token"), input),
        h("p", { class: "hint", id: "token-hint" }, "The console printed it when it started. This tab keeps it until it is closed."),
        h("div", { class: "actions" },
          h("button", { type: "button", class: "button", on: { click: () => dialog.close() } }, "Cancel"),
          h("button", { type: "submit", class: "button first" }, "Go on"))));
    document.body.append(dialog);
    dialog.showModal();
    input.focus();
  });
}
