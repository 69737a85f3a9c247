"use strict";
// Which part of a graph is in view, and how large it is drawn.

const GRAPH_ZOOM = 1.25;
const LEAST_SCALE = 0.02;
const LEAST_FIT = 0.04;
const FIRST_SCALE = 0.8;
const LEAST_FIRST_SCALE = 0.65;
const MOST_SCALE = 2.5;

/** Needs `surface`, the element of the canvas; `layout` and its `extent`; and `paint()`, which draws. */
class GraphViewport {
  constructor() {
    this.view = { x: 0, y: 0, scale: 1 };
  }

  size() {
    return [this.surface.clientWidth, this.surface.clientHeight];
  }

  /** Show all, or as much as is not too small to be seen. */
  fit() {
    const [width, height] = this.size();
    const { left, right, bottom } = this.extent;
    this.centre(Math.max(Math.min(width / (right - left), height / bottom, 1), LEAST_FIT));
  }

  /** Show all if it can be read, or else the beginning, in its whole width if that can be read. */
  begin() {
    const [width, height] = this.size();
    const { left, right, bottom } = this.extent;
    const across = width / (right - left);
    const whole = Math.min(across, height / bottom);
    const scale = Math.min(whole >= FIRST_SCALE ? whole : Math.max(across, LEAST_FIRST_SCALE), 1);
    this.centre(scale, this.layout.rows.slice(0, Math.max(Math.floor(height / scale / ROW_HEIGHT), 1)).flat());
  }

  /** Put some nodes, or the whole graph, into the middle. The middle of the nodes is their median, so a chain is in it. */
  centre(scale, nodes = null) {
    const [width, height] = this.size();
    const { left, right, bottom } = this.extent;
    const middle = nodes?.length ? medianOf(nodes.map((node) => node.x)) : (left + right) / 2;
    const fits = (right - left) * scale <= width;
    this.view.scale = scale;
    this.view.x = width / 2 - (fits ? (left + right) / 2 : middle) * scale;
    this.view.y = Math.max((height - bottom * scale) / 2, UNIT);
    this.paint();
  }

  /** Zoom around a point of the canvas, or around its middle. */
  zoomBy(factor, at) {
    const [width, height] = this.size();
    const [x, y] = at ?? [width / 2, height / 2];
    const scale = Math.min(Math.max(this.view.scale * factor, LEAST_SCALE), MOST_SCALE);
    const ratio = scale / this.view.scale;
    this.view = { scale, x: x - (x - this.view.x) * ratio, y: y - (y - this.view.y) * ratio };
    this.keepInView();
  }

  moveBy(right, down) {
    this.view.x -= right;
    this.view.y -= down;
    this.keepInView();
  }

  /** Keep some of the graph on the canvas, and draw it. */
  keepInView() {
    const [width, height] = this.size();
    const { left, right, bottom } = this.extent;
    const { scale } = this.view;
    const within = (at, low, high) => Math.min(Math.max(at, Math.min(low, high)), Math.max(low, high));
    const margin = 60;
    this.view.x = within(this.view.x, margin - right * scale, width - margin - left * scale);
    this.view.y = within(this.view.y, margin - bottom * scale, height - margin);
    this.paint();
  }

  /** Move until a node is in view, at a scale at which it can be read. */
  reveal(index) {
    const [width, height] = this.size();
    if (this.view.scale < READABLE) this.view.scale = Math.min(0.8, MOST_SCALE);
    const node = this.layout.nodes[index];
    const [x, y, wide, high] = boxOf(node, this.view);
    const near = UNIT * 2;
    if (x < near || y < near || x + wide > width - near || y + high > height - near) {
      this.view.x += width / 2 - (x + wide / 2);
      this.view.y += height / 2 - (y + high / 2);
    }
    this.paint();
  }
}

function medianOf(numbers) {
  return [...numbers].sort((a, b) => a - b)[Math.floor(numbers.length / 2)];
}
