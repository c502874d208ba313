"use strict";
/* Filters and sorts the table of flagged samples. Without it the page still shows all of them. */
(() => {
  const section = document.getElementById("samples");
  if (!section) return;
  const body = section.querySelector("tbody");
  const heads = [...section.querySelectorAll("th[data-kind]")];
  const form = section.querySelector("form");
  const rows = [...body.rows].map((row) => ({
    row,
    text: row.textContent.toLowerCase(),
    codes: row.dataset.codes.split(" "),
    severity: row.dataset.severity,
  }));
  let order = null;

  const filter = () => {
    const text = form.elements.text.value.trim().toLowerCase();
    const severity = form.elements.severity.value;
    const code = form.elements.code.value;
    let shown = 0;
    for (const one of rows) {
      const fits =
        one.text.includes(text) && (!severity || one.severity === severity) && (!code || one.codes.includes(code));
      one.row.hidden = !fits;
      shown += fits;
    }
    form.querySelector("output").value = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")}`;
  };

  /* Numbers: the largest first, then the smallest; words: from A on, then from Z on. What is unknown comes last. */
  const sort = (number) => {
    const head = heads[number];
    const words = head.dataset.kind === "text";
    const first = words ? "ascending" : "descending";
    const other = words ? "descending" : "ascending";
    const direction = order && order.number === number && order.direction === first ? other : first;
    order = { number, direction };
    const sign = direction === "ascending" ? 1 : -1;
    const value = (row) => row.cells[head.cellIndex].dataset.v;
    const compare = (a, b) => {
      const [x, y] = [value(a.row), value(b.row)];
      if (x === "" || y === "") return (x === "") - (y === "");
      return sign * (words ? x.localeCompare(y, "en", { numeric: true }) : Number(x) - Number(y));
    };
    for (const one of [...rows].sort(compare)) body.append(one.row);
    for (const each of heads) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction);
    form.elements.order.value = String(number);
  };

  heads.forEach((head, number) => head.firstElementChild.addEventListener("click", () => sort(number)));
  form.elements.order.addEventListener("change", (event) => sort(Number(event.target.value)));
  form.addEventListener("input", (event) => event.target.name !== "order" && filter());
  form.addEventListener("submit", (event) => event.preventDefault());
  for (const link of document.querySelectorAll("a[data-show]")) {
    link.addEventListener("click", () => {
      form.elements.code.value = link.dataset.show;
      form.elements.text.value = form.elements.severity.value = "";
      filter();
    });
  }
  form.hidden = false;
  filter();
})();
