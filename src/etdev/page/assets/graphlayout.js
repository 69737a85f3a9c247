"use strict";
// Where the nodes of a graph are drawn: rows by data flow, columns near what they read. No drawing.

const UNIT = 12;
const LEAST_NODE_UNITS = 16;
const MOST_NODE_UNITS = 28;
/** Nodes are as wide as their titles if no row has more nodes than this. */
const WIDE_ROW = 4;
const LETTER_WIDTH = 7.2;
const GAP_UNITS = 2;
const NODE_HEIGHT = 46;
const ROW_HEIGHT = 88;
const ROW_NODES = 12;
const MOST_UNITS = 600;

/**
 * Places for `items` (positions of instructions, and groups) and the ends of data.
 *
 * The result has `nodes` with `item` or `end`, `x` of the middle, `width`, `row`, and `edges` with `from`, `to`, `control` and
 * `lane`, the x of the vertical part of an edge that passes rows. The order of the nodes is that of the file.
 */
function graphLayout(data, items) {
  const nodes = graphNodes(data, items);
  const edges = graphEdges(data, nodes);
  const rows = graphRows(nodes, edges);
  const units = nodeUnits(data, nodes, rows);
  for (const node of nodes) node.width = units * UNIT;
  placeInColumns(nodes, edges, rows, units);
  return { nodes, edges: edges.list, rows, owner: edges.owner };
}

/** The width of all nodes: an even number of units. */
function nodeUnits(data, nodes, rows) {
  if (rows.some((row) => row.length > WIDE_ROW)) return LEAST_NODE_UNITS;
  const letters = nodes.reduce((most, node) => Math.max(most, ...nodeTexts(data, node).map((words) => words.length)), 0);
  const units = 2 * Math.ceil((letters * LETTER_WIDTH + 2 * UNIT) / UNIT / 2);
  return Math.min(Math.max(units, LEAST_NODE_UNITS), MOST_NODE_UNITS);
}

function graphNodes(data, items) {
  const nodes = items.map((item) =>
    typeof item === "number" ? { first: item, last: item, group: null } : { first: item.start, last: item.end - 1, group: item },
  );
  for (let end = data.count; end < data.nodes; end++) nodes.push({ first: end, last: end, group: null });
  nodes.forEach((node, index) => Object.assign(node, { index, row: 0, x: 0 }));
  return nodes;
}

/** Edges between what is shown; several between the same two are one. `owner` is the node that shows each instruction. */
function graphEdges(data, nodes) {
  const owner = new Int32Array(data.nodes);
  for (const node of nodes) for (let at = node.first; at <= node.last; at++) owner[at] = node.index;
  const known = new Map();
  const list = [];
  const add = (from, to, control) => {
    const key = from * nodes.length + to;
    if (from === to || known.has(key)) return;
    known.set(key, true);
    list.push({ from, to, control, lane: null });
  };
  const { edges, jump_from: jumps, jump_to: targets } = data.graph;
  edges.origin.forEach((origin, edge) => add(owner[origin], owner[edges.to[edge]], false));
  jumps.forEach((jump, row) => add(owner[jump], owner[targets[row]], true));
  const breaks = new Set([...jumps, ...targets].map((position) => owner[position]));
  return { list, owner, breaks };
}

/** Give each node a row below what it reads; return the nodes of each row. */
function graphRows(nodes, { list, breaks }) {
  const into = nodes.map(() => []);
  const outOf = nodes.map(() => []);
  for (const edge of list) {
    into[edge.to].push(edge);
    outOf[edge.from].push(edge);
  }
  const isSource = (node) => into[node.index].length === 0;
  const order = [...nodes.filter((node) => isSource(node)), ...nodes.filter((node) => !isSource(node))];
  const placed = new Uint8Array(nodes.length);
  let floor = 0;
  let deepest = -1;
  for (const node of order) {
    // A jump parts what runs before it from what runs after it.
    if (breaks.has(node.index) && !isSource(node)) floor = deepest + 1;
    node.row = isSource(node) ? 0 : floor;
    for (const { from } of into[node.index]) if (placed[from]) node.row = Math.max(node.row, nodes[from].row + 1);
    placed[node.index] = 1;
    deepest = Math.max(deepest, node.row);
  }
  for (const node of nodes.filter(isSource)) {
    const readers = outOf[node.index].map(({ to }) => nodes[to].row);
    if (readers.length) node.row = Math.max(readers.reduce((a, b) => Math.min(a, b)) - 1, 0);
  }
  return spread(nodes, deepest + 1);
}

/** Divide rows of many nodes into several. */
function spread(nodes, count) {
  const rows = Array.from({ length: count }, () => []);
  for (const node of nodes) rows[node.row].push(node);
  const found = [];
  for (const row of rows) {
    for (let at = 0; at < row.length; at += ROW_NODES) {
      const part = row.slice(at, at + ROW_NODES);
      part.forEach((node) => (node.row = found.length));
      found.push(part);
    }
  }
  return found;
}

/** Row by row, put each node as near as possible to what it reads, and edges over several rows between the nodes. */
function placeInColumns(nodes, { list }, rows, units) {
  const middle = MOST_UNITS / 2;
  // The first row in which a unit of the width is free: of nodes, and of edges that pass.
  const [nodeFree, laneFree] = [new Int32Array(MOST_UNITS), new Int32Array(MOST_UNITS)];
  const into = nodes.map(() => []);
  const outOf = nodes.map(() => []);
  for (const edge of list) {
    into[edge.to].push(edge);
    outOf[edge.from].push(edge);
  }
  rows.forEach((row, number) => {
    const wishes = row.map((node) => [wished(node), node]);
    wishes.sort((a, b) => (a[0] ?? 0) - (b[0] ?? 0) || a[1].first - b[1].first);
    wishes.forEach(([wish, node], place) => {
      const target = wish ?? (place - (row.length - 1) / 2) * (units + GAP_UNITS) * UNIT;
      const start = nearest(Math.round(target / UNIT) + middle - units / 2, (unit) => nodeFits(unit, number));
      node.x = start === null ? target : (start + units / 2 - middle) * UNIT;
      if (start !== null) nodeFree.fill(number + 1, start, start + units);
    });
    for (const node of row) passBeside(node);
  });

  /** Below what it reads from the nearest row. */
  function wished(node) {
    const above = into[node.index].map(({ from }) => nodes[from]).filter((from) => from.row < node.row);
    const nearestRow = above.reduce((most, from) => Math.max(most, from.row), -1);
    const known = above.filter((from) => from.row === nearestRow);
    return known.length ? known.reduce((sum, from) => sum + from.x, 0) / known.length : null;
  }

  function nodeFits(start, row) {
    return (
      start >= GAP_UNITS &&
      start + units + GAP_UNITS <= MOST_UNITS &&
      allFree(nodeFree, start - GAP_UNITS, start + units + GAP_UNITS, row) &&
      allFree(laneFree, start, start + units, row)
    );
  }

  /** Keep a unit free for the edges of a node that pass other rows. */
  function passBeside(node) {
    const far = outOf[node.index].filter(({ to }) => nodes[to].row > node.row + 1);
    if (!far.length) return;
    const wanted = Math.round(node.x / UNIT) + middle + units / 2;
    const unit = nearest(wanted, (one) => one >= 0 && one < MOST_UNITS && laneFree[one] <= node.row + 1);
    if (unit === null) return;
    laneFree[unit] = far.reduce((most, { to }) => Math.max(most, nodes[to].row), 0);
    for (const edge of far) edge.lane = (unit + 0.5 - middle) * UNIT;
  }
}

function allFree(free, from, to, row) {
  for (let unit = from; unit < to; unit++) if (free[unit] > row) return false;
  return true;
}

/** The number nearest to another one that fits; null if there is none. */
function nearest(wanted, fits) {
  for (let distance = 0; distance <= MOST_UNITS; distance++) {
    if (fits(wanted + distance)) return wanted + distance;
    if (fits(wanted - distance)) return wanted - distance;
  }
  return null;
}
