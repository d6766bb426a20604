"use strict";
// The light and dark switch, and helpers for elements: shared by the report and the live page.
const ui = (() => {
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

  // Back at what the system says, the page follows the system again.
  const setUpTheme = (button) => {
    const show = () => button.setAttribute("aria-checked", String(isDark()));
    button.hidden = false;
    button.addEventListener("click", () => {
      const dark = !isDark();
      if (dark === system.matches) delete root.dataset.theme;
      else root.dataset.theme = dark ? "dark" : "light";
      remember(root.dataset.theme);
      show();
    });
    system.addEventListener("change", show);
    show();
  };

  // An element with attributes and children; text is always text, and what is null, false or "" is left out.
  const build = (made, attributes, children) => {
    for (const [name, value] of Object.entries(attributes)) {
      if (value != null && value !== false) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.flat().filter((child) => child != null && child !== false && child !== ""));
    return made;
  };
  const make = (name, attributes = {}, ...children) => build(document.createElement(name), attributes, children);
  const svg = (name, attributes = {}, ...children) =>
    build(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

  return { setUpTheme, make, svg };
})();
