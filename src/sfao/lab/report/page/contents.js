// The contents mark the part that is being read.
(() => {
  document.addEventListener("DOMContentLoaded", () => {
    const links = new Map();
    for (const link of document.querySelectorAll("nav a")) links.set(link.hash.slice(1), link);
    const parts = [...links.keys()].map((id) => document.getElementById(id));
    let current = null;
    const mark = () => {
      const passed = parts.filter((part) => part.getBoundingClientRect().top < innerHeight / 3);
      const link = passed.length ? links.get(passed[passed.length - 1].id) : null;
      if (link === current) return;
      current?.removeAttribute("aria-current");
      link?.setAttribute("aria-current", "true");
      current = link;
    };
    let waiting = false;
    addEventListener("scroll", () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        mark();
      });
    }, { passive: true });
    requestAnimationFrame(mark);
  });
})();
