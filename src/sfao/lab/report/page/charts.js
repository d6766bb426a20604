// Charts of the report: each takes a group and its rows with the chosen runs, and returns a figure or null.
// `data-value` is the text that shows under the pointer.
const charts = (() => {
  const { make, svg } = ui;
  const { mean, deviation, sum } = statistics;
  const DECISIONS = ["accept", "project", "discard", "zero"];
  const MARGIN = { left: 44, right: 10, top: 20, bottom: 34 };
  const [MOST_MATRICES, MOST_LINES] = [12, 20];
  const DASHES = [null, "6 3", "2 2", "9 3 2 3"];
  const percent = (share) => `${(100 * share).toFixed(0)} %`;
  const plusMinus = (values) => {
    const std = deviation(values);
    return mean(values).toFixed(3) + (std === null ? "" : ` ± ${std.toFixed(3)}`);
  };

  // Of too many rows, the most accurate in their order, and a sentence on the others.
  const pick = (rows, most) => {
    const best = new Set(rows.toSorted((a, b) => b.accuracy.mean - a.accuracy.mean).slice(0, most));
    const left = rows.length - best.size;
    return [rows.filter((row) => best.has(row)), left ? ` ${left} more methods not shown: filter to see them.` : ""];
  };

  const figure = (title, caption, ...content) =>
    make("figure", {}, typeof title === "string" ? make("h4", {}, title) : title, ...content, make("figcaption", {}, caption));
  const swatch = (color, dash) =>
    svg("svg", { class: "swatch", viewBox: "0 0 20 8", "aria-hidden": "true" },
      svg("line", { x1: 0, y1: 4, x2: 20, y2: 4, stroke: color, "stroke-width": 3, "stroke-dasharray": dash }));
  const legend = (rows) =>
    make("ul", { class: "legend" }, rows.map((row) => make("li", {}, swatch(row.color, row.dash), make("span", {}, row.name))));

  // Round numbers that divide a range into about `count` parts.
  const ticks = (low, high, count = 5) => {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
    const found = [];
    for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-9; at += step) found.push(Number(at.toPrecision(6)));
    return found;
  };

  // A panel with axes. `x` and `y` are {range, ticks, text, label, scale}; `draw(place)` returns what is inside.
  const panel = ({ title, label, width = 380, height = 240, x, y }, draw) => {
    const scale = x.scale ?? ((value) => value);
    const [x0, x1] = x.range.map(scale);
    const [y0, y1] = y.range;
    const [right, bottom] = [width - MARGIN.right, height - MARGIN.bottom];
    const across = (value) => MARGIN.left + ((scale(value) - x0) / (x1 - x0 || 1)) * (right - MARGIN.left);
    const up = (value) => bottom - ((value - y0) / (y1 - y0 || 1)) * (bottom - MARGIN.top);
    const text = (value, axis) => (axis.text ?? String)(value);
    return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
      title && svg("text", { x: MARGIN.left, y: 12, class: "title" }, title),
      y.ticks.map((at) => [
        svg("line", { x1: MARGIN.left, x2: right, y1: up(at), y2: up(at), class: "grid" }),
        svg("text", { x: MARGIN.left - 5, y: up(at) + 3.5, "text-anchor": "end" }, text(at, y)),
      ]).flat(),
      x.ticks.map((at) => svg("text", { x: across(at), y: bottom + 14, "text-anchor": "middle" }, text(at, x))),
      svg("line", { x1: MARGIN.left, x2: right, y1: bottom, y2: bottom, class: "axis" }),
      svg("text", { x: (MARGIN.left + right) / 2, y: height - 4, "text-anchor": "middle", class: "label" }, x.label),
      svg("text", { x: 0, y: 0, transform: `translate(10 ${(MARGIN.top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle", class: "label" }, y.label),
      draw({ across, up, left: MARGIN.left, right, top: MARGIN.top, bottom }));
  };
  const path = (points) => points.map(([x, y], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");

  // -- Accuracy against cost ---------------------------------------------------------------------------------

  const COSTS = [
    { key: "memory", label: "bytes held", text: (value) => format.size(value).replace(".0 ", " ") },
    { key: "seconds", label: "time of a run", text: (value) => format.time(value) },
  ];

  // What no cheaper row beats; rows that store data are not on it.
  const paretoFront = (points) => {
    const front = [];
    for (const point of points.toSorted((a, b) => a.cost - b.cost || b.accuracy - a.accuracy)) {
      if (!point.row.storesData && !(point.accuracy <= front.at(-1)?.accuracy)) front.push(point);
    }
    return front;
  };

  // In proportion, or by logarithms where costs differ much; zero is then drawn below the smallest other cost.
  const costAxis = (costs, { label, text }) => {
    const positive = costs.filter((cost) => cost > 0);
    const [low, high] = [Math.min(...costs), Math.max(...costs)];
    if (!positive.length || high <= 4 * low) {
      const room = 0.15 * (high - low || high || 1);
      const range = [Math.max(0, low - room), high + room];
      return { range, ticks: ticks(...range, 3), text, label };
    }
    const zero = Math.min(...positive) / 5;
    const range = [(low || zero) / 1.6, high * 1.6];
    const round = Array.from({ length: 30 }, (_, power) => [1, 2, 5].map((factor) => factor * 10 ** (power - 6))).flat();
    const inside = round.filter((at) => at >= (low ? low / 1.6 : 3 * zero) && at <= range[1]);
    const marks = inside.length < 7 ? inside : inside.filter((at) => String(at).match(/^(1|0\.0*1$)/));
    const shown = marks.filter((_, at) => at % Math.ceil(marks.length / 5) === 0);
    return { range, scale: (cost) => Math.log10(cost || zero), ticks: low ? shown : [0, ...shown], text, label };
  };

  // Names beside their points, each in the first free of a few places.
  const placeNames = (points, front, { right, left, top, bottom }) => {
    const between = front.slice(1).map((end, at) => [...front[at], ...end]);
    const taken = [...points.map(({ x, y }) => [x, y, x, y]), ...between].map(([x0, y0, x1, y1]) =>
      [Math.min(x0, x1) - 4, Math.min(y0, y1) - 4, Math.max(x0, x1) + 4, Math.max(y0, y1) + 4]);
    const isFree = (box) => box[0] >= left && box[2] <= right + 8 && box[1] >= top - 8 && box[3] <= bottom &&
      taken.every((other) => box[2] <= other[0] || box[0] >= other[2] || box[3] <= other[1] || box[1] >= other[3]);
    return points.map(({ x, y, row }) => {
      const name = row.name.length > 24 ? `${row.name.slice(0, 11)}…${row.name.slice(-11)}` : row.name;
      const width = 7 * name.length;
      const spots = [7, 16, 28, 42].flatMap((far) => [
        [far, 0], [-far - width, 0], [-width / 2, -far - 2], [-width / 2, far + 4],
        ...[-1, 1].flatMap((sign) => [[0.7 * far, 0.7 * sign * far], [-0.7 * far - width, 0.7 * sign * far]]),
      ]);
      const boxes = spots.map(([dx, dy]) => [x + dx, y + dy - 6, x + dx + width, y + dy + 6]);
      const box = boxes.find(isFree);
      if (!box) return null; // the pointer tells it, and so does the table
      taken.push(box);
      return svg("text", { x: box[0], y: box[3] - 2.5 }, name);
    });
  };

  const drawCost = (rows, cost, yRange) => {
    const points = rows.map((row) => ({
      row, cost: mean(row.runs.map((run) => run[cost.key])), accuracy: row.accuracy.mean, std: row.accuracy.std ?? 0,
    }));
    const axis = costAxis(points.map((point) => point.cost), cost);
    const label = `Accuracy against ${cost.label}: ${points.map(({ row, cost: value, accuracy }) => `${row.name} ${accuracy.toFixed(3)}, ${cost.text(value)}`).join("; ")}`;
    const y = { range: yRange, ticks: ticks(...yRange), text: (at) => at.toFixed(2), label: "accuracy" };
    return panel({ label, height: 280, x: axis, y }, (place) => {
      for (const point of points) Object.assign(point, { x: place.across(point.cost), y: place.up(point.accuracy) });
      const best = paretoFront(points);
      const front = best.flatMap((point, at) => (at ? [[point.x, best[at - 1].y], [point.x, point.y]] : [[point.x, point.y]]));
      const named = points.length > MOST_LINES ? best : points;
      return [
        front.length > 1 && svg("path", { d: path(front), class: "front" }),
        points.map(({ x, std, accuracy, row }) => svg("line", { x1: x, x2: x, y1: place.up(accuracy - std), y2: place.up(accuracy + std), stroke: row.color })),
        points.map(({ row, x, y: at, cost: value }) => svg("circle", {
          cx: x, cy: at, r: 4.5, fill: row.storesData ? "var(--paper)" : row.color, stroke: row.color, "stroke-width": 1.5, class: "point",
          "data-value": `${row.name}: accuracy ${plusMinus(row.runs.map((run) => run.accuracy))}, ${cost.text(value)}`,
        })),
        placeNames(named, front, place),
      ].flat();
    });
  };

  const cost = (group, rows) => {
    if (rows.length < 2) return null;
    const [low, high] = [
      Math.min(...rows.map((row) => row.accuracy.mean - (row.accuracy.std ?? 0))),
      Math.max(...rows.map((row) => row.accuracy.mean + (row.accuracy.std ?? 0))),
    ];
    const yRange = [Math.max(0, low - 0.05 * (high - low || 1)), high + 0.05 * (high - low || 1)];
    const caption = "Mean and standard deviation over seeds. The line, a Pareto front, joins the methods that no cheaper one beats; hollow points, which are not on it, store data.";
    return figure(make("h3", {}, "Accuracy against cost"), caption, make("div", { class: "panels wide" }, COSTS.map((one) => drawCost(rows, one, yRange))));
  };

  // -- Accuracy and forgetting over tasks --------------------------------------------------------------------

  const matrixTable = (group) => (row) => {
    const tasks = row.runs[0].matrix.length;
    const numbers = Array.from({ length: tasks }, (_, task) => task);
    const heads = numbers.map((task) => make("th", { scope: "col" }, task + 1));
    const lines = numbers.map((after) => make("tr", {}, make("th", { scope: "row" }, after + 1), numbers.map((task) => {
      const values = row.runs.map((run) => run.matrix[after][task]);
      const cell = make("td", {
        class: after === task && "new", "data-value": `task ${task + 1} after task ${after + 1}: ${plusMinus(values)}`,
      }, (100 * mean(values)).toFixed(0));
      cell.style.setProperty("--share", `${(100 * mean(values)).toFixed(1)}%`);
      return cell;
    })));
    const corner = make("td", {}, make("span", { class: "unseen" }, "after task"));
    return make("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": `Accuracy matrix of ${row.name}: ${group.title}` },
      make("table", { class: "matrix" }, make("caption", {}, row.name), make("thead", {}, make("tr", {}, corner, heads)), make("tbody", {}, lines)));
  };

  const matrices = (group, rows) => {
    if (!rows.length) return null;
    const [shown, others] = pick(rows, MOST_MATRICES);
    const caption = `Percent, mean over seeds; rows: after which task, columns: on which task. A task is learned on the outlined diagonal, and kept or forgotten below it.${others}`;
    return figure("Accuracy on every task after every task", caption, make("div", { class: "matrices" }, shown.map(matrixTable(group))));
  };

  const forgetting = (group, rows) => {
    if (!rows.length || rows[0].runs[0].matrix.length < 2) return null;
    const tasks = rows[0].runs[0].matrix.length;
    const used = {};
    const [shown, others] = pick(rows, MOST_LINES);
    const lines = shown.map((row) => {
      used[row.color] = (used[row.color] ?? -1) + 1;
      const values = Array.from({ length: tasks }, (_, at) => row.runs.map((run) => run.forgettingSoFar[at]));
      return { ...row, values, means: values.map(mean), dash: DASHES[used[row.color] % DASHES.length] };
    });
    const top = Math.max(0.01, ...lines.flatMap((line) => line.values.map((own) => mean(own) + (deviation(own) ?? 0))));
    const label = `Average forgetting after task ${tasks}: ${lines.map((line) => `${line.name} ${line.means.at(-1).toFixed(3)}`).join("; ")}`;
    const numbers = Array.from({ length: tasks }, (_, at) => at + 1).filter((at) => (at - 1) % Math.ceil(tasks / 12) === 0);
    const y = { range: [0, top * 1.05], ticks: ticks(0, top * 1.05), text: (at) => String(at), label: "average forgetting" };
    const chart = panel({ label, width: 640, height: 300, x: { range: [1, tasks], ticks: numbers, label: "after task" }, y }, ({ across, up }) => lines.flatMap((line) => {
      const edge = (sign) => line.values.map((own, at) => [across(at + 1), up(Math.max(0, mean(own) + sign * (deviation(own) ?? 0)))]);
      return [
        line.runs.length > 1 && svg("path", { d: `${path([...edge(1), ...edge(-1).reverse()])}Z`, fill: line.color, "fill-opacity": 0.13 }),
        svg("path", { d: path(line.means.map((own, at) => [across(at + 1), up(own)])), stroke: line.color, "stroke-dasharray": line.dash, class: "curve" }),
        line.values.map((own, at) => svg("circle", { cx: across(at + 1), cy: up(mean(own)), r: 3, fill: line.color, class: "point", "data-value": `${line.name} after task ${at + 1}: ${plusMinus(own)}` })),
      ].flat();
    }));
    const caption = `Average forgetting over the tasks seen so far: the best accuracy ever measured on a task minus the present one. Mean over seeds; the bands are one standard deviation.${others}`;
    return figure("Forgetting while tasks are learned", caption, legend(lines), chart);
  };

  // -- The gate ----------------------------------------------------------------------------------------------

  // [(gate, its chosen seeds added up)] of the rows that are shown.
  const addUpGates = (group, rows, key) => group.gates.flatMap((gate) => {
    const runs = rows.find((row) => row.name === gate.row)?.runs ?? [];
    const seeds = runs.map((run) => gate.seeds[run.seed]?.[key]).filter((own) => own?.length);
    return seeds.length ? [[gate, seeds]] : [];
  });
  const gateTitle = (gate) => `${gate.row} · ${gate.layer}`.slice(0, 60);

  const drawDecisions = ([gate, seeds]) => {
    const last = gate.ends.at(-1);
    const shares = seeds[0].map((_, at) => {
      const counts = DECISIONS.map((_, kind) => sum(seeds.map((own) => own[at][kind])));
      return counts.map((count) => count / (sum(counts) || 1));
    });
    const label = `${gateTitle(gate)}: ${DECISIONS.slice(0, 3).map((name, kind) => `${name} ${percent(mean(shares.map((own) => own[kind])))}`).join(", ")}`;
    const y = { range: [0, 1], ticks: [0, 0.5, 1], text: percent, label: "" };
    return panel({ title: gateTitle(gate), label, height: 170, x: { range: [0, last], ticks: ticks(0, last, 4), label: "step" }, y }, ({ across, up, top, bottom }) => [
      shares.flatMap((own, at) => {
        const [left, right] = [across(gate.ends[at]), across(gate.ends[at + 1])];
        const told = `steps ${gate.ends[at] + 1} to ${gate.ends[at + 1]}: ${DECISIONS.map((name, kind) => own[kind] && `${name} ${percent(own[kind])}`).filter(Boolean).join(", ")}`;
        let below = 0;
        return own.slice(0, 3).map((share, kind) => {
          const box = { x: left, width: right - left + 0.2, y: up(below + share), height: up(below) - up(below + share), class: DECISIONS[kind], "data-value": told };
          below += share;
          return share > 0 && svg("rect", box);
        });
      }),
      gate.changes.map((at) => svg("line", { x1: across(at), x2: across(at), y1: top, y2: bottom, class: "change" })),
    ].flat());
  };

  const decisions = (group, rows) => {
    const gates = addUpGates(group, rows, "decisions");
    if (!gates.length) return null;
    const keys = make("ul", { class: "legend" }, DECISIONS.slice(0, 3).map((name) => make("li", {}, make("span", { class: `key ${name}` }), name)));
    const caption = "What the gate of each layer decided. Dotted lines: a new task begins. In the first task there is nothing to compare with, and everything is accepted. Blank: the gradient was zero.";
    return figure("Decisions over time", caption, keys, make("div", { class: "panels" }, gates.map(drawDecisions)));
  };

  const drawCosines = (color) => ([gate, seeds]) => {
    const counts = seeds[0].map((_, bin) => sum(seeds.map((own) => own[bin])));
    const [total, width] = [sum(counts), 2 / counts.length];
    const top = Math.max(...counts) / total;
    const first = Math.min(-0.2, -1 + width * counts.findIndex((count) => count > 0));
    const y = { range: [0, top * 1.15], ticks: ticks(0, top, 3), text: percent, label: "" };
    const label = `${gateTitle(gate)}: ${total} steps`;
    const x = { range: [first, 1], ticks: ticks(first, 1, 4), label: "largest cosine" };
    return panel({ title: gateTitle(gate), label, height: 190, x, y }, ({ across, up, top: high, bottom }) => [
      counts.map((count, bin) => {
        const low = -1 + bin * width;
        return count > 0 && svg("rect", {
          x: across(low) + 0.5, width: across(low + width) - across(low) - 1, y: up(count / total), height: bottom - up(count / total), fill: color(gate.row),
          "data-value": `${low.toFixed(2)} to ${(low + width).toFixed(2)}: ${((100 * count) / total).toFixed(1)} % of steps`,
        });
      }),
      Object.entries(gate.thresholds).flatMap(([kind, at]) => [
        svg("line", { x1: across(at), x2: across(at), y1: high, y2: bottom, class: "threshold" }),
        svg("text", { x: across(at) + (kind === "accept" ? 3 : -3), y: high + 8, "text-anchor": kind === "accept" ? "start" : "end" }, kind),
      ]),
    ].flat());
  };

  const cosines = (group, rows) => {
    const gates = addUpGates(group, rows, "cosines").filter(([, seeds]) => sum(seeds.flat()) > 0);
    if (!gates.length) return null;
    const color = (name) => rows.find((row) => row.name === name).color;
    const caption = "Every recorded step after the first task. Dashed lines: the thresholds; between them, and where there are none, steps are projected.";
    return figure("Cosines that the gate decided by", caption, make("div", { class: "panels" }, gates.map(drawCosines(color))));
  };

  return [cost, matrices, forgetting, decisions, cosines];
})();
