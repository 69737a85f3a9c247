"use strict";
// In which colours the nodes of a graph are drawn, and the legend that says so.

const NODE_KINDS = {
  kernel: "kernel",
  copy: "copy by a kernel",
  delegate: "delegate",
  transfer: "copy between host and device",
  control: "jump",
  pointer: "sets a pointer",
};
const GRAPH_HUES = { kernel: "kernel", copy: "hue-5", delegate: "delegate", transfer: "transfer", control: "state", pointer: "alias" };
const END_HUES = { input: "input", output: "hue-6", state: "state" };
const WHOLE_MODEL = "the model itself";
const NO_MODULE = "no known module";
const HUES = 8;
/** Parts of the largest number of bytes, as limits of the colours for bytes. */
const SHARES = [0, 0.125, 0.25, 0.5, 0.75, 1];

/**
 * The ways to colour a graph that say something about this one. Each has `name`, `hue(node)`, `legend()`, and
 * `show(nodes)` where the colours depend on what is shown.
 */
function graphColourings(data) {
  const positions = Array.from({ length: data.count }, (_, position) => position);
  const delegates = (position) =>
    text(data.graph.kind[position]) === "delegate" ? operatorOf(data.method, position) : "not delegated";
  return [
    byKind(data),
    byNames("Module", positions, modulesApart(data)),
    byNames("Delegate", positions, delegates),
    byNames("Device", positions, (position) => text(data.graph.device[position], "copy between devices")),
    byNames("Memory", positions, (position) => data.bank(position) || "no planned output"),
    byBytes("Bytes written", data.produced, (a, b) => a + b),
    byBytes("Bytes in use", positions.map((at) => data.inUse(at)), (a, b) => Math.max(a, b)),
  ].filter(Boolean);
}

/** The colour of a node. Inputs, outputs and state have colours of their own only among the kinds. */
function graphHue(data, node, colouring) {
  if (!data.isEnd(node.first)) return colouring.hue(node);
  return colouring.ends ? END_HUES[data.endKind(node.first)] : "edge";
}

function byKind(data) {
  const kinds = data.graph.kind.map((number) => text(number));
  const found = Object.keys(NODE_KINDS).filter((kind) => kinds.includes(kind));
  const groups = kinds.length > MOST_NODES;
  const ends = Object.keys(END_HUES).filter((kind) => data.graph.ends.kind.some((number) => text(number) === kind));
  return {
    name: "Kind",
    ends: true,
    hue: (node) => (node.group ? commonHue(node, (at) => GRAPH_HUES[kinds[at]]) : GRAPH_HUES[kinds[node.first]]),
    legend: () => [
      ...found.map((kind) => [GRAPH_HUES[kind], NODE_KINDS[kind]]),
      ...ends.map((kind) => [END_HUES[kind], kind]),
      ...(groups && found.length > 1 ? [["storage", "several of them"]] : []),
    ],
  };
}

/** The hue of all instructions of a group, or that for several. */
function commonHue({ first, last }, hueAt) {
  const hue = hueAt(first);
  for (let at = first + 1; at <= last; at++) if (hueAt(at) !== hue) return "storage";
  return hue;
}

/** A colour for each of several names; null if there is only one. */
function byNames(title, positions, nameOf) {
  const numbers = new Map();
  const names = positions.map(nameOf);
  for (const name of names) if (!numbers.has(name)) numbers.set(name, numbers.size);
  if (numbers.size < 2) return null;
  const hueAt = (at) => `hue-${numbers.get(names[at]) % HUES}`;
  return {
    name: title,
    hue: (node) => (node.group ? commonHue(node, hueAt) : hueAt(node.first)),
    legend: () => {
      const listed = [...numbers].slice(0, HUES).map(([name, number]) => [`hue-${number}`, name]);
      const more = numbers.size - listed.length;
      return more > 0 ? [...listed, ["storage", `${grouped(more)} more, in the same colours again`]] : listed;
    },
  };
}

/**
 * The path of a module as far as to where the modules begin to differ, with the number of a module in a list if there
 * are enough colours.
 */
function modulesApart(data) {
  const paths = data.graph.module.map((number) => (number < 0 ? null : text(number)));
  const known = paths.filter(Boolean).map((path) => path.split("."));
  let depth = 0;
  while (known.length && known.every((parts) => parts[depth] !== undefined && parts[depth] === known[0][depth])) depth++;
  const start = (parts, numbered) => parts.slice(0, depth + (numbered && /^\d+$/.test(parts[depth + 1] ?? "") ? 2 : 1)).join(".");
  const numbered = new Set(known.map((parts) => start(parts, true))).size <= HUES;
  return (position) => {
    if (!paths[position]) return paths[position] === "" ? WHOLE_MODEL : NO_MODULE;
    return start(paths[position].split("."), numbered);
  };
}

/** Stronger for more bytes, compared with the most of what is shown; `join` gives the number of a group. */
function byBytes(title, numbers, join) {
  if (!numbers.some(Boolean)) return null;
  const of = ({ first, last }) => numbers.slice(first, last + 1).reduce(join, 0);
  let most = 0;
  const step = (bytes) => Math.max(SHARES.findIndex((share) => bytes <= share * most), 0);
  return {
    name: title,
    hue: (node) => `amount-${step(of(node))}`,
    show: (nodes) => (most = nodes.reduce((largest, node) => Math.max(largest, of(node)), 0)),
    legend: () => SHARES.map((share, at) => [`amount-${at}`, amountName(share, most)]),
  };
}

function amountName(share, most) {
  if (share === 0) return "none";
  return share === 1 ? `up to ${size(most)}, the most` : `up to ${size(Math.floor(share * most))}`;
}

function graphLegend(colouring) {
  return colourLegend(colouring.legend());
}
