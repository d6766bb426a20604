// The table of methods for chosen seeds, as reports/comparison.py and reports/comparison_columns.py have it for all.
const summaries = (() => {
  const { sum, mean, spread, test } = statistics;

  const have = (runs, name) => runs.map((run) => run[name]).filter((value) => value !== undefined);
  const average = (values) => (values.length ? mean(values) : null);

  const compareTimes = (runs, reference) => {
    const theirs = new Map(reference.map((run) => [run.seed, run.seconds]));
    const pairs = runs.filter((run) => theirs.has(run.seed)).map((run) => [run.seconds, theirs.get(run.seed)]);
    const total = sum(pairs.map(([, seconds]) => seconds));
    return total > 0 ? sum(pairs.map(([seconds]) => seconds)) / total : null;
  };

  const compareSeeds = (runs, baseline) => {
    const theirs = new Map(baseline.map((run) => [run.seed, run.accuracy]));
    return test(runs.filter((run) => theirs.has(run.seed)).map((run) => run.accuracy - theirs.get(run.seed)));
  };

  // {row: its numbers} of the runs that pass.
  const summarise = ({ baseline, rows }, passes) => {
    const done = new Map(Object.entries(rows).map(([name, { runs }]) =>
      [name, runs.filter((run) => passes(run) && run.ended === "done")]));
    const found = new Map();
    for (const [name, row] of Object.entries(rows)) {
      const [asked, own] = [row.runs.filter(passes), done.get(name)];
      const troubled = ["failed", "diverged"]
        .map((ending) => [asked.filter((run) => run.ended === ending).length, ending])
        .filter(([count]) => count);
      found.set(name, {
        name,
        done: own.length,
        asked: asked.length,
        ranks: !row.isBound && own.length > 0 && own.length === asked.length,
        storesData: row.storesData,
        isBaseline: name === baseline,
        accuracy: spread(have(own, "accuracy")),
        learnt: spread(have(own, "learnt")),
        forgetting: spread(have(own, "forgetting")),
        memory: average(have(own, "memory")),
        seconds: average(have(own, "seconds")),
        timesSgd: compareTimes(own, done.get("sgd") ?? []),
        isTested: row.isTested && own.length > 0,
        p: row.isTested ? compareSeeds(own, done.get(baseline) ?? []) : null,
        rollbacks: average(have(own, "rollbacks")),
        trouble: troubled.map((pair) => pair.join(" ")).join(", "),
      });
    }
    return found;
  };

  const formatSize = (count) => {
    const units = ["B", "kB", "MB", "GB"];
    const power = units.findIndex((unit, at) => count < 1000 ** (at + 1) || unit === "GB");
    return `${(count / 1000 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
  };
  const formatMean = (one) => one.mean.toFixed(3) + (one.std === null ? "" : ` ± ${one.std.toFixed(3)}`);
  const formatP = (p) => (p === null ? "-" : p < 1e-4 ? "<0.0001" : p.toFixed(4));

  const ofSpread = (name) => ({ value: (row) => row[name]?.mean, text: (row) => row[name] && formatMean(row[name]) });
  const held = (row) => (row.storesData && row.memory === 0 ? "all data" : formatSize(row.memory));
  const round = (value, digits) => Math.round(value * 10 ** digits) / 10 ** digits;

  // {title of a column: its cells}; `best` and `key` where the best of it is marked.
  const COLUMNS = {
    seeds: {
      value: (row) => row.done,
      text: (row) => (row.done === row.asked ? `${row.done}` : `${row.done} of ${row.asked}`),
    },
    accuracy: { ...ofSpread("accuracy"), best: Math.max, spread: "accuracy" },
    "95 % interval": {
      value: (row) => row.accuracy?.low,
      text: ({ accuracy }) => accuracy?.std != null && `${accuracy.low.toFixed(3)}, ${accuracy.high.toFixed(3)}`,
    },
    learnt: { ...ofSpread("learnt"), best: Math.max, spread: "learnt" },
    forgetting: { ...ofSpread("forgetting"), best: Math.min, spread: "forgetting" },
    held: { value: (row) => row.memory, text: (row) => row.memory !== null && held(row), best: Math.min },
    time: {
      value: (row) => row.seconds,
      text: (row) => row.seconds !== null && `${row.seconds.toFixed(1)} s`,
      best: Math.min,
      key: (row) => round(row.seconds, 1),
    },
    "× sgd": { value: (row) => row.timesSgd, text: (row) => row.timesSgd?.toFixed(1) },
    p: { value: (row) => row.p, text: (row) => (row.isBaseline ? "baseline" : row.isTested && formatP(row.p)) },
    rollbacks: { value: (row) => row.rollbacks, text: (row) => row.rollbacks?.toFixed(1) },
    notes: { text: (row) => row.trouble, isTrouble: true },
  };

  // The rows that are best in a column, and those that its spread does not tell apart from them.
  const findBest = (column, rows) => {
    const rivals = rows.filter((row) => row.ranks);
    const key = column.key ?? (column.spread ? (row) => round(column.value(row) ?? 0, 3) : column.value);
    const keys = rivals.map(key);
    const best = new Set(keys).size < 2 ? [] : rivals.filter((row) => key(row) === column.best(...keys));
    if (!column.spread) return new Set(best);
    const near = (row) => best.some((one) => {
      const { low, high } = one[column.spread];
      return low !== null && low <= column.value(row) && column.value(row) <= high;
    });
    return new Set(rivals.filter((row) => best.includes(row) || near(row)));
  };

  const fill = (cell, text, tag, kind) => {
    cell.textContent = "";
    if (!text) return;
    if (!tag) return cell.append(text);
    const inner = document.createElement(tag);
    inner.textContent = text;
    if (kind) inner.className = kind;
    cell.append(inner);
  };

  // Write the numbers of the rows that pass into a table, or, without such, what it had at first.
  const write = (table, numbers, passes) => {
    const found = passes && summarise(numbers, passes);
    [...table.tHead.rows[0].cells].forEach((heading, at) => {
      const column = COLUMNS[heading.textContent.trim()];
      if (!column) return;
      const best = found && column.best ? findBest(column, [...found.values()]) : new Set();
      for (const line of table.tBodies[0].rows) {
        const cell = line.cells[at];
        cell.first ??= { nodes: [...cell.childNodes], value: cell.dataset.value };
        if (!found) {
          cell.replaceChildren(...cell.first.nodes);
          if (column.value) cell.dataset.value = cell.first.value;
          continue;
        }
        const row = found.get(line.dataset.row);
        const bold = best.has(row) ? "strong" : "";
        fill(cell, column.text(row) || "", column.isTrouble ? "span" : bold, column.isTrouble ? "badge" : "");
        if (column.value) cell.dataset.value = column.value(row) ?? "";
      }
    });
  };

  return { write, formatSize };
})();
