// Statistics of a handful of seeds, as lab/run/statistics.py has them, and numbers as text.
const statistics = (() => {
  const CONFIDENCE = 0.95;
  const ROUNDING = 1e-12;

  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const mean = (values) => sum(values) / values.length;
  const deviation = (values) => {
    if (values.length < 2) return null;
    const middle = mean(values);
    return Math.sqrt(sum(values.map((value) => (value - middle) ** 2)) / (values.length - 1));
  };

  // The share of Student's t between -t and t, of whole degrees of freedom: Abramowitz and Stegun, 26.7.3 and 26.7.4.
  const shareWithin = (t, freedom) => {
    const angle = Math.atan(t / Math.sqrt(freedom));
    const [sine, cosine, odd] = [Math.sin(angle), Math.cos(angle), freedom % 2];
    let term = odd ? cosine : 1;
    let total = freedom === 1 ? 0 : term;
    for (let power = 2 + odd; power <= freedom - 2; power += 2) {
      term *= ((power - 1) / power) * cosine ** 2;
      total += term;
    }
    return odd ? (2 / Math.PI) * (angle + sine * total) : sine * total;
  };

  const quantile = (freedom) => {
    let [low, high] = [0, 16];
    for (let halving = 0; halving < 60; halving++) {
      const middle = (low + high) / 2;
      if (shareWithin(middle, freedom) < CONFIDENCE) low = middle;
      else high = middle;
    }
    return high;
  };

  const spread = (values) => {
    if (!values.length) return null;
    const [middle, std] = [mean(values), deviation(values)];
    if (std === null) return { mean: middle, std, low: null, high: null };
    const half = (quantile(values.length - 1) * std) / Math.sqrt(values.length);
    return { mean: middle, std, low: middle - half, high: middle + half };
  };

  // The p value of a two-sided paired t-test; null where there is none.
  const test = (differences) => {
    const std = deviation(differences);
    if (std === null) return null;
    const difference = mean(differences);
    if (std > ROUNDING) {
      const t = Math.abs(difference) / (std / Math.sqrt(differences.length));
      return Math.max(0, 1 - shareWithin(t, differences.length - 1));
    }
    return Math.abs(difference) <= ROUNDING ? 1 : null;
  };

  return { sum, mean, deviation, spread, test };
})();

const format = (() => {
  const size = (count) => {
    const units = ["B", "kB", "MB", "GB"];
    const power = units.findIndex((unit, at) => count < 1000 ** (at + 1) || unit === "GB");
    return `${(count / 1000 ** power).toFixed(power ? 1 : 0)} ${units[power]}`;
  };
  const time = (seconds) => `${Number(seconds.toPrecision(3))} s`;
  const spread = (one) => one.mean.toFixed(3) + (one.std === null ? "" : ` ± ${one.std.toFixed(3)}`);
  const p = (value) => (value === null ? "-" : value < 1e-4 ? "<0.0001" : value.toFixed(4));
  return { size, time, spread, p };
})();
