// Accuracy against its cost, drawn anew from chosen runs; the counterpart of reports/figures/cost_accuracy.py.
drawings.kinds.cost = (() => {
  const { mean, deviation } = statistics;
  const { make, line, write } = drawings;

  const seconds = (count) => {
    if (count < 60) return `${count < 10 ? Number(count.toPrecision(2)) : count.toFixed(0)} s`;
    return count < 3600 ? `${(count / 60).toFixed(0)} min` : `${Number((count / 3600).toPrecision(3))} h`;
  };
  const WORDS = { memory: (count) => summaries.formatSize(count).replace(".0 ", " "), seconds };

  // What nothing else beats in both, from cheap to expensive.
  const findFront = (points) => {
    const front = [];
    for (const point of points.toSorted((a, b) => a.cost - b.cost || b.accuracy - a.accuracy)) {
      if (point.isOnFront && (!front.length || point.accuracy > front.at(-1).accuracy)) front.push(point);
    }
    return front;
  };
  const makeStairs = (front) =>
    front.flatMap((point, at) => (at ? [[point.x, front[at - 1].y], [point.x, point.y]] : [[point.x, point.y]]));

  // Names beside their points, each where it covers least of points, bars, lines and names; far off, a line leads there.
  const SPOTS = [6, 16, 26, 38, 52].flatMap((far) =>
    [[1, 0], [-1, 0], [0, -1], [0, 1], [1, -1], [1, 1], [-1, -1], [-1, 1]].map(([dx, dy]) => [dx * far, dy * far]));
  const overlap = (one, other) =>
    Math.max(0, Math.min(one[2], other[2]) - Math.max(one[0], other[0])) *
    Math.max(0, Math.min(one[3], other[3]) - Math.max(one[1], other[1]));
  const around = (x0, y0, x1, y1, by) =>
    [Math.min(x0, x1) - by, Math.min(y0, y1) - by, Math.max(x0, x1) + by, Math.max(y0, y1) + by];

  const placeNames = (points, taken, { svg, shared, frame }) => {
    const nodes = [];
    for (const point of points) {
      const name = write(point.label, 0, 0, shared.letters, {});
      svg.append(name);
      const width = name.getComputedTextLength();
      let best = null;
      for (const [dx, dy] of SPOTS) {
        const left = point.x + dx - (dx > 0 ? 0 : dx < 0 ? width : width / 2);
        const middle = point.y + dy + (Math.sign(dy) * shared.letters) / 2;
        const room = [left, middle - shared.letters / 2, left + width, middle + shared.letters / 2];
        const outside = width * shared.letters - overlap(room, frame);
        const covered = 2 * outside + taken.reduce((total, other) => total + overlap(room, other), 0);
        if (!best || covered < best.covered - 1e-6) best = { covered, dx, dy, left, middle, room };
        if (covered < 1e-6) break;
      }
      name.setAttribute("x", best.left);
      name.setAttribute("y", best.middle + 0.36 * shared.letters);
      taken.push(best.room);
      if (Math.max(Math.abs(best.dx), Math.abs(best.dy)) > 12) {
        nodes.push(line([[point.x, point.y], [point.x + best.dx, point.y + best.dy]], { stroke: "var(--muted)", "stroke-width": 0.5 }));
      }
      nodes.push(name);
    }
    return nodes;
  };

  return ({ svg, rows, own, shared, passes, x, y, frame, first }) => {
    const [points, nodes] = [[], []];
    // Bars end at the frame, before the numbers of the axes.
    const left = (at) => Math.max(frame[0], Math.min(frame[2], at));
    const top = (at) => Math.max(frame[1], Math.min(frame[3], at));
    for (const { name, ...look } of shared.rows) {
      const runs = rows[name].runs.filter((run) => run.ended === "done" && passes({ ...run, row: name }));
      if (!runs.length) continue;
      const costs = runs.map((run) => run[own.measure]);
      const accuracies = runs.map((run) => run.accuracy);
      const [cost, accuracy] = [mean(costs), mean(accuracies)];
      const at = cost || own.zero;
      const across = cost ? Math.min(deviation(costs) ?? 0, 0.9 * at) : 0;
      const std = deviation(accuracies);
      const up = std ?? 0;
      const ends = [[at - across, accuracy, at + across, accuracy], [at, accuracy - up, at, accuracy + up]];
      points.push({
        name, ...look, cost, accuracy, std, count: runs.length, x: x(at), y: y(accuracy),
        bars: ends.map(([x0, y0, x1, y1]) => [left(x(x0)), top(y(y0)), left(x(x1)), top(y(y1))]),
      });
    }
    const front = makeStairs(findFront(points));
    nodes.push(line(front, { stroke: "var(--muted)" }));
    for (const point of points) {
      for (const [x0, y0, x1, y1] of point.bars) nodes.push(line([[x0, y0], [x1, y1]], { stroke: point.colour, "stroke-width": 0.9 }));
    }
    for (const point of points) {
      const mark = first.find((one) => one.dataset.row === point.name && one.querySelector("use"))?.querySelector("use");
      if (!mark) continue;
      const moved = mark.cloneNode();
      moved.setAttribute("x", point.x);
      moved.setAttribute("y", point.y);
      nodes.push(moved);
    }
    const stairs = front.slice(1).map((end, at) => around(...front[at], ...end, 1));
    const bars = points.flatMap((point) => point.bars.map((bar) => around(...bar, 1)));
    const dots = [...svg.querySelectorAll("g[data-seed]:not(.out) use")];
    const places = dots.map((dot) => [dot, dot].map((use, at) => Number(use.getAttribute(at ? "y" : "x"))));
    const taken = [
      ...points.map((point) => around(point.x, point.y, point.x, point.y, 4)),
      ...stairs, ...bars, ...places.map(([cx, cy]) => around(cx, cy, cx, cy, 1)),
    ];
    nodes.push(...placeNames(points, taken, { svg, shared, frame }));
    const marks = points.map((point) => ({
      x: point.x, y: point.y, width: 0, height: 0, row: point.name,
      text: `${point.name}: accuracy ${point.accuracy.toFixed(3)}${
        point.count > 1 ? ` ± ${point.std.toFixed(3)} over ${point.count} seeds` : ""}, ${WORDS[own.measure](point.cost)}`,
    }));
    return { nodes, marks };
  };
})();
