// Panels drawn anew from chosen runs, in the places and colours that the figures of the report have: see redraw.js.
const drawings = (() => {
  const { sum, mean, deviation } = statistics;

  // Neighbours without a seam between them.
  const CRISP = { "shape-rendering": "crispEdges" };

  const make = (name, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const box = (x0, y0, x1, y1, attributes) =>
    make("rect", { x: Math.min(x0, x1), y: Math.min(y0, y1), width: Math.abs(x1 - x0), height: Math.abs(y1 - y0), ...attributes });
  const line = (points, attributes) =>
    make("polyline", { points: points.map((point) => point.join(",")).join(" "), fill: "none", ...attributes });
  // A point of text is centred a third of its height above the line it stands on.
  const write = (text, x, y, letters, attributes) =>
    make("text", { x, y: y + 0.36 * letters, "font-size": `${letters}px`, ...attributes }, text);

  const overRuns = (runs, choose) => {
    const values = runs.map(({ matrix }) => choose(matrix));
    return { mean: mean(values), std: deviation(values) };
  };
  const tellAccuracy = (task, after, { mean: middle, std }) =>
    `task ${task + 1} after task ${after + 1}: ${middle.toFixed(3)}${std === null ? "" : ` ± ${std.toFixed(3)}`}`;

  const matrix = ({ runs, shared, x, y }) => {
    const tasks = runs[0].matrix.length;
    const [nodes, diagonal, marks] = [[], [], []];
    const [inset, outline] = shared.outline;
    const levels = shared.shades.length - 1;
    for (let after = 0; after < tasks; after++) {
      for (let task = 0; task < tasks; task++) {
        const cell = overRuns(runs, (one) => one[after][task]);
        const level = Math.round((levels * (cell.mean - shared.lowest)) / (1 - shared.lowest));
        const [shade, ink] = shared.shades[Math.max(0, Math.min(levels, level))];
        nodes.push(box(x(task), y(after), x(task + 1), y(after + 1), { fill: shade, ...CRISP }));
        if (after === task) {
          const corners = [x(task + inset), y(task + inset), x(task + 1 - inset), y(task + 1 - inset)];
          diagonal.push(box(...corners, { fill: "none", stroke: ink, "stroke-width": outline }));
        }
        if (shared.isWritten) {
          const number = (100 * cell.mean).toFixed(0);
          diagonal.push(write(number, x(task + 0.5), y(after + 0.5), shared.letters, { "text-anchor": "middle", fill: ink }));
        }
        marks.push({
          x: x(task + 0.5), y: y(after + 0.5), width: Math.abs(x(1) - x(0)), height: Math.abs(y(1) - y(0)),
          text: tellAccuracy(task, after, cell),
        });
      }
    }
    return { nodes: [...nodes, ...diagonal], marks };
  };

  // Heights moved apart to at least the gap, in their order and no farther than needed: neighbours that are too near
  // become one block about their middle.
  const spreadOut = (heights, gap) => {
    const blocks = [];
    for (const one of heights.toSorted(([, a], [, b]) => a - b)) {
      let block = { members: [one], middle: one[1] };
      for (;;) {
        const below = blocks.at(-1);
        if (!below || below.middle + (gap * (below.members.length + block.members.length)) / 2 <= block.middle) break;
        blocks.pop();
        const members = [...below.members, ...block.members];
        block = { members, middle: mean(members.map(([, height]) => height)) };
      }
      blocks.push(block);
    }
    return blocks.flatMap(({ members, middle }) =>
      members.map(([name], at) => [name, middle + gap * (at - (members.length - 1) / 2)]));
  };

  const curves = ({ runs, own, shared, x, y, frame }) => {
    const tasks = runs[0].matrix.length;
    const inside = (height) => Math.max(frame[1], Math.min(frame[3], y(height)));
    const cells = [];
    for (let after = 0; after < tasks; after++) {
      cells.push(Array.from({ length: after + 1 }, (_, task) => overRuns(runs, (one) => one[after][task])));
    }
    const average = cells.map((known, after) => [x(after + 1), y(mean(known.map((cell) => cell.mean)))]);
    const [bands, lines] = [[], []];
    shared.shades.forEach((shade, task) => {
      const known = cells.slice(task).map((row, at) => [x(task + at + 1), row[task]]);
      const points = known.map(([at, cell]) => [at, inside(cell.mean)]);
      const edge = (sign) => known.map(([at, { mean: middle, std }]) => [at, inside(Math.min(middle + sign * std, 1))]);
      if (runs.length > 1) bands.push(line([...edge(1), ...edge(-1).reverse()], { fill: shade, "fill-opacity": 0.2 }));
      lines.push(line(points, { stroke: shade, "stroke-width": shared.isDense ? 0.7 : 1 }));
      if (!shared.isDense) lines.push(...points.map(([cx, cy]) => make("circle", { cx, cy, r: 1.5, fill: shade })));
    });
    const ends = spreadOut(shared.numbered.map((task) => [task, cells[tasks - 1][task].mean]), shared.gap);
    const names = ends.map(([task, height]) => write(task + 1, x(tasks) + 5, y(height), shared.letters, {}));
    const broad = { stroke: own.colour, "stroke-opacity": 0.35, "stroke-width": 4, "stroke-linecap": "round" };
    return {
      nodes: [line(average, broad), ...bands, ...lines, ...names],
      marks: cells.flatMap((known, after) => known.map((cell, task) => ({
        x: x(after + 1), y: y(cell.mean), width: 0, height: 0, text: tellAccuracy(task, after, cell),
      }))),
    };
  };

  // The counts of chosen seeds in every place, added up.
  const addUp = (counts, passes) => {
    const chosen = Object.entries(counts).filter(([seed]) => passes({ seed })).map(([, own]) => own);
    return chosen.length ? chosen[0].map((_, at) => chosen.map((own) => own[at])) : [];
  };
  const percent = (share, digits) => `${(100 * share).toFixed(digits)}%`;

  const shares = ({ own, shared, passes, x, y }) => {
    const [nodes, marks] = [[], []];
    addUp(own.counts, passes).forEach((found, at) => {
      const [start, end] = [own.steps[at], own.steps[at + 1]];
      const counts = shared.names.map((_, kind) => sum(found.map((one) => one[kind])));
      const total = Math.max(sum(counts), 1);
      let below = 0;
      shared.colours.forEach((colour, kind) => {
        const above = below + counts[kind] / total;
        if (counts[kind]) nodes.push(box(x(start), y(below), x(end), y(above), { fill: colour, ...CRISP }));
        below = above;
      });
      const told = shared.names.flatMap((name, kind) => (counts[kind] ? [`${name} ${percent(counts[kind] / total, 0)}`] : []));
      marks.push({
        x: x((start + end) / 2), y: y(0.5), width: x(end) - x(start), height: y(0) - y(1),
        text: `steps ${start + 1} to ${end}: ${told.join(", ")}`,
      });
    });
    return { nodes, marks };
  };

  const bins = ({ own, shared, passes, x, y }) => {
    const counts = addUp(own.counts, passes).map(sum);
    const total = sum(counts);
    const [nodes, marks] = [[], []];
    counts.forEach((count, at) => {
      if (!count) return;
      const [low, share] = [own.first + at * shared.width, count / total];
      const [middle, half] = [low + shared.width / 2, (shared.filled * shared.width) / 2];
      nodes.push(box(x(middle - half), y(0), x(middle + half), y(share), { fill: own.colour }));
      marks.push({
        x: x(middle), y: y(share / 2), width: x(shared.width) - x(0), height: y(0) - y(share),
        text: `${low.toFixed(2)} to ${(low + shared.width).toFixed(2)}: ${percent(share, 1)} of steps`,
      });
    });
    return { nodes, marks };
  };

  return { make, line, write, kinds: { matrix, curves, shares, bins } };
})();
