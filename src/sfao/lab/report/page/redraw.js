// While a reader looks at some seeds, means are of those: the table of methods is computed, and figures are drawn, anew.
// What cannot be, such as sentences, says that it is over all seeds.
(() => {
  const { make, write, kinds } = drawings;

  const listSeeds = (seeds) => {
    const all = [...seeds].sort((a, b) => a - b);
    if (all.length === 1) return `seed ${all[0]}`;
    return all.length > 8 ? `${all.length} seeds` : `seeds ${all.slice(0, -1).join(", ")} and ${all.at(-1)}`;
  };
  const measure = ([slope, shift, logarithmic]) => (value) => slope * (logarithmic ? Math.log10(value) : value) + shift;

  const restore = (panel, first) => {
    panel.querySelectorAll(".anew").forEach((one) => one.remove());
    first.forEach((one) => one.classList.remove("stale"));
    panel.marks = undefined;
  };

  const drawPanel = (panel, shared, own, rows, passes) => {
    const first = [...panel.querySelectorAll("[data-over]")];
    restore(panel, first);
    if (!passes) return;
    const group = make("g", { class: "anew" });
    first[0].before(group);
    first.forEach((one) => one.classList.add("stale"));
    const runs = (rows[panel.dataset.row]?.runs ?? []).filter((run) => run.ended === "done" && passes(run));
    const { frame } = own;
    if (panel.dataset.row && !runs.length) {
      const middle = { "text-anchor": "middle", fill: "var(--muted)" };
      group.append(write("no run of these seeds", (frame[0] + frame[2]) / 2, (frame[1] + frame[3]) / 2, 8, middle));
      panel.marks = [];
      return;
    }
    const places = { x: measure(own.x), y: measure(own.y), frame };
    const drawn = kinds[shared.kind]({ svg: group, rows, runs, own, shared, passes, first, ...places });
    group.append(...drawn.nodes);
    const single = JSON.parse(panel.dataset.marks ?? "[]").filter((mark) => mark.length > 6);
    panel.marks = [
      ...drawn.marks,
      ...single.map(([x, y, width, height, text, row, seed]) => ({ x, y, width, height, text, row, seed })),
    ];
  };

  document.addEventListener("DOMContentLoaded", () => {
    const groups = [...document.querySelectorAll(".numbers")].map((block) => ({
      section: block.closest("section"),
      numbers: JSON.parse(block.textContent),
    }));

    const note = (element, text) => {
      element.textContent = text;
      element.hidden = !text;
    };

    const drawFigure = (figure, { rows }, chosen) => {
      const block = figure.querySelector(":scope > script");
      const said = figure.querySelector(".seeds-note");
      const shared = block && (block.shared ??= JSON.parse(block.textContent));
      // The line through the best methods is of those that are shown.
      const isAnew = shared && (chosen.seed || (chosen.row && shared.kind === "cost"));
      const passes = isAnew && ((run) =>
        (!chosen.seed || chosen.seed.has(String(run.seed))) && (!chosen.row || !("row" in run) || chosen.row.has(run.row)));
      if (shared) {
        figure.querySelectorAll(".panel").forEach((panel, at) => drawPanel(panel, shared, shared.panels[at], rows, passes));
      }
      const alt = figure.querySelector("p.unseen");
      alt.first ??= alt.textContent;
      const of = chosen.seed ? listSeeds(chosen.seed) : "the chosen methods";
      const line = shared?.kind === "cost" ? "; the line joins the best of what is shown" : "";
      const drawn = `Drawn for ${of}${line}. The text below is of all ${chosen.seed ? "seeds" : "methods"}.`;
      alt.textContent = isAnew ? `${drawn} The arrow keys tell the values in a panel.` : alt.first;
      if (said) note(said, isAnew ? drawn : chosen.seed ? "Over all seeds: this figure cannot be drawn for some." : "");
    };

    document.addEventListener("filtered", ({ detail: chosen }) => {
      const passes = chosen.seed && ((run) => chosen.seed.has(String(run.seed)));
      for (const { section, numbers } of groups) {
        summaries.write(section.querySelector("table"), numbers, passes);
        section.querySelectorAll("figure").forEach((figure) => drawFigure(figure, numbers, chosen));
        const [table, finding] = [section.querySelector(".notes .seeds-note"), section.querySelector(":scope > .seeds-note")];
        const seeds = chosen.seed && listSeeds(chosen.seed);
        note(table, seeds ? `The numbers above are of ${seeds}, p against the baseline of all seeds. These notes are of all seeds:` : "");
        if (finding) note(finding, seeds ? "These sentences are over all seeds." : "");
      }
      document.dispatchEvent(new CustomEvent("redrawn"));
    });
  });
})();
