// Tables as CSV: the rows that are shown, in the order in which they are; numbers in full.
(() => {
  // A spreadsheet takes what begins like this for a formula, and would run it.
  const ACTS = /^[=+\-@\t\r]/;
  const quote = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const words = (text) => quote(ACTS.test(text) ? `'${text}` : text);
  const textOf = (cell) => cell.innerText.trim();
  // "0.842 ± 0.009" says more than its mean does.
  const saysMore = (cell) => (textOf(cell).match(/\d[\d.,]*/g) ?? []).length > 1;

  const write = (table) => {
    const rows = [...table.tBodies[0].rows].filter((row) => !row.classList.contains("out"));
    const columns = [...table.tHead.rows[0].cells].flatMap((heading, number) => {
      const title = words(textOf(heading));
      const shown = { title, read: (row) => words(textOf(row.cells[number])) };
      if (!heading.classList.contains("number")) return [shown];
      const value = { title, read: (row) => row.cells[number].dataset.value || "" };
      const more = rows.some((row) => saysMore(row.cells[number]));
      return more ? [value, { ...shown, title: words(`${textOf(heading)}, as shown`) }] : [value];
    });
    const lines = [columns.map((column) => column.title), ...rows.map((row) => columns.map((one) => one.read(row)))];
    return lines.map((line) => `${line.join(",")}\r\n`).join("");
  };

  const setUp = (table) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "download";
    button.textContent = "Download CSV";
    button.setAttribute("aria-label", `Download CSV: ${table.caption.textContent}`);
    button.addEventListener("click", () => {
      // The mark of order tells a spreadsheet that this is UTF-8.
      const file = URL.createObjectURL(new Blob(["\ufeff", write(table)], { type: "text/csv;charset=utf-8" }));
      const link = document.createElement("a");
      link.href = file;
      link.download = `${table.dataset.file || "table"}.csv`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(file), 1000);
    });
    table.closest(".scroll").after(button);
  };

  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll("table[data-file]").forEach(setUp));
})();
