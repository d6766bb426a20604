// The values of a figure: under the pointer, or where the arrow keys lead in a panel that has the focus.
(() => {
  const NEAR = 16;

  document.addEventListener("DOMContentLoaded", () => {
    const tip = document.createElement("div");
    tip.id = "value";
    tip.hidden = true;
    tip.setAttribute("aria-hidden", "true");
    const voice = document.createElement("p");
    voice.className = "unseen";
    voice.setAttribute("role", "status");
    document.querySelector("main").append(tip, voice);
    let chosen = {};
    let panel = null;
    let current = null;

    const marksOf = (one) =>
      (one.marks ??= JSON.parse(one.dataset.marks).map(([x, y, width, height, text, row, seed]) => ({
        x, y, width, height, text, row, seed,
      })));
    const visible = (mark) =>
      (mark.row === undefined || !chosen.row || chosen.row.has(mark.row)) &&
      (mark.seed === undefined || !chosen.seed || chosen.seed.has(String(mark.seed)));

    const hide = () => {
      tip.hidden = true;
      current = null;
      document.querySelectorAll(".spot").forEach((spot) => spot.remove());
    };

    const show = (one, mark, aloud) => {
      if (mark === current && !tip.hidden) return;
      hide();
      panel = one;
      current = mark;
      const svg = one.querySelector("svg");
      const spot = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      const [width, height] = [mark.width || 9, mark.height || 9];
      const sizes = { x: mark.x - width / 2, y: mark.y - height / 2, width, height, rx: mark.width ? 0 : 4.5 };
      for (const [name, value] of Object.entries(sizes)) spot.setAttribute(name, value);
      spot.setAttribute("class", "spot");
      svg.append(spot);
      tip.textContent = mark.text;
      tip.hidden = false;
      place();
      if (aloud) voice.textContent = mark.text;
    };

    // Above what it is of, or below where there is no room.
    const place = () => {
      const at = new DOMPoint(current.x, current.y - (current.height || 9) / 2);
      const { x, y } = at.matrixTransform(panel.querySelector("svg").getScreenCTM());
      const { width, height } = tip.getBoundingClientRect();
      tip.style.left = `${Math.max(4, Math.min(x - width / 2, document.documentElement.clientWidth - width - 4))}px`;
      tip.style.top = `${y - height - 8 > 0 ? y - height - 8 : y + 16}px`;
    };

    const find = (one, event) => {
      const svg = one.querySelector("svg");
      const matrix = svg.getScreenCTM();
      const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix.inverse());
      const reach = NEAR / matrix.a;
      let [best, least] = [null, Infinity];
      for (const mark of marksOf(one)) {
        if (!visible(mark)) continue;
        const [across, up] = [Math.abs(at.x - mark.x), Math.abs(at.y - mark.y)];
        const outside = Math.hypot(Math.max(0, across - mark.width / 2), Math.max(0, up - mark.height / 2));
        const distance = outside + (mark.width ? 0 : 1e-3 * Math.hypot(across, up));
        if (outside <= (mark.width ? 0.5 : reach) && distance < least) [best, least] = [mark, distance];
      }
      return best;
    };

    const STEPS = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    const move = (one, [dx, dy]) => {
      const from = panel === one && current ? current : null;
      const marks = marksOf(one).filter(visible);
      if (!from) return marks[0];
      let [best, least] = [null, Infinity];
      for (const mark of marks) {
        const [x, y] = [mark.x - from.x, mark.y - from.y];
        const [along, aside] = [x * dx + y * dy, Math.abs(x * dy) + Math.abs(y * dx)];
        if (along > 0.05 && along + 3 * aside < least) [best, least] = [mark, along + 3 * aside];
      }
      return best;
    };

    document.querySelectorAll(".panel[data-marks]").forEach((one) => {
      one.tabIndex = 0;
      one.setAttribute("role", "group");
      one.setAttribute("aria-label", `${one.querySelector("svg").getAttribute("aria-label")}: arrow keys tell values`);
      const look = (event) => {
        const mark = find(one, event);
        if (mark) show(one, mark, false);
        else hide();
      };
      one.addEventListener("pointermove", look);
      one.addEventListener("pointerdown", look);
      one.addEventListener("pointerleave", () => one !== document.activeElement && hide());
      one.addEventListener("focus", () => {
        const first = marksOf(one).find(visible);
        if (one.matches(":focus-visible") && first) show(one, first, true);
      });
      one.addEventListener("blur", hide);
      one.addEventListener("keydown", (event) => {
        if (event.key === "Escape") return hide();
        if (!STEPS[event.key]) return;
        event.preventDefault();
        const mark = move(one, STEPS[event.key]);
        if (mark) show(one, mark, true);
      });
    });
    document.querySelectorAll(".figures-hint").forEach((hint) => (hint.hidden = false));
    // A panel that gets the focus may scroll into sight: what it tells goes with it.
    const follow = () => (current && panel === document.activeElement ? place() : hide());
    addEventListener("scroll", follow, { passive: true, capture: true });
    document.addEventListener("filtered", (event) => {
      chosen = event.detail;
      hide();
    });
  });
})();
