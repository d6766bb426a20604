(() => {
  const LIVES = 3;
  const DECISIONS = ["accept", "project", "discard"];
  const ZERO = 3, KEPT = 4, DRIFT = 5, COSINE = 6;
  const find = (id) => document.getElementById(id);

  // -- Numbers as text -----------------------------------------------------------------------------------

  const NONE = "\u2013";
  const whole = new Intl.NumberFormat("en").format;
  const decimal = (value) => (value == null ? NONE : value.toFixed(3));
  const small = (value) => (value == null ? NONE : value !== 0 && Math.abs(value) < 0.0005 ? value.toExponential(1) : value.toFixed(3));
  const percent = (share) => `${Math.round(100 * share)}\u00a0%`;
  const put = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };
  const make = (name, parent, kind = "") => {
    const made = ui.make(name, { class: kind || null });
    parent.append(made);
    return made;
  };

  // -- What a history says -------------------------------------------------------------------------------

  // A bucket is [step, task, epoch, loss, layers]; a layer [accept, project, discard, zero, kept, drift, cosine], with
  // the decisions counted from the beginning of the run.
  const stepOf = (bucket) => bucket[0];
  const layerOf = (bucket, number) => (bucket && bucket[4][number]) || null;
  const countIn = (buckets, index, number) => {
    const now = layerOf(buckets[index], number);
    const before = layerOf(buckets[index - 1], number);
    return now ? [0, 1, 2, ZERO].map((kind) => now[kind] - (before ? before[kind] : 0)) : null;
  };
  const shareOut = (counts) => {
    const total = counts ? counts.reduce((sum, count) => sum + count, 0) : 0;
    return total > 0 ? counts.map((count) => count / total) : null;
  };
  const indexAt = (buckets, step) => {
    const found = buckets.findIndex((bucket) => stepOf(bucket) >= step);
    return found < 0 ? buckets.length - 1 : found;
  };

  // -- Charts, 1000 units wide -----------------------------------------------------------------------------

  const WIDE = 1000, HIGH = 100;
  const across = (step, last) => ((WIDE * step) / last).toFixed(1);
  const drawLine = (points, top, last) => {
    let path = "", pen = "M";
    for (const [step, value] of points) {
      if (value == null) {
        pen = "M";
        continue;
      }
      path += `${pen}${across(step, last)} ${(HIGH * (1 - value / top)).toFixed(1)}`;
      pen = "L";
    }
    return path;
  };
  const drawBands = (buckets, number, last) => {
    const paths = ["", "", ""];
    buckets.forEach((bucket, index) => {
      const shares = shareOut(countIn(buckets, index, number));
      if (!shares) return;
      const left = across(index ? stepOf(buckets[index - 1]) : 0, last), right = across(stepOf(bucket), last);
      let bottom = HIGH;
      paths.forEach((_, kind) => {
        const top = bottom - HIGH * shares[kind];
        if (shares[kind] > 0) paths[kind] += `M${left} ${bottom.toFixed(1)}H${right}V${top.toFixed(1)}H${left}Z`;
        bottom = top;
      });
    });
    return paths;
  };
  const drawUprights = (steps, last) => steps.map((step) => `M${across(step, last)} 0V${HIGH}`).join("");
  const addChart = (svg, kinds) => {
    svg.setAttribute("viewBox", `0 0 ${WIDE} ${HIGH}`);
    svg.setAttribute("preserveAspectRatio", "none");
    const paths = {};
    for (const kind of [...kinds, "tasks", "cursor"]) {
      paths[kind] = ui.svg("path", { class: kind });
      svg.append(paths[kind]);
    }
    return paths;
  };
  const draw = (path, text) => path.getAttribute("d") !== text && path.setAttribute("d", text);

  // -- The page ------------------------------------------------------------------------------------------

  let state = null; // what is shown
  let latest = null; // what came last
  let paused = false;
  let chosen = null; // a step, or null for the latest
  let hovered = null;
  let lossPaths = null;
  let layers = []; // {item, name, numbers, bands, looks}
  let shownLayers = "", shownMatrix = "";

  const listen = (svg) => {
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const buckets = state.history.buckets;
      hovered = ((event.clientX - box.left) / box.width) * stepOf(buckets[buckets.length - 1]);
      showMoment();
    });
    svg.addEventListener("pointerleave", () => {
      hovered = null;
      showMoment();
    });
  };

  const makeLayers = (names) => {
    if (shownLayers === JSON.stringify(names)) return;
    shownLayers = JSON.stringify(names);
    find("layers").replaceChildren();
    layers = names.map((name) => {
      const item = make("li", find("layers"));
      const text = make("div", item);
      make("p", text, "name").textContent = name;
      const numbers = make("p", text, "numbers");
      const charts = make("div", item);
      const [bands, looks] = ["", " short"].map((kind) => {
        const svg = ui.svg("svg", { class: `chart${kind}`, "aria-hidden": "true" });
        charts.append(svg);
        listen(svg);
        return svg;
      });
      return { item, name, numbers, bands, looks, bandPaths: addChart(bands, DECISIONS), lookPaths: addChart(looks, ["kept", "drift"]) };
    });
    find("sieve").hidden = names.length < 9;
    sift();
  };

  const sift = () => {
    const wanted = find("filter").value.trim().toLowerCase();
    for (const layer of layers) layer.item.hidden = !layer.name.toLowerCase().includes(wanted);
    const count = layers.filter((layer) => !layer.item.hidden).length;
    put(find("found"), `${count} of ${layers.length} layers`);
  };

  const drawCharts = ({ layers: names, taskEnds, buckets }) => {
    const last = stepOf(buckets[buckets.length - 1]);
    const uprights = drawUprights(taskEnds, last);
    const top = Math.max(...buckets.map((bucket) => bucket[3] ?? 0)) || 1;
    put(find("loss-range"), `drawn from 0 to ${small(top)}`);
    put(find("last-step"), `step ${whole(last)}`);
    draw(lossPaths.loss, drawLine(buckets.map((bucket) => [stepOf(bucket), bucket[3]]), top, last));
    draw(lossPaths.tasks, uprights);
    makeLayers(names);
    const any = { decisions: false, kept: false, drift: false };
    layers.forEach((layer, number) => {
      const bands = drawBands(buckets, number, last);
      const hasDecisions = bands.some((path) => path !== "");
      any.decisions ||= hasDecisions;
      layer.bands.toggleAttribute("hidden", !hasDecisions);
      bands.forEach((path, kind) => draw(layer.bandPaths[DECISIONS[kind]], path));
      draw(layer.bandPaths.tasks, uprights);
      const seen = (which) => buckets.map((bucket) => [stepOf(bucket), layerOf(bucket, number)?.[which] ?? null]);
      const [shares, drifts] = [seen(KEPT), seen(DRIFT)];
      const [hasKept, hasDrift] = [shares, drifts].map((points) => points.some(([, value]) => value != null));
      any.kept ||= hasKept;
      any.drift ||= hasDrift;
      layer.looks.toggleAttribute("hidden", !hasKept && !hasDrift);
      if (!hasKept && !hasDrift) return;
      const ceiling = Math.max(1, ...drifts.map(([, value]) => value ?? 0));
      draw(layer.lookPaths.kept, drawLine(shares, ceiling, last));
      draw(layer.lookPaths.drift, drawLine(drifts, ceiling, last));
      draw(layer.lookPaths.tasks, uprights);
    });
    find("by-layer").hidden = names.length === 0;
    for (const each of document.querySelectorAll(".gated")) each.hidden = !any.decisions;
    find("kept-key").hidden = !any.kept;
    find("drift-key").hidden = !any.drift;
    find("look-scale").hidden = !any.kept && !any.drift;
  };

  // The bucket under the pointer, the one that the slider chose, or the latest: its numbers as text.
  const showMoment = () => {
    const buckets = state?.history.buckets ?? [];
    if (!buckets.length) return;
    const last = stepOf(buckets[buckets.length - 1]);
    const step = hovered ?? chosen;
    const index = step == null ? buckets.length - 1 : indexAt(buckets, step);
    const bucket = buckets[index];
    const from = index ? stepOf(buckets[index - 1]) + 1 : 1;
    const text = `Steps ${whole(from)} to ${whole(stepOf(bucket))}: task ${bucket[1] + 1}, epoch ${bucket[2] + 1}, loss ${small(bucket[3])}`;
    put(find("seen"), step == null ? `${text} (latest)` : text);
    const slider = find("when");
    slider.max = buckets.length - 1;
    if (hovered == null) slider.value = index;
    slider.setAttribute("aria-valuetext", text);
    const cursor = step == null ? "" : drawUprights([stepOf(bucket)], last);
    draw(lossPaths.cursor, cursor);
    layers.forEach((layer, number) => {
      const shares = shareOut(countIn(buckets, index, number));
      const seen = layerOf(bucket, number);
      const words = shares ? DECISIONS.map((name, kind) => `${name} ${percent(shares[kind])}`) : [];
      if (shares?.[ZERO] > 0) words.push(`zero ${percent(shares[ZERO])}`);
      for (const [name, which] of [["kept", KEPT], ["drift", DRIFT], ["cosine", COSINE]])
        if (seen?.[which] != null) words.push(`${name} ${small(seen[which])}`);
      put(layer.numbers, words.join(", ") || "no updates");
      draw(layer.bandPaths.cursor, cursor);
      draw(layer.lookPaths.cursor, cursor);
    });
  };

  const showMatrix = ({ names, rows, initial }) => {
    const now = JSON.stringify([names, rows, initial]);
    if (shownMatrix === now) return;
    shownMatrix = now;
    const [head, body] = [find("matrix").querySelector("thead"), find("matrix").querySelector("tbody")];
    find("matrix").hidden = !rows.length;
    head.replaceChildren();
    body.replaceChildren();
    const headings = make("tr", head);
    for (const text of ["after", ...names.map((_, number) => `task ${number + 1}`)]) {
      const cell = make("th", headings);
      cell.scope = "col";
      cell.textContent = text;
    }
    rows.forEach((row, number) => {
      const line = make("tr", body);
      const heading = make("th", line);
      heading.scope = "row";
      make("span", heading).textContent = `task ${number + 1}: ${names[number]}`;
      row.forEach((accuracy, task) => {
        const cell = make("td", line, task === number ? "new" : task > number ? "later" : "");
        cell.textContent = decimal(accuracy);
        cell.style.setProperty("--share", `${Math.round(100 * accuracy * accuracy)}%`);
      });
    });
    checkScrolling();
  };

  const checkScrolling = () => {
    const region = find("matrix").querySelector(".scroll");
    const cut = region.scrollWidth > region.clientWidth;
    if (cut) region.tabIndex = 0;
    else region.removeAttribute("tabindex");
    find("matrix").querySelector(".more").hidden = !cut;
  };

  const showNotices = (notices) => {
    const list = find("notices").querySelector("ul");
    if (list.textContent === notices.join("")) return;
    find("notices").hidden = !notices.length;
    list.replaceChildren();
    for (const notice of notices) make("li", list).textContent = notice;
  };

  const showEnding = (ending) => {
    find("ending").hidden = !ending;
    if (!ending) return;
    find("ending").dataset.status = ending.status;
    put(find("headline"), ending.headline);
    put(find("outcome"), ending.text);
    put(find("command"), ending.command);
    find("next").hidden = !ending.command;
    find("pause").hidden = true;
  };

  const show = () => {
    state = latest;
    const share = state.steps ? state.step / state.steps : 0;
    document.title = `${state.ending ? state.ending.status : percent(share)} \u00b7 ${state.title}`;
    put(find("title"), state.title);
    put(find("lead"), state.lead);
    put(find("folder"), state.folder);
    put(find("place"), state.place);
    put(find("time"), state.time ?? "");
    put(find("steps"), state.steps ? `${whole(state.step)} of ${whole(state.steps)} steps, ${percent(share)}` : "");
    find("done").value = share;
    put(find("accuracy"), decimal(state.summary?.accuracy));
    put(find("forgetting"), decimal(state.summary?.forgetting));
    showNotices(state.notices);
    showEnding(state.ending);
    const { buckets, layers: names } = state.history;
    find("course").hidden = !buckets.length;
    if (buckets.length) {
      drawCharts(state.history);
      const newest = buckets[buckets.length - 1];
      put(find("loss-now"), small(newest[3]));
      const sums = [0, 1, 2, ZERO].map((kind) => names.reduce((sum, _, number) => sum + (layerOf(newest, number)?.[kind] ?? 0), 0));
      const shares = shareOut(sums);
      put(find("decided"), shares ? DECISIONS.map((name, kind) => `${name} ${percent(shares[kind])}`).join(", ") : NONE);
      showMoment();
    }
    if (state.rows) showMatrix(state);
    put(find("announced"), state.ending ? state.ending.headline : state.place.split(/[,:]/)[0]);
  };

  // -- Asking --------------------------------------------------------------------------------------------

  const ask = () => {
    const source = new EventSource("events");
    let lives = LIVES;
    source.addEventListener("message", (event) => {
      lives = LIVES;
      find("lost").hidden = true;
      latest = JSON.parse(event.data);
      if (latest.ending) source.close();
      if (!paused || latest.ending) show();
    });
    source.addEventListener("error", () => {
      lives -= 1;
      if (lives > 0 && source.readyState !== EventSource.CLOSED) return;
      source.close();
      find("lost").hidden = false;
      const time = new Date().toLocaleTimeString("en-GB");
      put(find("lost").querySelector("span"), `The command does not answer since ${time}: it has ended or was killed. Below is what was seen last.`);
    });
  };

  const setUpPause = (button) => {
    button.hidden = false;
    button.addEventListener("click", () => {
      paused = !paused;
      button.setAttribute("aria-pressed", String(paused));
      if (!paused && latest) show();
    });
  };

  const setUpCourse = () => {
    lossPaths = addChart(find("loss"), ["loss"]);
    listen(find("loss"));
    find("when").addEventListener("input", (event) => {
      const buckets = state.history.buckets, index = Number(event.target.value);
      chosen = index === buckets.length - 1 ? null : stepOf(buckets[index]);
      showMoment();
    });
    find("latest").addEventListener("click", () => {
      chosen = null;
      showMoment();
    });
    find("filter").addEventListener("input", sift);
  };

  document.addEventListener("DOMContentLoaded", () => {
    ui.setUpTheme(find("theme"));
    setUpPause(find("pause"));
    setUpCourse();
    new ResizeObserver(checkScrolling).observe(find("matrix").querySelector(".scroll"));
    find("again").addEventListener("click", () => {
      find("lost").hidden = true;
      ask();
    });
    ask();
  });
})();
