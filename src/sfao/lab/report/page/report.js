// The report: sections, tables and filters, drawn from the data of the page for the chosen methods and seeds.
(() => {
  const { make } = ui;
  const { mean, spread, sum, test } = statistics;
  const chosen = { row: new Set(), seed: new Set() };
  const passes = (name, value) => !chosen[name].size || chosen[name].has(String(value));

  // -- Rows: the numbers of the chosen seeds -----------------------------------------------------------------

  const compareTimes = (runs, reference) => {
    const theirs = new Map(reference.map((run) => [run.seed, run.seconds]));
    const pairs = runs.filter((run) => theirs.has(run.seed));
    const total = sum(pairs.map((run) => theirs.get(run.seed)));
    return total > 0 ? sum(pairs.map((run) => run.seconds)) / total : null;
  };
  const testAgainst = (runs, baseline) => {
    const theirs = new Map(baseline.map((run) => [run.seed, run.accuracy]));
    return test(runs.filter((run) => theirs.has(run.seed)).map((run) => run.accuracy - theirs.get(run.seed)));
  };
  const average = (values) => (values.length ? mean(values) : null);

  const summarize = (group) => {
    const asked = (row) => group.runs.filter((run) => run.row === row.name && passes("seed", run.seed));
    const done = new Map(group.rows.map((row) => [row.name, asked(row).filter((run) => run.status === "done")]));
    return group.rows.map((row) => {
      const [all, runs] = [asked(row), done.get(row.name)];
      const of = (name) => runs.map((run) => run[name]).filter((value) => value != null);
      const failures = ["failed", "diverged"].map((status) => [all.filter((run) => run.status === status).length, status]);
      return {
        ...row,
        runs,
        asked: all.length,
        isRanked: !row.isBound && runs.length > 0 && runs.length === all.length,
        isBaseline: row.name === group.baseline,
        accuracy: spread(of("accuracy")),
        learned: spread(of("learned")),
        forgetting: spread(of("forgetting")),
        memory: average(of("memory")),
        seconds: average(of("seconds")),
        timesSgd: compareTimes(runs, done.get("sgd") ?? []),
        p: row.isTested ? testAgainst(runs, done.get(group.baseline) ?? []) : null,
        rollbacks: average(of("rollbacks")),
        failures: failures.filter(([count]) => count).map((pair) => pair.join(" ")).join(", "),
      };
    });
  };

  // The rows that are best, and those within the 95 % interval of one of them; none where all are equal.
  const findBest = (rows, column) => {
    const ranked = rows.filter((row) => row.isRanked);
    const keys = ranked.map((row) => Number(column.value(row).toFixed(column.digits)));
    const first = ranked.filter((_, at) => new Set(keys).size > 1 && keys[at] === column.best(...keys));
    const isNear = (row) => column.spread && first.some((one) => {
      const { low, high } = column.spread(one);
      return low !== null && low <= column.value(row) && column.value(row) <= high;
    });
    return new Set(ranked.filter((row) => first.includes(row) || isNear(row)));
  };

  // -- Columns: {title, text, value of numbers, `first` direction when sorted} ----------------------------------

  const ofSpread = (title, best) => {
    const name = title;
    const value = (row) => row[name]?.mean ?? null;
    const text = (row) => row[name] && format.spread(row[name]);
    return { title, value, text, best, digits: 3, spread: (row) => row[name], first: best === Math.max ? -1 : 1 };
  };
  const RESULTS = [
    { title: "method", text: (row) => row.name },
    { title: "seeds", value: (row) => row.runs.length, first: -1,
      text: (row) => (row.runs.length === row.asked ? `${row.asked}` : `${row.runs.length} of ${row.asked}`) },
    ofSpread("accuracy", Math.max),
    { title: "95 % interval", value: (row) => row.accuracy?.low ?? null, first: -1,
      text: ({ accuracy }) => accuracy?.std != null && `${accuracy.low.toFixed(3)}, ${accuracy.high.toFixed(3)}` },
    ofSpread("learned", Math.max),
    ofSpread("forgetting", Math.min),
    { title: "held", value: (row) => row.memory, best: Math.min, digits: 0,
      text: (row) => row.memory !== null && format.size(row.memory) },
    { title: "time", value: (row) => row.seconds, text: (row) => row.seconds !== null && `${row.seconds.toFixed(1)} s`, best: Math.min, digits: 1 },
    { title: "× sgd", value: (row) => row.timesSgd, text: (row) => row.timesSgd?.toFixed(1) },
    { title: "p", value: (row) => row.p, text: (row) => (row.isBaseline ? "baseline" : row.isTested && row.runs.length && format.p(row.p)) },
    { title: "rollbacks", value: (row) => row.rollbacks, text: (row) => row.rollbacks?.toFixed(1) },
    { title: "notes", text: (row) => row.failures, badge: (row) => row.failures },
  ];
  const metric = (title, name) => ({
    title, value: (run) => run.metrics[name] ?? null, text: (run) => run.metrics[name]?.toFixed(4), first: name === "average_forgetting" ? 1 : -1,
  });
  const RUNS = [
    { title: "run", text: (run) => run.name },
    { title: "method", text: (run) => run.method },
    { title: "seed", value: (run) => run.seed, text: (run) => String(run.seed) },
    { title: "ended", text: (run) => run.status, badge: (run) => run.status !== "done" },
    metric("accuracy", "average_accuracy"),
    metric("forgetting", "average_forgetting"),
    metric("BWT", "backward_transfer"),
    metric("FWT", "forward_transfer"),
    metric("PSM", "psm"),
    metric("PSM, released", "psm_released"),
    { title: "rollbacks", value: (run) => run.rollbacks, text: (run) => run.rollbacks?.toString() },
    { title: "steps", value: (run) => run.steps, text: (run) => run.steps.toLocaleString("en") },
    { title: "ms a step", value: (run) => run.stepMs, text: (run) => run.stepMs.toFixed(2) },
    { title: "time", value: (run) => run.seconds, text: (run) => `${run.seconds.toFixed(1)} s` },
    { title: "held", value: (run) => run.memory, text: (run) => format.size(run.memory) },
  ];

  // -- Tables ------------------------------------------------------------------------------------------------

  const sortRows = (rows, { column, direction }) => {
    const key = column?.value ?? column?.text;
    if (!key) return rows;
    const [filled, empty] = [rows.filter((row) => key(row) || key(row) === 0), rows.filter((row) => !key(row) && key(row) !== 0)];
    const compare = (a, b) => (column.value ? key(a) - key(b) : key(a).localeCompare(key(b)));
    return [...filled.toSorted((a, b) => direction * compare(a, b)), ...empty];
  };

  const makeCell = (column, row, isBest, at) => {
    const text = column.text(row) || "";
    const shown = isBest ? make("strong", {}, text) : text && column.badge?.(row) ? make("span", { class: "badge" }, text) : text;
    if (at === 0) return make("th", { scope: "row" }, shown);
    return make("td", { class: column.value && "number", "data-number": column.value && (column.value(row) ?? "") }, shown);
  };

  // A spreadsheet runs text that begins like a formula.
  const quote = (text) => {
    const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const writeCsv = (columns, rows) => {
    const fields = columns.flatMap((column) => [
      [column.title, (row) => (column.value ? (column.value(row) ?? "") : quote(column.text(row) || ""))],
      ...(column.spread ? [[`${column.title}, std`, (row) => column.spread(row)?.std ?? ""]] : []),
    ]);
    const lines = [fields.map(([title]) => quote(title)), ...rows.map((row) => fields.map(([, read]) => read(row)))];
    return lines.map((line) => `${line.join(",")}\r\n`).join("");
  };
  const download = (name, text) => {
    // The byte order mark tells a spreadsheet that this is UTF-8.
    const link = make("a", { download: name, href: URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv;charset=utf-8" })) });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  // A sortable table of the rows that `read` returns; `update` fills it again. Columns without any text are left out.
  const makeTable = (caption, file, every, read, kind) => {
    const columns = every.filter((column) => read().some((row) => column.text(row)) || column === every[0]);
    const sorting = { column: null, direction: 1 };
    let shown = [];
    const body = make("tbody");
    const update = () => {
      const rows = read();
      shown = sortRows(rows.filter((row) => passes("row", row.row ?? row.name)), sorting);
      const best = new Map(columns.filter((column) => column.best).map((column) => [column, findBest(rows, column)]));
      body.replaceChildren(...shown.map((row) => make("tr", { class: row.isBound && "apart" },
        columns.map((column, at) => makeCell(column, row, best.get(column)?.has(row), at)))));
      if (!shown.length) body.append(make("tr", {}, make("td", { colspan: columns.length }, "Nothing here passes the filter.")));
    };
    const sort = (column, heading) => {
      sorting.direction = sorting.column === column ? -sorting.direction : (column.first ?? 1);
      sorting.column = column;
      heading.parentElement.querySelectorAll("[aria-sort]").forEach((one) => one.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", sorting.direction > 0 ? "ascending" : "descending");
      update();
    };
    const head = make("tr", {}, columns.map((column) => {
      const button = make("button", { type: "button" }, column.title);
      const heading = make("th", { scope: "col", class: column.value && "number" }, button);
      button.addEventListener("click", () => sort(column, heading));
      return heading;
    }));
    const table = make("table", { class: `sortable ${kind}` }, make("caption", { class: "unseen" }, caption), make("thead", {}, head), body);
    const save = make("button", { type: "button", class: "download", "aria-label": `Download CSV: ${caption}` }, "Download CSV");
    save.addEventListener("click", () => download(`${file}.csv`, writeCsv(columns, shown)));
    return { update, element: make("div", {}, make("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": caption }, table), save) };
  };

  // -- Sections ----------------------------------------------------------------------------------------------

  const NOTE = "Mean ± standard deviation over seeds. Learned: accuracy on each task just after it was learned. Bold: the best of the methods all of whose runs are done, and what lies in its 95 % interval; methods in italics store data and are not ranked.";
  const facts = (pairs) => make("dl", { class: "facts" }, pairs.map(([name, text]) => make("div", {}, make("dt", {}, name), make("dd", {}, text))));
  const codes = (settings) => make("p", { class: "codes" }, Object.entries(settings).map(([name, value]) => make("code", {}, `${name}=${value}`)));

  const makeDetails = (run) => make("details", { "data-row": run.row, "data-seed": run.seed },
    make("summary", {}, make("b", {}, run.name), " ", run.status === "done" ? `accuracy ${run.accuracy.toFixed(4)}` : make("span", { class: "badge" }, run.status)),
    facts(run.facts),
    Object.keys(run.own).length && make("p", { class: "note" }, "Settings that other runs here do not share:"),
    codes(run.own));

  const makeSection = (group, number, isOnly) => {
    const id = `group-${number}`;
    let summary = [];
    const results = makeTable(`Results by method: ${group.title}`, `${id}-results`, RESULTS, () => (summary = summarize(group)), "");
    const runs = makeTable(`Every run: ${group.title}`, `${id}-runs`, RUNS, () => group.runs.filter((run) => passes("seed", run.seed)), "dense");
    const lead = make("div", { class: "figures" });
    const figures = make("div", { class: "figures" });
    const details = group.runs.map(makeDetails);
    const failed = group.runs.filter((run) => run.status !== "done");
    const test = group.baseline && `p: two-sided paired t-test of accuracy against the baseline, ${group.baseline}, over common seeds; not corrected for several methods.`;
    const parts = [
      ["results", "Results", [results.element, make("p", { class: "note" }, NOTE), test && make("p", { class: "note" }, test)]],
      group.warnings.length + failed.length && ["warnings", "Warnings", [make("ul", { class: "warnings" },
        failed.map((run) => make("li", {}, make("span", { class: "badge" }, run.status), " ", make("b", {}, run.name), run.error && `: ${run.error}`)),
        group.warnings.map(({ runs: names, text }) => make("li", {}, make("b", {}, names), `: ${text}`)))]],
      ["figures", "Figures", [figures]],
      ["runs", "Runs", [runs.element, make("p", { class: "note" }, "BWT and FWT: backward and forward transfer. PSM as the paper prints it, and as its released code computes it."), make("div", { class: "details" }, details)]],
      ["settings", "Settings", [make("p", { class: "note" }, "Shared by all runs:"), codes(group.shared)]],
    ].filter(Boolean);
    const update = () => {
      [results, runs].forEach((table) => table.update());
      const shown = summary.filter((row) => row.runs.length && passes("row", row.name));
      const [cost, ...others] = charts.map((draw) => draw(group, shown) ?? "");
      lead.replaceChildren(cost);
      figures.replaceChildren(...others);
      for (const one of details) one.hidden = !(passes("row", one.dataset.row) && passes("seed", one.dataset.seed));
      watchScrolling();
    };
    const element = make("section", { class: "group", "aria-labelledby": id },
      make("h2", { id }, group.title),
      !isOnly && [make("p", { class: "finding" }, group.headline), make("p", { class: "lead" }, group.details.join(" "))],
      group.caveat && make("p", { class: "notice" }, make("b", {}, "Not the full data. "), group.caveat),
      lead,
      parts.flatMap(([name, title, content]) => [make("h3", { id: `${id}-${name}` }, title), ...content]));
    const links = parts.map(([name, title]) => make("li", {}, make("a", { href: `#${id}-${name}` }, title)));
    const contents = isOnly ? links : [make("li", {}, make("a", { href: `#${id}` }, group.title), make("ol", {}, links))];
    return { update, element, contents };
  };

  // The keyboard stops at regions that scroll, and at no others.
  const watchScrolling = () => {
    for (const region of document.querySelectorAll(".scroll")) region.tabIndex = region.scrollWidth > region.clientWidth ? 0 : -1;
  };

  // -- Filter: the address keeps it, after the part that it leads to: #part&row=sfao&seed=0 ----------------------

  const readAddress = () => {
    const [part, ...rest] = location.hash.slice(1).split("&");
    const pairs = new URLSearchParams([part.includes("=") ? part : "", ...rest].join("&"));
    return { part: part.includes("=") ? "" : part, pairs };
  };
  const setUpFilter = (groups, draw) => {
    const box = document.getElementById("filter");
    const [form, clear, note] = [box.querySelector("form"), box.querySelector("button"), document.getElementById("filtered")];
    const choices = {
      row: [...new Set(groups.flatMap((group) => group.rows.map((row) => row.name)))],
      seed: [...new Set(groups.flatMap((group) => group.runs.map((run) => run.seed)))].sort((a, b) => a - b),
    };
    const titles = { row: "Method", seed: "Seed" };
    for (const [name, values] of Object.entries(choices)) {
      if (values.length < 2) continue;
      const boxes = values.map((value) => make("label", {}, make("input", { type: "checkbox", name, value }), make("span", {}, value)));
      form.append(make("fieldset", {}, make("legend", {}, titles[name]), make("div", { class: "choices" }, boxes)));
    }
    const inputs = [...form.querySelectorAll("input")];
    box.hidden = !inputs.length;
    box.open = matchMedia("(min-width: 64rem)").matches || location.hash.includes("=");
    const apply = () => {
      for (const name of Object.keys(chosen)) chosen[name] = new Set(inputs.filter((input) => input.name === name && input.checked).map((input) => input.value));
      const told = Object.keys(chosen).filter((name) => chosen[name].size).map((name) => `${chosen[name].size} of ${choices[name].length} ${titles[name].toLowerCase()}s`);
      note.textContent = told.length ? `Showing ${told.join(" and ")}.${chosen.seed.size ? " Sentences above stay over all seeds." : ""}` : "";
      note.hidden = !told.length;
      draw();
    };
    const writeAddress = (part) => {
      const pairs = new URLSearchParams(inputs.filter((input) => input.checked).map((input) => [input.name, input.value]));
      history.replaceState(null, "", `#${[part, pairs.toString()].filter(Boolean).join("&")}`);
    };
    const follow = (event) => {
      const { part, pairs } = readAddress();
      if (event && ![...pairs.keys()].length) return writeAddress(part); // a link of the page keeps the filter
      for (const input of inputs) input.checked = pairs.getAll(input.name).includes(input.value);
      apply();
      if (part) document.getElementById(part)?.scrollIntoView();
    };
    form.addEventListener("change", () => {
      apply();
      writeAddress(readAddress().part);
    });
    clear.addEventListener("click", () => {
      form.reset();
      apply();
      writeAddress(readAddress().part);
    });
    addEventListener("hashchange", follow);
    follow();
  };

  // -- Values under the pointer ------------------------------------------------------------------------------

  const setUpValues = () => {
    const tip = make("div", { id: "value", hidden: true, "aria-hidden": "true" });
    document.body.append(tip);
    const show = ({ target, clientX, clientY }) => {
      const text = target.closest?.("[data-value]")?.dataset.value;
      tip.hidden = !text;
      if (!text) return;
      tip.textContent = text;
      const { width, height } = tip.getBoundingClientRect();
      tip.style.left = `${Math.max(4, Math.min(clientX - width / 2, document.documentElement.clientWidth - width - 4))}px`;
      tip.style.top = `${clientY - height - 12 > 0 ? clientY - height - 12 : clientY + 16}px`;
    };
    for (const kind of ["pointermove", "pointerdown"]) document.addEventListener(kind, show);
    addEventListener("scroll", () => (tip.hidden = true), { passive: true, capture: true });
  };

  document.addEventListener("DOMContentLoaded", () => {
    ui.setUpTheme(document.getElementById("theme"));
    const groups = JSON.parse(document.getElementById("data").textContent);
    const sections = groups.map((group, at) => makeSection(group, at + 1, groups.length === 1));
    document.getElementById("main").append(...sections.map((section) => section.element));
    document.querySelector("nav ol").append(...sections.flatMap((section) => section.contents));
    setUpFilter(groups, () => sections.forEach((section) => section.update()));
    setUpValues();
    addEventListener("resize", watchScrolling);
  });
})();
