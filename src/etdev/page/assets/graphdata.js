"use strict";
// The instructions of a method as a graph: what they read and write, and what belongs together. No drawing.

const CHUNK = 100;
/** As many nodes are shown at first, at most; more are collapsed. */
const MOST_NODES = 300;
const MOST_PARTS = 150;

class GraphData {
  constructor(method) {
    this.method = method;
    this.graph = method.graph;
    this.count = method.instructions.operator.length;
    const { reads, writes, ends, edges, values } = this.graph;
    this.nodes = this.count + ends.kind.length;
    this.first = [0];
    reads.forEach((number, position) => this.first.push(this.first[position] + number + writes[position]));
    this.places = new Map(values.value.map((value, row) => [value, { buffer: -1, row }]));
    method.buffers.forEach(({ tensors }, buffer) =>
      tensors.value.forEach((value, row) => this.places.set(value, { buffer, row })),
    );
    this.into = Array.from({ length: this.nodes }, () => []);
    this.from = Array.from({ length: this.nodes }, () => []);
    edges.origin.forEach((origin, edge) => {
      this.from[origin].push(edge);
      this.into[edges.to[edge]].push(edge);
    });
    this.produced = writes.map((_, position) => this.writes(position).reduce((sum, value) => sum + this.bytes(value), 0));
    this.peaks = method.buffers.filter(({ peak }) => peak).map(({ peak }) => peak.instant - 1);
    this.parts = this.moduleParts();
    this.texts = null;
  }

  isEnd(node) {
    return node >= this.count;
  }

  reads(position) {
    const from = this.first[position];
    return this.graph.arguments.slice(from, from + this.graph.reads[position]);
  }

  writes(position) {
    return this.graph.arguments.slice(this.first[position] + this.graph.reads[position], this.first[position + 1]);
  }

  /** The buffer that holds a value and the row in it; undefined for other values. */
  planned(value) {
    const found = this.places.get(value);
    return found && found.buffer >= 0 ? found : undefined;
  }

  valueName(value) {
    const place = this.planned(value);
    if (place) return tensorName(this.method.buffers[place.buffer], place.row);
    const other = this.places.get(value);
    return other ? text(this.graph.values.name[other.row], `value ${value}`) : `value ${value}`;
  }

  valueType(value) {
    const place = this.places.get(value);
    if (!place) return "";
    if (place.buffer >= 0) return typeOf(this.method.buffers[place.buffer], place.row);
    return text(this.graph.values.type[place.row]);
  }

  valuePlace(value) {
    const place = this.places.get(value);
    if (!place) return "";
    if (place.buffer < 0) return text(this.graph.values.place[place.row]);
    const buffer = this.method.buffers[place.buffer];
    return `${bufferName(buffer)} at ${grouped(buffer.tensors.offset[place.row])}`;
  }

  isTensor(value) {
    const place = this.places.get(value);
    return Boolean(place) && (place.buffer >= 0 || this.graph.values.place[place.row] >= 0);
  }

  /** Bytes of a tensor; 0 for what is not one. */
  bytes(value) {
    const place = this.places.get(value);
    if (!place) return 0;
    if (place.buffer >= 0) return this.method.buffers[place.buffer].tensors.size[place.row];
    return Math.max(this.graph.values.size[place.row], 0);
  }

  /** Bytes in use in all buffers while an instruction runs. */
  inUse(position) {
    return this.method.buffers.reduce((sum, buffer) => sum + liveAt(buffer, position + 1), 0);
  }

  /** The bank, or else the buffer, of the first output; empty without one in planned memory. */
  bank(position) {
    const value = this.writes(position).find((one) => this.planned(one));
    if (value === undefined) return "";
    const { info } = this.method.buffers[this.planned(value).buffer];
    return info.bank === null ? `buffer ${info.index} on ${info.device}` : info.bank;
  }

  /** True for a node with an instruction at the peak of a buffer. */
  atPeak({ first, last }) {
    return !this.isEnd(first) && this.peaks.some((position) => first <= position && position <= last);
  }

  /** True if a node says that a size is the largest. */
  hasBounds() {
    return Array.from({ length: this.nodes }, (_, node) => this.subtitle(node)).some((type) => type.includes(BOUND));
  }

  module(position) {
    return text(this.graph.module[position]);
  }

  endKind(node) {
    return text(this.graph.ends.kind[node - this.count]);
  }

  title(node) {
    if (!this.isEnd(node)) return operatorOf(this.method, node);
    return `${this.endKind(node)} ${text(this.graph.ends.name[node - this.count])}`;
  }

  /** Type and shape of what comes out of a node, or of the one value of an end. */
  subtitle(node) {
    if (this.isEnd(node)) return this.valueType(this.graph.ends.value[node - this.count]);
    const [first, ...more] = this.writes(node);
    if (first === undefined) return "";
    return more.length ? `${this.valueType(first)} and ${more.length} more` : this.valueType(first);
  }

  /** Nodes with a text in the operator, the source line, the module, or a tensor; in the order of the file. */
  find(wanted) {
    this.texts ??= Array.from({ length: this.nodes }, (_, node) => this.searched(node));
    const found = [];
    for (let node = 0; node < this.nodes; node++) if (this.texts[node].includes(wanted)) found.push(node);
    return found;
  }

  searched(node) {
    const values = this.isEnd(node)
      ? [this.graph.ends.value[node - this.count]]
      : [...this.reads(node), ...this.writes(node)];
    const tensors = values.filter((value) => this.isTensor(value));
    const words = tensors.flatMap((value) => [this.valueName(value), this.valueType(value)]);
    const own = this.isEnd(node) ? [] : [`#${node}`, sourceOf(this.method, node), this.module(node)];
    return [this.title(node), ...own, ...words].join("\n").toLowerCase();
  }

  /** Path of the module of each instruction, in parts; an instruction without one belongs to the one before. */
  moduleParts() {
    let last = [];
    return this.graph.module.map((number) => {
      if (number >= 0) last = text(number).split(".");
      return last;
    });
  }
}

/** Instructions that are shown as one node. `depth` parts of the path of their module are the same. */
function makeGroup(data, start, end, depth) {
  const parts = data.parts[start].slice(0, depth);
  const range = `instructions ${grouped(start)} to ${grouped(end - 1)}`;
  return { start, end, depth, key: `${start}-${end}-${depth}`, name: parts.join(".") || range, range };
}

/** What a group consists of: smaller groups, and positions of instructions. */
function partsOf(data, group) {
  let depth = group.depth;
  for (;;) {
    const runs = runsAt(data, group, depth);
    if (runs.length > 1 || runs.length === 0) return runs.length > MOST_PARTS ? chunksOf(data, group) : runs;
    if (typeof runs[0] === "number") return runs;
    depth += 1; // All of them are in the same module: look deeper.
  }
}

/** Runs of successive instructions with the same part of the path at a depth. */
function runsAt(data, { start, end }, depth) {
  const found = [];
  let plain = true;
  for (let at = start; at < end; ) {
    const part = data.parts[at][depth];
    let next = at + 1;
    if (part !== undefined) while (next < end && samePath(data, at, next, depth)) next += 1;
    if (next - at > 1) plain = false;
    found.push(next - at > 1 ? makeGroup(data, at, next, depth + 1) : at);
    at = next;
  }
  return plain && end - start > CHUNK ? chunksOf(data, { start, end, depth }) : found;
}

function samePath(data, one, other, depth) {
  const [a, b] = [data.parts[one], data.parts[other]];
  return a === b || (b[depth] === a[depth] && a.slice(0, depth).every((part, at) => part === b[at]));
}

/** Pieces of the same length, where the modules say nothing, or too much for one view. */
function chunksOf(data, { start, end, depth }) {
  const found = [];
  const length = CHUNK ** Math.max(Math.ceil(Math.log(end - start) / Math.log(CHUNK)) - 1, 1);
  for (let at = start; at < end; at += length) {
    const group = makeGroup(data, at, Math.min(at + length, end), depth);
    found.push(group.end - group.start > 1 ? { ...group, name: group.range } : at);
  }
  return found;
}

/** Which groups are open, and so what is shown: positions of instructions, and groups. */
class GraphFolds {
  constructor(data) {
    this.data = data;
    this.root = makeGroup(data, 0, data.count, 0);
    this.open = new Set();
    this.all = data.count <= MOST_NODES;
  }

  shown() {
    if (this.all) return Array.from({ length: this.data.count }, (_, position) => position);
    const found = [];
    const add = (part) => {
      if (typeof part === "object" && this.open.has(part.key)) partsOf(this.data, part).forEach(add);
      else found.push(part);
    };
    partsOf(this.data, this.root).forEach(add);
    return found;
  }

  /** Open the groups that hide an instruction. */
  reveal(position) {
    if (this.all || this.data.isEnd(position)) return;
    let parts = partsOf(this.data, this.root);
    for (;;) {
      const inside = parts.find(
        (part) => typeof part === "object" && part.start <= position && position < part.end,
      );
      if (!inside) return;
      this.open.add(inside.key);
      parts = partsOf(this.data, inside);
    }
  }

  /** The smallest open group that holds a node, or undefined. */
  around(position) {
    let found;
    let parts = partsOf(this.data, this.root);
    for (;;) {
      const inside = parts.find((part) => typeof part === "object" && part.start <= position && position < part.end);
      if (!inside || !this.open.has(inside.key)) return found;
      found = inside;
      parts = partsOf(this.data, inside);
    }
  }
}
