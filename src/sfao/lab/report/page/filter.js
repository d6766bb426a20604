// Methods, layers and seeds to look at. The address keeps them, after the part that it leads to: #part&row=sfao&seed=0.
(() => {
  const NAMES = { row: "method", layer: "layer", seed: "seed" };

  const read = () => {
    const [part, ...rest] = location.hash.slice(1).split("&");
    const pairs = new URLSearchParams([part.includes("=") ? part : "", ...rest].join("&"));
    return { part: part.includes("=") ? "" : part, pairs };
  };

  document.addEventListener("DOMContentLoaded", () => {
    const box = document.getElementById("filter");
    if (!box) return;
    const form = box.querySelector("form");
    const shown = document.getElementById("shown");
    const top = document.getElementById("filtered");
    const inputs = [...form.querySelectorAll("input")];
    const by = [...new Set(inputs.map((input) => input.name))];
    const filtered = [...document.querySelectorAll("main [data-row], main [data-layer], main [data-seed]")];
    const lists = [...document.querySelectorAll("main tbody, main .panels, main .details")];

    const choose = () => {
      const chosen = {};
      for (const input of inputs) if (input.checked) (chosen[input.name] ??= new Set()).add(input.value);
      return chosen;
    };
    const passes = (element, chosen) =>
      by.every((name) => !chosen[name] || !(name in element.dataset) || chosen[name].has(element.dataset[name]));

    const say = (chosen) => {
      const told = by.filter((name) => chosen[name]).map((name) => {
        const all = inputs.filter((input) => input.name === name).length;
        return `${chosen[name].size} of ${all} ${NAMES[name]}s`;
      });
      const means = chosen.seed ? " Numbers and figures are of these; sentences stay over all seeds." : "";
      const text = told.length ? `Showing ${told.join(", ")}.${means}` : "";
      shown.textContent = text || "Showing everything.";
      // Where the filter is out of sight, or not there, as on paper.
      top.textContent = text;
      top.hidden = !text;
    };

    const markEmpty = (list) => {
      const items = [...list.children].filter((child) => !child.classList.contains("nothing"));
      const empty = items.length > 0 && items.every((item) => item.classList.contains("out"));
      const place = list.tagName === "TBODY" ? list.closest(".scroll") : list;
      let note = place.nextElementSibling;
      if (!note?.classList.contains("nothing")) {
        if (!empty) return;
        note = document.createElement("p");
        note.className = "nothing";
        note.textContent = "Nothing here passes the filter.";
        place.after(note);
      }
      note.hidden = !empty;
    };

    const apply = () => {
      const chosen = choose();
      for (const element of filtered) element.classList.toggle("out", !passes(element, chosen));
      lists.forEach(markEmpty);
      say(chosen);
      document.dispatchEvent(new CustomEvent("filtered", { detail: chosen }));
    };

    // The part that a link leads to, and the filter, are in one address.
    const write = (part) => {
      const pairs = new URLSearchParams(inputs.filter((input) => input.checked).map((one) => [one.name, one.value]));
      const hash = [part, pairs.toString()].filter(Boolean).join("&");
      history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
    };

    const follow = (event) => {
      const { part, pairs } = read();
      const plain = [...pairs.keys()].length === 0;
      if (plain && event) return write(part); // a link of the page: keep the filter
      for (const input of inputs) input.checked = pairs.getAll(input.name).includes(input.value);
      if (event || !plain) apply();
      else say({});
      if (!plain && part) document.getElementById(part)?.scrollIntoView();
    };

    box.hidden = false;
    if (matchMedia("(min-width: 64rem)").matches || location.hash.includes("=")) box.open = true;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("change", () => {
      apply();
      write(read().part);
    });
    form.querySelector("button").addEventListener("click", () => {
      for (const input of inputs) input.checked = false;
      apply();
      write(read().part);
    });
    addEventListener("hashchange", follow);
    follow();
  });
})();
