"use strict";
// What is said of the selected node of a graph, with the ways to other nodes and to the memory map.

const MOST_LISTED = 40;

function graphDetails(view) {
  const { data, selected, group } = view;
  if (selected < 0)
    return [element("p", { class: "faint" }, "Select an instruction to see its operands, its source line and its memory.")];
  if (group) return groupDetails(view, group);
  return data.isEnd(selected) ? endDetails(view, selected) : instructionDetails(view, selected);
}

function instructionDetails(view, position) {
  const { data, method } = view;
  const written = data.produced[position];
  const pairs = [
    ["instruction", `${grouped(position)}, ${NODE_KINDS[text(data.graph.kind[position])]}`],
    ["module", data.graph.module[position] < 0 ? "" : data.module(position) || WHOLE_MODEL],
    ["source", sourceOf(method, position)],
    ["device", text(data.graph.device[position])],
    ["writes", written ? exactSize(written) : ""],
    ["in use", method.buffers.length ? exactSize(data.inUse(position)) : ""],
    ["peak", data.atPeak({ first: position, last: position }) ? "of a buffer" : ""],
  ].filter(([, found]) => found);
  return [
    element("h3", {}, data.title(position)),
    facts(pairs),
    ...operandList(view, "Reads", data.reads(position), (value) => writersOf(data, position, value)),
    ...operandList(view, "Writes", data.writes(position), (value) => readersOf(data, position, value)),
    ...jumpList(view, position),
    ...collapser(view, position),
  ];
}

function endDetails(view, node) {
  const { data } = view;
  const value = data.graph.ends.value[node - data.count];
  const isOutput = data.endKind(node) === "output";
  const others = isOutput ? data.into[node].map((edge) => data.graph.edges.origin[edge]) : readersOf(data, node, value);
  return [element("h3", {}, data.title(node)), ...operandList(view, isOutput ? "Takes" : "Gives", [value], () => others)];
}

function groupDetails(view, { start, end, name, range }) {
  const { data, method } = view;
  const operators = new Map();
  let written = 0;
  let most = 0;
  for (let at = start; at < end; at++) {
    const operator = operatorOf(method, at);
    operators.set(operator, (operators.get(operator) || 0) + 1);
    written += data.produced[at];
    most = Math.max(most, data.inUse(at));
  }
  const listed = [...operators].sort((a, b) => b[1] - a[1]).slice(0, 8);
  return [
    element("h3", {}, name),
    facts(
      [
        ["instructions", `${grouped(end - start)}: ${grouped(start)} to ${grouped(end - 1)}`],
        ["writes", written ? exactSize(written) : ""],
        ["most in use", method.buffers.length ? exactSize(most) : ""],
        ["operators", listed.map(([operator, count]) => `${operator} ${grouped(count)}`).join(", ")],
      ].filter(([, found]) => found && found !== range),
    ),
    element("button", { type: "button", onclick: () => view.toggle() }, "Expand"),
  ];
}

function collapser(view, position) {
  const around = view.folds.all ? undefined : view.folds.around(position);
  if (!around) return [];
  return [element("button", { type: "button", onclick: () => view.toggle() }, `Collapse ${around.name}`)];
}

function writersOf(data, position, value) {
  const { origin, value: values } = data.graph.edges;
  return data.into[position].filter((edge) => values[edge] === value).map((edge) => origin[edge]);
}

/** Readers of a value, or of the bytes that a node writes for it. */
function readersOf(data, node, value) {
  const { to, value: values } = data.graph.edges;
  const own = new Set(data.isEnd(node) ? [value] : data.writes(node));
  return data.from[node].filter((edge) => values[edge] === value || !own.has(values[edge])).map((edge) => to[edge]);
}

function operandList(view, title, values, others) {
  if (!values.length) return [];
  const { data } = view;
  const item = (value) => {
    const bytes = data.bytes(value);
    const lines = [
      element("div", {}, element("strong", {}, data.valueName(value)), ` ${data.valueType(value)}`),
      data.isTensor(value)
        ? element("div", { class: "faint" }, [data.valuePlace(value), bytes ? size(bytes) : ""].filter(Boolean).join(", "))
        : null,
    ];
    const place = data.planned(value);
    const ways = others(value)
      .slice(0, MOST_LISTED)
      .map((node) => nodeLink(view, node));
    if (place && view.links.tensor)
      ways.push(
        element("button", { type: "button", class: "plain", onclick: () => view.links.tensor(place) }, "memory map"),
      );
    return element("li", {}, ...lines, ways.length ? element("div", { class: "ways" }, ...ways) : null);
  };
  const more = values.length - MOST_LISTED;
  return [
    element("h4", {}, `${title} (${grouped(values.length)})`),
    element(
      "ul",
      { class: "operands" },
      ...values.slice(0, MOST_LISTED).map(item),
      more > 0 ? element("li", { class: "faint" }, `${grouped(more)} more`) : null,
    ),
  ];
}

function nodeLink(view, node) {
  const { data } = view;
  const name = data.isEnd(node) ? data.title(node) : `#${grouped(node)} ${data.title(node)}`;
  return element("button", { type: "button", class: "plain", onclick: () => view.open(node) }, name);
}

function jumpList(view, position) {
  const { jump_from: from, jump_to: to } = view.data.graph;
  const targets = to.filter((_, row) => from[row] === position);
  if (!targets.length) return [];
  const ways = targets.map((target) => nodeLink(view, target));
  return [element("h4", {}, "Continues at"), element("div", { class: "ways" }, ...ways)];
}
