"use strict";
// What each module of the model takes: weights, bytes that it writes, and bytes at the peak.

const MODULE_MEASURES = {
  weights: "weights",
  written: "bytes written",
  peak: "bytes at the peak",
};

const MODULE_COLUMNS = {
  weights: "weights in bytes",
  written: "bytes written",
  peak: "bytes at the peak",
};

/** The modules of a method; `links.instruction` leads to the graph. */
class ModulesView {
  constructor(method, links) {
    this.method = method;
    this.links = links;
    this.rows = moduleRows(method);
    this.measures = Object.keys(MODULE_MEASURES).filter((measure) => this.rows.some((row) => row[measure]));
    this.measure = this.measures[0];
    this.place = element("div");
    const names = this.measures.map((measure) => MODULE_MEASURES[measure]);
    const chooser = names.length > 1 ? choice("Area for", names, (index) => this.show(this.measures[index])) : null;
    this.canvas = element("div", { class: "chart modules", role: "img" });
    this.view = element(
      "div",
      {},
      element("p", { class: "faint" }, modulesNote(this.rows)),
      this.measures.length ? element("div", { class: "controls" }, chooser) : null,
      this.measures.length ? this.canvas : null,
      this.place,
    );
    this.drawn = chartView(this.view, this.canvas, () => modulesOption(this.rows, this.measure, this.canvas));
    this.fill();
  }

  show(measure) {
    this.measure = measure;
    this.fill();
    this.drawn.redraw();
  }

  fill() {
    if (this.measure) this.canvas.setAttribute("aria-label", modulesSummary(this.rows, this.measure));
    this.place.replaceChildren(moduleTable(this));
  }

  redraw() {
    if (this.measures.length) this.drawn.redraw();
  }

  dispose() {
    this.drawn.dispose();
  }
}

function modulesNote(rows) {
  const rest = rows.some((row) => row.path === null);
  return (
    "Each module with its submodules. Weights are the constants and delegates that its instructions use first, with " +
    "the data that these delegates look up by name. Bytes written are the outputs of its instructions and of its ops " +
    "in delegates, if each runs once. The areas show the submodules of a module that has more than half of the bytes. Each " +
    "other module has its own colour, which its submodules share." +
    (rest ? ` The whole model and "${NO_MODULE}" together are the method.` : "")
  );
}

/** The rows of the document, with the row of the enclosing module and the first instruction. */
function moduleRows(method) {
  const { path, instructions, weights, written, peak } = method.modules;
  const byPath = new Map();
  const rows = path.map((number, row) => {
    const known = number >= 0;
    const full = text(number);
    const name = known ? full || "the whole model" : NO_MODULE;
    const own = {
      name,
      path: known ? full : null,
      instructions: instructions[row],
      weights: weights[row],
      written: written[row],
      peak: peak[row],
      parent: null,
      children: [],
    };
    if (known) byPath.set(full, own);
    return own;
  });
  for (const row of rows) {
    if (!row.path) continue;
    const parent = byPath.get(row.path.split(".").slice(0, -1).join("."));
    row.parent = parent ?? null;
    parent?.children.push(row);
  }
  return rows;
}

function modulesSummary(rows, measure) {
  const largest = rows.filter((row) => row.parent && !row.children.length).sort((a, b) => b[measure] - a[measure]);
  const listed = largest.slice(0, 5).map((row) => `${row.name} ${size(row[measure])}`);
  return `Modules by ${MODULE_MEASURES[measure]}: ${listed.join(", ") || size(rows[0][measure])}. The table below contains the same facts.`;
}

function moduleTable({ method, rows, links, measure }) {
  const first = new Map();
  method.graph.module.forEach((number, position) => {
    if (number < 0) return;
    const parts = text(number).split(".");
    for (let length = 0; length <= parts.length; length++) {
      const path = parts.slice(0, length).join(".");
      if (!first.has(path)) first.set(path, position);
    }
  });
  const whole = rows[0];
  const name = (row) =>
    row.path === null || !first.has(row.path)
      ? row.name
      : element("button", { type: "button", class: "plain", onclick: () => links.instruction(first.get(row.path)) }, row.name);
  const bytes = (title, column) => {
    const known = rows.some((row) => row[column]); // A column of zeros is left out.
    return { title, number: true, value: (row) => row[column], text: (row) => (known ? grouped(row[column]) : "") };
  };
  const share = {
    title: `share of ${MODULE_MEASURES[measure]}`,
    number: true,
    value: (row) => row[measure],
    text: (row) => (row.path === null ? "" : percent(row[measure], whole[measure])),
    cell: (row) => (row.path === null ? "" : shareBar(row[measure], whole[measure])),
  };
  const measured = Object.entries(MODULE_COLUMNS).flatMap(([column, title]) =>
    column === measure ? [bytes(title, column), share] : [bytes(title, column)],
  );
  const sorted = measure ? [...rows].sort((a, b) => b[measure] - a[measure]) : rows;
  return dataTable({
    caption: measure ? `Sorted by ${MODULE_MEASURES[measure]}; a name leads to the graph` : "A name leads to the graph",
    rows: sorted,
    columns: [
      { title: "module", wide: true, text: (row) => row.name, cell: name },
      ...measured,
      { title: "instructions", number: true, value: (row) => row.instructions, text: (row) => grouped(row.instructions) },
    ],
  });
}

function modulesOption(rows, measure, canvas) {
  const hues = Array.from({ length: HUES }, (_, number) => colour(`hue-${number}`));
  const roots = rows.filter((row) => row.parent === null);
  const total = sumOf(roots, measure);
  const perByte = (canvas.clientWidth * canvas.clientHeight) / total;
  const sizes = { least: total / MOST_AREAS, letters: (bytes) => Math.sqrt(bytes * perByte) / scaled(AREA_LETTER) };
  return areas({
    upperLabel: {
      show: true,
      height: scaled(20),
      color: colour("text"),
      fontSize: scaled(12),
      formatter: (node) => `${node.name}  ${size(node.value)}`,
    },
    levels: [{ upperLabel: { show: false } }], // That of all together, which the table has.
    itemStyle: { borderColor: colour("line"), borderWidth: 1, gapWidth: 1 },
    data: topModules(roots, measure, sizes.least).map((row, at) => moduleNode(row, measure, hues[at % HUES], 0, sizes)),
  });
}

const MODULE_LEVELS = 4;
/** Width of an area for each letter of a name in it. An area is about as wide as it is high. */
const AREA_LETTER = 9;
/** A module has an area of its own if it takes at least this part of the whole. */
const MOST_AREAS = 400;

/** The modules with a colour of their own: those at the top, but the parts of a module with more than half of the bytes. */
function topModules(roots, measure, least) {
  const half = sumOf(roots, measure) / 2;
  const divided = (row) => {
    if (!row.children.length || row[measure] <= half) return [row];
    const parts = partsOfModule(row, measure, least);
    const named = parts.map((part) => (part.part && row.path ? { ...part, name: `${row.path}: ${part.name}` } : part));
    return named.flatMap(divided);
  };
  return roots.flatMap(divided);
}

/** The submodules, and what the module itself does, as a part of its own; small ones together. */
function partsOfModule(row, measure, least) {
  const rest = row[measure] - row.children.reduce((sum, child) => sum + child[measure], 0);
  const part = (name, bytes) => ({ ...row, name, part: true, [measure]: bytes, children: [] });
  const small = row.children.filter((child) => child[measure] > 0 && child[measure] < least);
  const others = small.length < 2 ? [] : [part(`${grouped(small.length)} smaller`, sumOf(small, measure))];
  const own = rest > 0 ? [part("itself", rest)] : [];
  const listed = row.children.filter((child) => child[measure] > 0 && (!others.length || child[measure] >= least));
  return [...listed, ...own, ...others];
}

function sumOf(rows, measure) {
  return rows.reduce((sum, row) => sum + row[measure], 0);
}

/** The last part of a path, after its list if it is a number; empty if there is no room for it. */
function shortName(path, room) {
  const parts = path.split(".");
  const name = parts.slice(/^\d+$/.test(parts.at(-1)) ? -2 : -1).join(".");
  return name.length > room ? "" : name;
}

/** An area, with the whole name of the module if there is room for it. */
function moduleNode(row, measure, hue, level, sizes) {
  const room = sizes.letters(row[measure]);
  const isShort = row.path && !row.part && row.name.length > room;
  const name = isShort ? shortName(row.path, room) : row.name;
  const node = { name, value: row[measure], itemStyle: { color: hue } };
  if (!row.children.length || level >= MODULE_LEVELS) return node;
  const parts = partsOfModule(row, measure, sizes.least);
  return { ...node, children: parts.map((part) => moduleNode(part, measure, hue, level + 1, sizes)) };
}
