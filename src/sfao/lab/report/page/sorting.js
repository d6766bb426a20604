// Tables sort by their headings.
(() => {
  const byText = new Intl.Collator("en", { numeric: true }).compare;
  const byNumber = (a, b) => a - b;

  // Array.prototype.sort is stable, so equals keep their order in both directions; cells without a value stay last.
  const sorted = (rows, column, numeric, direction) => {
    const sign = direction === "ascending" ? 1 : -1;
    const key = (row) => (numeric ? row.cells[column].dataset.value : row.cells[column].textContent);
    const compare = numeric ? byNumber : byText;
    return [...rows].sort((one, other) => {
      const [a, b] = [key(one), key(other)];
      if (a === "" || b === "") return (a === "") - (b === "");
      return sign * compare(a, b);
    });
  };

  const setUp = (table) => {
    const body = table.tBodies[0];
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const turned = heading.ariaSort === "ascending" ? "descending" : "ascending";
        const direction = heading.hasAttribute("aria-sort") ? turned : heading.dataset.first;
        for (const each of headings) each.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", direction);
        sort();
      });
    });
    const sort = () => {
      const column = headings.findIndex((heading) => heading.hasAttribute("aria-sort"));
      if (column < 0) return;
      const heading = headings[column];
      body.append(...sorted(body.rows, column, heading.classList.contains("number"), heading.ariaSort));
    };
    // Its numbers may be others now.
    document.addEventListener("redrawn", sort);
  };

  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("table.sortable").forEach(setUp));
})();
