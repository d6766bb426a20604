"use strict";
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

  const setUpTheme = (button) => {
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
  };

  const byText = new Intl.Collator("en", { numeric: true }).compare;
  const byNumber = (a, b) => a - b;

  // Array.prototype.sort is stable, so equals keep their order in both directions; cells without a value stay last.
  const sorted = (rows, column, numeric, direction) => {
    const sign = direction === "ascending" ? 1 : -1;
    const key = (row) => (numeric ? row.cells[column].dataset.value : row.cells[column].textContent);
    const compare = numeric ? byNumber : byText;
    return [...rows].sort((one, other) => {
      const [a, b] = [key(one), key(other)];
      if (a === "" || b === "") return (a === "") - (b === "");
      return sign * compare(a, b);
    });
  };

  const setUpSorting = (table) => {
    const body = table.tBodies[0];
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const turned = heading.ariaSort === "ascending" ? "descending" : "ascending";
        const direction = heading.hasAttribute("aria-sort") ? turned : heading.dataset.first;
        for (const each of headings) each.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", direction);
        body.append(...sorted(body.rows, column, heading.classList.contains("number"), direction));
      });
    });
  };

  // A stop for the keyboard is of use only where there is something to scroll.
  const setUpScrolling = (regions) => {
    const check = (region) => {
      if (region.scrollWidth > region.clientWidth) region.tabIndex = 0;
      else region.removeAttribute("tabindex");
    };
    const observer = new ResizeObserver((entries) => entries.forEach((entry) => check(entry.target)));
    regions.forEach((region) => observer.observe(region));
  };

  // What printing shows is open; the style sheet does it too, where a browser lets it.
  const setUpPrinting = () => {
    let opened = [];
    addEventListener("beforeprint", () => {
      opened = [...document.querySelectorAll("details:not([open])")];
      for (const details of opened) details.open = true;
    });
    addEventListener("afterprint", () => {
      for (const details of opened) details.open = false;
    });
  };

  document.addEventListener("DOMContentLoaded", () => {
    setUpTheme(document.getElementById("theme"));
    document.querySelectorAll("table.sortable").forEach(setUpSorting);
    setUpScrolling(document.querySelectorAll(".scroll"));
    setUpPrinting();
  });
})();
