// Sets the colours before the first paint: as the system has them, or as the person chose here before.
// This is a plain script in the head, not a module, because modules run after the first paint.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("kohort-theme");
  } catch {
    // Storage is switched off: the system decides.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
