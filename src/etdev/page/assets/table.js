"use strict";
// Tables that stay quick with ten thousand rows: they are sorted, searched, and shown in pages.

const PAGE_ROWS = 50;

/**
 * A table. `columns` have `title`, `text(row)`, and may have `number` (bytes or a count, sorted as one), `value(row)` to
 * sort by, `wide`, and `cell(row)` for what is more than text. `rows` are anything; a column without any text is left out.
 */
function dataTable({ caption, columns: possible, rows }) {
  const columns = possible.filter((column) => rows.some((row) => column.text(row) !== ""));
  const state = { rows, page: 0, sorted: null };
  const body = element("tbody");
  const heads = columns.map((column, index) => headCell(column, rows.length > 1 && (() => sortBy(index))));
  const table = element("table", {}, caption ? element("caption", {}, caption) : null, element("thead", {}, element("tr", {}, ...heads)), body);
  const pager = element("div", { class: "controls" });
  show();
  return element("div", {}, rows.length > PAGE_ROWS ? searchField(columns, rows, filter) : null, element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption || "Table" }, table), pager);

  function show() {
    const first = state.page * PAGE_ROWS;
    body.replaceChildren(...state.rows.slice(first, first + PAGE_ROWS).map((row) => bodyRow(columns, row)));
    const pages = Math.ceil(state.rows.length / PAGE_ROWS);
    pager.replaceChildren();
    if (rows.length <= PAGE_ROWS) return;
    const last = Math.min(first + PAGE_ROWS, state.rows.length);
    const turn = (by) => () => { state.page += by; show(); };
    pager.append(
      element("button", { type: "button", disabled: state.page === 0, onclick: turn(-1) }, "Back"),
      element("span", { role: "status" }, state.rows.length ? `${grouped(first + 1)} to ${grouped(last)} of ${grouped(state.rows.length)}` : "none"),
      element("button", { type: "button", disabled: state.page >= pages - 1, onclick: turn(1) }, "On"),
    );
  }

  function sortBy(index) {
    const column = columns[index];
    const descending = state.sorted === index ? heads[index].getAttribute("aria-sort") === "ascending" : Boolean(column.number);
    const value = column.value || column.text;
    const compare = column.number ? (a, b) => value(a) - value(b) : (a, b) => String(value(a)).localeCompare(String(value(b)), "en", { numeric: true });
    state.rows = state.rows.toSorted((a, b) => (descending ? compare(b, a) : compare(a, b)));
    state.sorted = index;
    state.page = 0;
    heads.forEach((head, at) => (at === index ? head.setAttribute("aria-sort", descending ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
    show();
  }

  function filter(found) {
    state.rows = found;
    state.page = 0;
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    show();
  }
}

function headCell(column, onsort) {
  const attributes = { scope: "col", class: column.number ? "number" : null };
  return element("th", attributes, onsort ? element("button", { type: "button", onclick: onsort }, column.title) : column.title);
}

function bodyRow(columns, row) {
  const cells = columns.map((column) => {
    const kind = [column.number ? "number" : "", column.wide ? "wide" : ""].join(" ").trim();
    return element("td", { class: kind || null }, column.cell ? column.cell(row) : column.text(row));
  });
  return element("tr", {}, ...cells);
}

function searchField(columns, rows, onfound) {
  const search = element("input", { type: "search", oninput: find });
  return element("div", { class: "controls" }, element("label", {}, "Find", search));

  function find() {
    const wanted = search.value.toLowerCase();
    onfound(wanted ? rows.filter((row) => columns.some((column) => String(column.text(row)).toLowerCase().includes(wanted))) : rows);
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
