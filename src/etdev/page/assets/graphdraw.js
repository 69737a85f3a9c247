"use strict";
// How a graph is drawn on its canvas: only what is in view, and without texts where they would be too small.

/** Below this scale, nodes are areas without a text. */
const READABLE = 0.5;
/** Width of the mark of an instruction at the peak. */
const PEAK_ROOM = 38;

const EdgeLines = echarts.graphic.extendShape({
  type: "edges",
  shape: { curves: [] },
  buildPath(context, { curves }) {
    for (const curve of curves) {
      context.moveTo(curve[0], curve[1]);
      for (let at = 2; at < curve.length; at += 6)
        context.bezierCurveTo(curve[at], curve[at + 1], curve[at + 2], curve[at + 3], curve[at + 4], curve[at + 5]);
    }
  },
});

const NodeAreas = echarts.graphic.extendShape({
  type: "areas",
  shape: { boxes: [] },
  buildPath(context, { boxes }) {
    for (const [x, y, width, height] of boxes) context.rect(x, y, width, height);
  },
});

class GraphCanvas {
  constructor(canvas) {
    this.canvas = canvas;
    this.surface = null;
    this.group = null;
    this.hues = new Map();
  }

  /** Begin anew, in the colours of now. */
  renew() {
    this.surface?.dispose();
    this.surface = echarts.zrender.init(this.canvas);
    this.group = new echarts.graphic.Group();
    this.surface.add(this.group);
    this.hues.clear();
  }

  dispose() {
    this.surface?.dispose();
    this.surface = null;
  }

  hue(name) {
    if (!this.hues.has(name)) this.hues.set(name, colour(name));
    return this.hues.get(name);
  }

  /** Draw a layout. `view` says where (`x`, `y`) and how large (`scale`) it is; `marked` are nodes to be told apart. */
  draw({ data, layout, colouring, view, selected, marked }) {
    this.group.removeAll();
    const [width, height] = [this.surface.getWidth(), this.surface.getHeight()];
    const box = (node) => boxOf(node, view);
    const inView = (node) => {
      const [x, y, wide, high] = box(node);
      return x < width && x + wide > 0 && y < height && y + high > 0;
    };
    const first = Math.max(Math.floor(-view.y / view.scale / ROW_HEIGHT), 0);
    const last = Math.min(Math.ceil((height - view.y) / view.scale / ROW_HEIGHT), layout.rows.length - 1);
    const nodes = [];
    for (let row = first; row <= last; row++) nodes.push(...layout.rows[row].filter(inView));
    this.edges(layout, view, [first, last], selected);
    if (view.scale >= READABLE) for (const node of nodes) this.node(data, node, colouring, view, selected, marked);
    else this.areas(data, nodes, colouring, view, selected, marked);
  }

  edges(layout, view, [first, last], selected) {
    const kinds = { plain: [], control: [], near: [] };
    for (const edge of layout.edges) {
      const [from, to] = [layout.nodes[edge.from], layout.nodes[edge.to]];
      if (Math.max(from.row, to.row) < first || Math.min(from.row, to.row) > last) continue;
      const near = selected >= 0 && (edge.from === selected || edge.to === selected);
      kinds[near ? "near" : edge.control ? "control" : "plain"].push(curveOf(edge, from, to, view));
    }
    const wide = Math.max(Math.min(view.scale, 1), 0.6);
    this.lines(kinds.plain, { stroke: this.hue("edge"), lineWidth: 1.4 * wide }, 1);
    this.lines(kinds.control, { stroke: this.hue("state"), lineWidth: 1.4 * wide, lineDash: [5, 4] }, 1);
    this.lines(kinds.near, { stroke: this.hue("accent"), lineWidth: 2.4 * wide }, 2);
  }

  lines(curves, style, z) {
    if (curves.length) this.group.add(new EdgeLines({ shape: { curves }, style: { fill: null, ...style }, silent: true, z }));
  }

  /** Nodes as areas, one shape for each colour. */
  areas(data, nodes, colouring, view, selected, marked) {
    const byHue = new Map();
    for (const node of nodes) {
      const hue = graphHue(data, node, colouring);
      if (!byHue.has(hue)) byHue.set(hue, []);
      const [x, y, width, height] = boxOf(node, view);
      byHue.get(hue).push([x, y, Math.max(width, 1), Math.max(height, 1)]);
    }
    for (const [hue, boxes] of byHue)
      this.group.add(new NodeAreas({ shape: { boxes }, style: { fill: this.hue(hue) }, silent: true, z: 3 }));
    for (const node of nodes) {
      if (node.index !== selected && !marked.has(node.index)) continue;
      const [x, y, width, height] = boxOf(node, view);
      const frame = { x: x - 2, y: y - 2, width: Math.max(width, 3) + 4, height: Math.max(height, 3) + 4 };
      this.frame(frame, node.index === selected ? "text" : "hue-6");
    }
  }

  frame(shape, hue) {
    const style = { fill: null, stroke: this.hue(hue), lineWidth: 2 };
    this.group.add(new echarts.graphic.Rect({ shape, style, silent: true, z: 5 }));
  }

  /** A node with its texts, and its colour as a bar at the left. */
  node(data, node, colouring, view, selected, marked) {
    const [x, y, width, height] = boxOf(node, view);
    const end = data.isEnd(node.first);
    const radius = (end ? 14 : 5) * view.scale;
    const hue = this.hue(graphHue(data, node, colouring));
    const rect = (shape, style, z) => this.group.add(new echarts.graphic.Rect({ shape, style, silent: true, z }));
    const line = { stroke: end ? hue : this.hue("edge"), lineWidth: 1 };
    const stack = 4 * view.scale;
    if (node.group)
      rect({ x: x + stack, y: y + stack, width, height, r: radius }, { fill: this.hue("panel"), ...line }, 3);
    rect({ x, y, width, height, r: radius }, { fill: this.hue("panel"), ...line }, 3);
    if (!end) {
      const bar = { x, y, width: 9 * view.scale, height, r: [radius, 0, 0, radius] };
      rect(bar, { fill: hue }, 4);
    }
    const peak = data.atPeak(node);
    this.words(nodeTexts(data, node), [x, y, peak ? width - PEAK_ROOM * view.scale : width], view.scale, end);
    if (peak) this.peakMark(x + width, y, view.scale);
    const outside = { x: x - 3, y: y - 3, width: width + 6, height: height + 6, r: radius + 3 };
    if (marked.has(node.index)) this.frame(outside, "hue-6");
    if (node.index === selected) this.frame(outside, "text");
  }

  peakMark(right, y, scale) {
    const font = { fontSize: 12 * scale, fontWeight: 600, fontFamily: "system-ui, sans-serif" };
    const place = { x: right - 8 * scale, y: y + 15 * scale, align: "right", verticalAlign: "middle" };
    const style = { text: "peak", fill: this.hue("bad"), ...font, ...place };
    this.group.add(new echarts.graphic.Text({ style, silent: true, z: 4 }));
  }

  words([first, second], [x, y, width], scale, centred) {
    const left = centred ? x + width / 2 : x + 16 * scale;
    const room = width - (centred ? 16 : 24) * scale;
    const say = (words, at, points, hue) =>
      this.group.add(
        new echarts.graphic.Text({
          style: {
            text: words,
            x: left,
            y: y + at * scale,
            fill: this.hue(hue),
            fontSize: points * scale,
            fontFamily: "system-ui, sans-serif",
            align: centred ? "center" : "left",
            verticalAlign: "middle",
            width: room,
            overflow: "truncate",
            ellipsis: "…",
          },
          silent: true,
          z: 4,
        }),
      );
    say(first, second ? 15 : 23, 13, "text");
    if (second) say(second, 33, 11.5, "faint");
  }
}

/** The two lines of a node. The details and the search have the whole name of an operator. */
function nodeTexts(data, node) {
  const at = node.first;
  if (data.isEnd(at)) return [data.title(at), withoutBound(data.subtitle(at))];
  if (!node.group)
    return [`${grouped(at)} · ${data.title(at).replace(/^aten::/, "")}`, withoutBound(data.subtitle(at))];
  const { start, end, name } = node.group;
  return [`+ ${name}`, `${grouped(end - start)} instructions`];
}

const BOUND = " at most";

/** A type without the words that say that a size is the largest. */
function withoutBound(type) {
  return type.replace(BOUND, "");
}

/** Left, top, width and height on the canvas. */
function boxOf(node, { x, y, scale }) {
  return [
    x + (node.x - node.width / 2) * scale,
    y + node.row * ROW_HEIGHT * scale,
    node.width * scale,
    NODE_HEIGHT * scale,
  ];
}

/** From the lower side of a node to the upper side of another: a start, then curves of three points each. */
function curveOf(edge, from, to, { x, y, scale }) {
  const at = (wide, high) => [x + wide * scale, y + high * scale];
  const [startX, startY] = at(from.x, from.row * ROW_HEIGHT + NODE_HEIGHT);
  const [endX, endY] = at(to.x, to.row * ROW_HEIGHT);
  const bend = ((ROW_HEIGHT - NODE_HEIGHT) / 2) * scale;
  if (to.row <= from.row) {
    // Back, in a loop: around the right side.
    const aside = Math.max(startX, endX) + (from.width / 2 + 40) * scale;
    return [startX, startY, aside, startY + 2 * bend, aside, endY - 2 * bend, endX, endY];
  }
  if (edge.lane === null || to.row === from.row + 1)
    return [startX, startY, startX, startY + bend, endX, endY - bend, endX, endY];
  const [laneX, laneTop] = at(edge.lane, (from.row + 1) * ROW_HEIGHT);
  const laneBottom = y + ((to.row - 1) * ROW_HEIGHT + NODE_HEIGHT) * scale;
  return [
    ...[startX, startY, startX, startY + bend, laneX, laneTop - bend, laneX, laneTop],
    ...[laneX, laneTop, laneX, laneBottom, laneX, laneBottom],
    ...[laneX, laneBottom + bend, endX, endY - bend, endX, endY],
  ];
}
