"use strict";
// The comparison of two programs: figures, memory maps and graphs next to each other, instructions, moved tensors, weights.

const SIDES = ["A", "B"];
/** Most letters of a program's name in the head of a column. */
const LONGEST_HEAD = 20;

/** The comparison of the document's two programs; `charts` are to be drawn once it is in the page. */
function diffView() {
  const { verdict, figures, uncounted, methods, only_a: onlyA, only_b: onlyB, weights } = DOCUMENT.diff;
  const charts = [];
  const missing = [onlyA, onlyB].flatMap((names, side) =>
    names.map((name) => element("li", {}, `Method ${name} is only in ${SIDES[side]}.`)),
  );
  const parts = [
    element(
      "section",
      {},
      element("p", {}, verdict),
      missing.length ? element("ul", {}, ...missing) : null,
      element("div", { class: "tiles" }, ...figures.filter(({ name }) => isTile(name)).map((figure) => figureTile(figure, uncounted))),
      facts(DOCUMENT.programs.map((program, side) => [SIDES[side], `${program.name}, SHA-256 ${program.sha256}`])),
    ),
    section("Figures", figureTable(figures)),
    ...(methods.length ? [methodDiffs(methods, charts)] : []),
    section("Weights", weightTable(weights)),
  ];
  return { view: element("div", {}, contents(parts), ...parts), charts };
}

function isTile(name) {
  return name === "size of the file" || isMemory(name);
}

function isMemory(name) {
  return name.startsWith("planned memory");
}

/** `uncounted` is a note about planned memory, or null. */
function figureTile({ name, a, b }, uncounted) {
  return element(
    "div",
    { class: "tile" },
    element("div", { class: "label" }, name),
    element("div", { class: "value" }, a === b ? size(a) : `${size(a)} → ${size(b)}`),
    element("div", { class: "faint" }, a === b ? "the same" : changeOf(a, b, " bytes")),
    uncounted && isMemory(name) ? element("div", { class: "faint" }, uncounted) : null,
  );
}

/** `+1,024 bytes (+5.2 %)`, where `unit` is ` bytes`; nothing where one of the two is not known, or nothing changes. */
function changeOf(a, b, unit) {
  if (a === null || b === null || a === b) return "";
  const sign = b > a ? "+" : "−";
  return `${sign}${grouped(Math.abs(b - a))}${unit}${a ? ` (${sign}${percent(Math.abs(b - a), a)})` : ""}`;
}

/** `A: name of the program`, or the letter alone if the name is long. */
function headOfSide(side) {
  const { name } = DOCUMENT.programs[side];
  return name.length > LONGEST_HEAD ? SIDES[side] : `${SIDES[side]}: ${name}`;
}

function figureTable(figures) {
  const number = (side) => ({
    title: headOfSide(side === "a" ? 0 : 1),
    number: true,
    value: (row) => row[side] ?? -1,
    text: (row) => (row[side] === null ? "–" : `${grouped(row[side])}${row.nbytes ? " bytes" : ""}`),
  });
  return dataTable({
    rows: figures,
    columns: [
      { title: "figure", wide: true, text: (row) => row.name },
      number("a"),
      number("b"),
      {
        title: "change",
        number: true,
        value: (row) => (row.b ?? 0) - (row.a ?? 0),
        text: (row) => changeOf(row.a, row.b, row.nbytes ? " bytes" : "") || "–",
      },
    ],
  });
}

/** The methods that both programs have, one at a time. */
function methodDiffs(methods, charts) {
  const place = element("div");
  const views = {
    charts: [],
    redraw() {
      this.charts.forEach((chart) => chart.redraw());
    },
    dispose() {
      this.charts.forEach((chart) => chart.dispose());
    },
  };
  const fill = (index) => {
    views.charts = [];
    place.replaceChildren(...methodDiff(methods[index], views.charts));
  };
  const show = (index) => {
    views.dispose();
    fill(index);
    views.redraw();
  };
  charts.push(views);
  fill(0);
  const names = methods.map((method) => method.name);
  const chooser = names.length > 1 ? element("div", { class: "controls" }, choice("Method", names, show)) : null;
  return section("Methods", chooser, place);
}

function methodDiff(compared, charts) {
  const methods = DOCUMENT.programs.map((program) => program.methods.find(({ name }) => name === compared.name));
  compareBuffers(methods);
  const links = methods.map(() => ({ tensor: null, instruction: null }));
  const maps = methods.map((method, side) => {
    const known = method.buffers.length
      ? buffersView(method, charts, links[side])
      : element("p", {}, method.unknown ? `Lifetimes are not known: ${method.unknown}` : "There is no planned memory.");
    return element("div", { class: "side" }, element("h4", {}, `${SIDES[side]}: ${DOCUMENT.programs[side].name}`), known);
  });
  return [
    figureTable(compared.figures),
    element("h3", { id: "memory-maps" }, "Memory maps, in the same scale"),
    element("div", { class: "sides" }, ...maps),
    element("h3", { id: "moved-tensors" }, "Moved tensors"),
    movedTable(compared, methods, links),
    element("h3", { id: "graphs" }, "Graphs"),
    ...graphDiff(compared, methods, charts, links),
    element("h3", { id: "instructions" }, "Instructions"),
    instructionDiff(compared, methods),
  ];
}

/** Draw buffers of the same number in the same scale, with the same legend, so that their maps are at the same height. */
function compareBuffers(methods) {
  const buffers = methods.flatMap((method) => method.buffers);
  for (const buffer of buffers) buffer.compared = buffers.filter(({ info }) => info.index === buffer.info.index);
}

function movedTable({ matched, moved_a: a, moved_b: b }, methods, links) {
  const count = `${grouped(a.length)} of ${grouped(matched)} tensors that both have are at another place`;
  if (!a.length) return element("p", {}, `${count}.`);
  const data = methods.map(placesOf);
  const rows = a.map((value, row) => [data[0].get(value), data[1].get(b[row]), value]).filter(([one, other]) => one && other);
  const show = ([one, other]) => {
    links[0].tensor?.(one);
    links[1].tensor?.(other, false); // Only one of them can have the focus.
  };
  const column = (side, name) => (row) => methods[side].buffers[row[side].buffer].tensors[name][row[side].row];
  const place = (side) => ({
    title: `place in ${SIDES[side]}`,
    number: true,
    value: column(side, "offset"),
    text: (row) => `buffer ${methods[side].buffers[row[side].buffer].info.index} at ${grouped(column(side, "offset")(row))}`,
  });
  const name = ([one]) => tensorName(methods[0].buffers[one.buffer], one.row);
  return dataTable({
    caption: `${count}; a name shows it in both maps`,
    rows,
    columns: [
      {
        title: "tensor in A",
        text: name,
        cell: (row) => element("button", { type: "button", class: "plain", onclick: () => show(row) }, name(row)),
      },
      { title: "bytes", number: true, value: column(0, "size"), text: (row) => grouped(column(0, "size")(row)) },
      place(0),
      place(1),
      { title: "type", text: ([one]) => typeOf(methods[0].buffers[one.buffer], one.row) },
      {
        title: "op",
        text: ([one]) => operatorOf(methods[0], methods[0].buffers[one.buffer].tensors.writer[one.row]),
      },
    ],
  });
}

/** The buffer and the row of each value of a method. */
function placesOf(method) {
  const found = new Map();
  method.buffers.forEach(({ tensors }, buffer) => tensors.value.forEach((value, row) => found.set(value, { buffer, row })));
  return found;
}

/** The graphs of both. An instruction that is selected in one is shown in the other, too. */
function graphDiff({ instruction_a: a, instruction_b: b }, methods, charts, links) {
  const partners = [new Map(), new Map()];
  a.forEach((one, row) => {
    if (one < 0 || b[row] < 0) return;
    partners[0].set(one, b[row]);
    partners[1].set(b[row], one);
  });
  const same = (side) => (data) => bySameness(data, partners[side], side);
  const views = methods.map(
    (method, side) => method.instructions.operator.length && new GraphView(method, links[side], same(side)),
  );
  let following = false;
  const follow = (side) => (node) => {
    const other = views[1 - side];
    if (following || !other) return;
    following = true;
    const partner = partners[side].get(node);
    if (partner === undefined) other.select(-1);
    else other.open(partner);
    following = false;
  };
  views.forEach((view, side) => {
    if (!view) return;
    view.onselect = follow(side);
    charts.push(view);
  });
  const titled = (view, side) =>
    element(
      "div",
      { class: "side" },
      element("h4", {}, `${SIDES[side]}: ${DOCUMENT.programs[side].name}`),
      view ? view.element : element("p", {}, "This method has no instructions."),
    );
  return [
    element("p", {}, "Select an instruction to see it in both graphs."),
    element("div", { class: "sides" }, ...views.map(titled)),
  ];
}

/** Colours that tell the instructions of one program from those that both have. */
function bySameness(data, partners, side) {
  const hueAt = (at) => (partners.has(at) ? "hue-7" : side ? "good" : "bad");
  return {
    name: "Difference",
    hue: (node) => (node.group ? commonHue(node, hueAt) : hueAt(node.first)),
    legend: () => [
      ["hue-7", "in both"],
      [side ? "good" : "bad", `only in ${SIDES[side]}`],
      ...(data.count > MOST_NODES ? [["storage", "several of them"]] : []),
    ],
  };
}

/** The instructions of both, those that only one has or all. */
function instructionDiff({ instruction_a: a, instruction_b: b }, methods) {
  const rows = a.map((position, row) => [position, b[row]]);
  const apart = rows.filter(([one, other]) => one < 0 || other < 0);
  const removed = apart.filter(([, other]) => other < 0).length;
  const counts = [
    `${grouped(rows.length - apart.length)} the same`,
    `${grouped(removed)} only in A`,
    `${grouped(apart.length - removed)} only in B`,
  ].join(", ");
  const place = element("div");
  const show = (index) => place.replaceChildren(instructionTable(index ? rows : apart, methods));
  show(0);
  return element(
    "div",
    {},
    element("p", {}, `${counts}. An instruction is the same if its operator, its outputs and its module are.`),
    apart.length < rows.length
      ? element("div", { class: "controls" }, choice("Show", ["differences", "all instructions"], show))
      : null,
    place,
  );
}

function instructionTable(rows, methods) {
  if (!rows.length) return element("p", {}, "No instruction is added or removed.");
  const side = ([one]) => (one < 0 ? 1 : 0);
  const of = (row) => [methods[side(row)], row[side(row)]];
  const state = ([one, other]) => (one < 0 ? "only in B" : other < 0 ? "only in A" : "the same");
  const position = (at) => ({
    title: `position in ${SIDES[at]}`,
    number: true,
    value: (row) => row[at],
    text: (row) => (row[at] < 0 ? "–" : grouped(row[at])),
  });
  const mark = (row) =>
    element("span", { class: row[0] < 0 ? "added" : row[1] < 0 ? "removed" : "faint" }, state(row));
  return dataTable({
    caption: "In the order of both files",
    rows,
    columns: [
      { title: "in", text: state, cell: mark },
      position(0),
      position(1),
      { title: "operator", text: (row) => operatorOf(...of(row)) },
      { title: "module", text: (row) => text(of(row)[0].graph.module[of(row)[1]]) },
      { title: "source", wide: true, text: (row) => sourceOf(...of(row)) },
    ],
  });
}

function weightTable(weights) {
  if (!weights.length) return element("p", {}, "Weights and other data are the same.");
  const state = ({ a, b }) => (a === null ? "only in B" : b === null ? "only in A" : "other content");
  const bytes = (name, side) => ({
    title: `bytes in ${name}`,
    number: true,
    value: (row) => row[side] ?? -1,
    text: (row) => (row[side] === null ? "–" : grouped(row[side])),
  });
  return dataTable({
    caption: `${grouped(weights.length)} differ`,
    rows: weights,
    columns: [
      { title: "name", wide: true, text: (row) => row.name },
      { title: "kind", text: (row) => row.kind },
      { title: "difference", text: state },
      bytes("A", "a"),
      bytes("B", "b"),
    ],
  });
}
