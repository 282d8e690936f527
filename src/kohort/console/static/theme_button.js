// The button that goes round: colours as the system has them, light, dark. The choice is remembered.

const ORDER = ["system", "light", "dark"];
const GLYPHS = { system: "◐", light: "☀", dark: "☾" };
const WORDS = { system: "as the system", light: "light", dark: "dark" };

export function startThemeButton() {
  const button = document.getElementById("theme");
  draw(button);
  button.addEventListener("click", () => {
    choose(ORDER[(ORDER.indexOf(chosen()) + 1) % ORDER.length]);
    draw(button);
  });
}

function chosen() {
  return document.documentElement.dataset.theme ?? "system";
}

function choose(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem("kohort-theme", theme);
  } catch {
    // Storage is switched off: the choice lasts until the page is left.
  }
}

function draw(button) {
  button.setAttribute("aria-label", `Colours: ${WORDS[chosen()]}`);
  button.title = `Colours: ${WORDS[chosen()]}`;
  document.getElementById("theme-glyph").textContent = GLYPHS[chosen()];
}
