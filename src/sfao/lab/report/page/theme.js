"use strict";
// Light or dark: as the system says, until the switch is used.
(() => {
  const KEY = "sfao-theme";
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");

  // Storage may be forbidden, as it is for files in some browsers: the switch then works without a memory.
  const recall = () => {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null;
    }
  };
  const remember = (theme) => {
    try {
      if (theme) localStorage.setItem(KEY, theme);
      else localStorage.removeItem(KEY);
    } catch {}
  };

  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const kept = recall();
  if (kept === "light" || kept === "dark") root.dataset.theme = kept;

  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    const show = () => button.setAttribute("aria-checked", String(isDark()));
    button.hidden = false;
    button.addEventListener("click", () => {
      const dark = !isDark();
      // Back at what the system says, the page follows the system again.
      if (dark === system.matches) delete root.dataset.theme;
      else root.dataset.theme = dark ? "dark" : "light";
      remember(root.dataset.theme);
      show();
    });
    system.addEventListener("change", show);
    show();
  });
})();
