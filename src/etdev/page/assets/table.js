"use strict";
// Tables that stay quick with ten thousand rows: they are sorted, searched, and shown in pages.

const PAGE_ROWS = 50;

/**
 * A table. `columns` have `title`, `text(row)`, and may have `number` (bytes or a count, sorted as one), `value(row)`
 * to sort by, `wide`, and `cell(row)` for what is more than text. `rows` are anything. A column without any text is
 * left out. `under(row)` is a text for a second line below a row, which is left out if it is empty.
 */
function dataTable({ caption, columns, rows, under = () => "" }) {
  const filled = columns.filter((column) => rows.some((row) => column.text(row) !== ""));
  return new DataTable(caption, filled, rows, under).view;
}

class DataTable {
  constructor(caption, columns, rows, under) {
    this.columns = columns;
    this.rows = rows;
    this.under = under;
    this.shown = rows;
    this.page = 0;
    this.sorted = -1;
    this.heads = columns.map((column, index) => this.head(column, index));
    this.body = element("tbody");
    this.pager = element("div", { class: "controls" });
    const title = caption ? element("p", { class: "caption" }, caption) : null; // It does not scroll with the table.
    const table = element("table", {}, element("thead", {}, element("tr", {}, ...this.heads)), this.body);
    const region = { class: "scroll", tabindex: "0", role: "region", "aria-label": caption || "Table" };
    this.view = element("div", {}, title, this.search(), element("div", region, table), this.pager);
    this.show();
  }

  head(column, index) {
    const sort = () => this.sortBy(index);
    const label =
      this.rows.length > 1 ? element("button", { type: "button", onclick: sort }, column.title) : column.title;
    return element("th", { scope: "col", class: column.number ? "number" : null }, label);
  }

  search() {
    if (this.rows.length <= PAGE_ROWS) return null;
    const field = element("input", { type: "search", oninput: () => this.find(field.value.toLowerCase()) });
    return element("div", { class: "controls" }, element("label", {}, "Find", field));
  }

  show() {
    const first = this.page * PAGE_ROWS;
    this.body.replaceChildren(...this.shown.slice(first, first + PAGE_ROWS).flatMap((row) => this.row(row)));
    if (this.rows.length <= PAGE_ROWS) return;
    const last = Math.min(first + PAGE_ROWS, this.shown.length);
    const range = last ? `${grouped(first + 1)} to ${grouped(last)} of ${grouped(this.shown.length)}` : "none";
    this.pager.replaceChildren(
      this.turn("Previous", -1, first === 0),
      element("span", { role: "status" }, range),
      this.turn("Next", 1, last >= this.shown.length),
    );
  }

  turn(label, by, disabled) {
    const onclick = () => {
      this.page += by;
      this.show();
    };
    return element("button", { type: "button", disabled, onclick }, label);
  }

  row(row) {
    const cells = this.columns.map((column) => {
      const kind = [column.number ? "number" : "", column.wide ? "wide" : ""].join(" ").trim();
      return element("td", { class: kind || null }, column.cell ? column.cell(row) : column.text(row));
    });
    const under = this.under(row);
    if (!under) return [element("tr", {}, ...cells)];
    const second = element("td", { colspan: String(cells.length) }, element("div", { class: "faint" }, under));
    return [element("tr", { class: "over" }, ...cells), element("tr", { class: "under" }, second)];
  }

  /** Numbers the largest first, texts from A to Z; the other way when asked again. */
  sortBy(index) {
    const { number, text, value = text } = this.columns[index];
    const again = this.sorted === index && this.heads[index].getAttribute("aria-sort");
    const descending = again ? again === "ascending" : Boolean(number);
    const compare = number
      ? (a, b) => value(a) - value(b)
      : (a, b) => String(value(a)).localeCompare(String(value(b)), "en", { numeric: true });
    this.heads.forEach((head) => head.removeAttribute("aria-sort"));
    this.heads[index].setAttribute("aria-sort", descending ? "descending" : "ascending");
    this.sorted = index;
    this.put([...this.shown].sort((a, b) => (descending ? compare(b, a) : compare(a, b))));
  }

  find(wanted) {
    const texts = (row) => [...this.columns.map((column) => String(column.text(row))), this.under(row)];
    const matches = (row) => texts(row).some((found) => found.toLowerCase().includes(wanted));
    this.heads.forEach((head) => head.removeAttribute("aria-sort"));
    this.put(wanted ? this.rows.filter(matches) : this.rows);
  }

  put(rows) {
    this.shown = rows;
    this.page = 0;
    this.show();
  }
}

/** A table of the document: titles, and rows of texts and numbers of bytes. */
function plainTable(table) {
  const columns = table.columns.map((title, index) => {
    const bytes = table.sizes.includes(index);
    return {
      title,
      number: bytes,
      value: bytes ? (row) => row[index] ?? -1 : undefined,
      text: (row) => (row[index] === null ? "" : bytes ? grouped(row[index]) : row[index]),
    };
  });
  return dataTable({ caption: table.note, columns, rows: table.rows });
}
