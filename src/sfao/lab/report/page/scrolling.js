// What is wider than the page says so, and is a stop for the keyboard; where there is nothing to scroll it is none.
(() => {
  const check = (region) => {
    const wide = region.scrollWidth > region.clientWidth;
    if (wide) region.tabIndex = 0;
    else region.removeAttribute("tabindex");
    region.previousElementSibling.hidden = !wide;
  };

  document.addEventListener("DOMContentLoaded", () => {
    const observer = new ResizeObserver((entries) => entries.forEach((entry) => check(entry.target)));
    for (const region of document.querySelectorAll(".scroll")) {
      const hint = document.createElement("p");
      hint.className = "hint";
      hint.textContent = "More to the right: scroll sideways";
      hint.hidden = true;
      region.before(hint);
      observer.observe(region);
    }
  });
})();
