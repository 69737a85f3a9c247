"use strict";
// The graph of a method: what the pointer, the keyboard and the search do in it.

const DRAGGED = 4;

class GraphView extends GraphViewport {
  /**
   * `links.tensor(place)` shows a tensor in the memory map; `links.instruction` is set to the way back.
   * `more(data)` gives a further way to colour the graph, which is then the first.
   */
  constructor(method, links, more = null) {
    super();
    this.method = method;
    this.links = links;
    this.data = new GraphData(method);
    this.folds = new GraphFolds(this.data);
    this.colourings = [...(more ? [more(this.data)] : []), ...graphColourings(this.data)];
    this.onselect = null;
    this.colouring = this.colourings[0];
    this.selected = -1;
    this.found = [];
    this.marked = new Set();
    this.waiting = 0;
    this.arrange();
    this.build();
    links.instruction = (position) => this.present(position);
  }

  build() {
    this.help = `graph-help-${graphs++}`;
    this.surface = element("div", { class: "graph-canvas" });
    this.canvas = new GraphCanvas(this.surface);
    this.details = element("div", { class: "graph-details", "aria-live": "polite" });
    this.legend = element("div");
    this.recolour();
    this.frame = element(
      "div",
      {
        class: "graph-frame",
        tabindex: "0",
        role: "application",
        "aria-label": this.summary(),
        "aria-describedby": this.help,
        onkeydown: (event) => this.onKey(event),
      },
      this.surface,
    );
    this.listen();
    this.element = element(
      "div",
      {},
      this.controls(),
      this.legend,
      this.data.hasBounds() ? element("p", { class: "faint" }, "Some sizes are dynamic: the graph has the largest.") : null,
      element("div", { class: "graph" }, this.frame, this.details),
      graphHelp(this.help),
    );
    this.resized = new ResizeObserver(() => this.onResize());
    this.resized.observe(this.surface);
    this.tell();
  }

  summary() {
    const { edges } = this.data.graph;
    return `Graph of method ${this.method.name}: ${grouped(this.data.count)} instructions, ${grouped(edges.origin.length)} edges`;
  }

  controls() {
    const button = (label, name, onclick) =>
      element("button", { type: "button", "aria-label": name, title: name, onclick }, label);
    this.field = element("input", {
      type: "search",
      placeholder: "operator or tensor",
      oninput: () => this.search(this.field.value),
      onkeydown: (event) => {
        if (event.key === "Enter") this.nextFound(event.shiftKey ? -1 : 1);
      },
    });
    this.count = element("span", { role: "status", class: "faint" });
    const colours = choice(
      "Colours",
      this.colourings.map(({ name }) => name),
      (index) => this.colourBy(index),
    );
    const folding =
      this.data.count > MOST_NODES
        ? [
            element("button", { type: "button", onclick: () => this.openAll(true) }, "Expand all"),
            element("button", { type: "button", onclick: () => this.openAll(false) }, "Collapse all"),
          ]
        : [];
    return element(
      "div",
      { class: "controls" },
      element(
        "div",
        { class: "together" },
        element("label", {}, "Find", this.field),
        button("↑", "Previous match", () => this.nextFound(-1)),
        button("↓", "Next match", () => this.nextFound(1)),
        this.count,
      ),
      colours,
      element(
        "div",
        { class: "together" },
        button("+", "Zoom in", () => this.zoomBy(GRAPH_ZOOM)),
        button("−", "Zoom out", () => this.zoomBy(1 / GRAPH_ZOOM)),
        button("All", "Show all", () => this.fit()),
      ),
      ...folding,
    );
  }

  /** Draw in the colours of now; what is in view stays in view. */
  redraw() {
    const first = this.canvas.surface === null;
    this.canvas.renew();
    if (first) this.begin();
    else this.paint();
  }

  dispose() {
    cancelAnimationFrame(this.waiting);
    this.resized.disconnect();
    this.canvas.dispose();
  }

  /** Find places for what is to be shown. */
  arrange() {
    this.layout = graphLayout(this.data, this.folds.shown());
    const xs = this.layout.nodes.map((node) => node.x);
    const lanes = this.layout.edges.map((edge) => edge.lane).filter((lane) => lane !== null);
    const least = (numbers) => numbers.reduce((a, b) => Math.min(a, b), 0);
    const most = (numbers) => numbers.reduce((a, b) => Math.max(a, b), 0);
    const half = (this.layout.nodes[0]?.width ?? 0) / 2;
    this.extent = {
      left: Math.min(least(xs) - half, least(lanes)) - UNIT,
      right: Math.max(most(xs) + half, most(lanes)) + UNIT,
      bottom: this.layout.rows.length * ROW_HEIGHT,
    };
    this.mark();
    if (this.legend) this.recolour();
  }

  recolour() {
    this.colouring.show?.(this.layout.nodes.filter((node) => !this.data.isEnd(node.first)));
    this.legend.replaceChildren(graphLegend(this.colouring));
  }

  /** Draw in the next frame. */
  paint() {
    cancelAnimationFrame(this.waiting);
    this.waiting = requestAnimationFrame(() => this.paintNow());
  }

  paintNow() {
    if (!this.canvas.surface) return;
    this.canvas.draw({ ...this, selected: this.shownNode(this.selected), marked: this.marked });
  }

  /** The index of what shows a node; -1 for none. */
  shownNode(node) {
    return node < 0 ? -1 : this.layout.owner[node];
  }

  onResize() {
    if (!this.canvas.surface) return;
    this.canvas.surface.resize();
    this.paint();
  }

  // Pointer.

  listen() {
    let from = null;
    let moved = false;
    const touch = (event) => event.pointerType === "touch";
    this.surface.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      from = [event.clientX, event.clientY];
      moved = false;
      if (!touch(event)) this.surface.setPointerCapture(event.pointerId);
    });
    this.surface.addEventListener("pointermove", (event) => {
      if (!from || touch(event)) return;
      const [right, down] = [event.clientX - from[0], event.clientY - from[1]];
      if (!moved && Math.hypot(right, down) < DRAGGED) return;
      moved = true;
      from = [event.clientX, event.clientY];
      this.moveBy(-right, -down);
    });
    this.surface.addEventListener("pointerup", (event) => {
      if (from && !moved) this.click(event.offsetX, event.offsetY);
      from = null;
    });
    this.surface.addEventListener("pointercancel", () => (from = null));
    this.surface.addEventListener("dblclick", () => this.toggle());
    this.surface.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
  }

  /** Ctrl and the wheel zoom; Shift and the wheel move; the wheel alone scrolls the page. */
  onWheel(event) {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    const way = Math.sign(event.deltaY || event.deltaX);
    if (event.ctrlKey) this.zoomBy(way > 0 ? 1 / GRAPH_ZOOM : GRAPH_ZOOM, [event.offsetX, event.offsetY]);
    else this.moveBy(0, way * 120);
  }

  click(x, y) {
    const row = Math.floor((y - this.view.y) / this.view.scale / ROW_HEIGHT);
    const inside = (node) => {
      const [left, top, wide, high] = boxOf(node, this.view);
      return left <= x && x <= left + wide && top <= y && y <= top + Math.max(high, 3);
    };
    const node = (this.layout.rows[row] ?? []).find(inside);
    this.select(node ? node.first : -1, node?.group);
  }

  // Selection.

  /** Select an instruction, an end, or a group that shows several; -1 is none. */
  select(node, group = null) {
    this.selected = node;
    this.tellFound();
    this.group = group;
    this.tell();
    this.paint();
    this.onselect?.(node);
  }

  tell() {
    this.details.replaceChildren(...graphDetails(this));
  }

  /** Go to a node that is shown, or to what shows it. */
  go(node) {
    const shown = this.layout.nodes[this.layout.owner[node]];
    this.reveal(shown.index);
    this.select(shown.group ? shown.first : node, shown.group);
  }

  /** Go to an instruction, and open the groups that hide it. */
  open(node) {
    const before = this.folds.open.size;
    this.folds.reveal(node);
    if (this.folds.open.size !== before) this.arrange();
    this.go(node);
  }

  /** Go to an instruction from elsewhere in the page. */
  present(node) {
    this.frame.focus({ preventScroll: true });
    this.open(node);
    this.frame.scrollIntoView({ block: "center" });
  }

  /** Open or close the group at the selected node. */
  toggle() {
    if (this.selected < 0 || this.folds.all || this.data.isEnd(this.selected)) return;
    if (this.group) this.folds.open.add(this.group.key);
    else {
      const around = this.folds.around(this.selected);
      if (!around) return;
      this.folds.open.delete(around.key);
      this.selected = around.start;
    }
    this.arrange();
    this.go(this.selected);
  }

  openAll(all) {
    this.folds.all = all;
    if (!all) this.folds.open.clear();
    this.arrange();
    if (this.selected >= 0) this.go(this.selected);
    else this.begin();
  }

  /** To the next node in the order of the file, or to one in the same row. */
  walk(by) {
    const { nodes } = this.layout;
    const at = this.shownNode(this.selected);
    const start = by > 0 ? 0 : nodes.length - 1;
    const next = at < 0 ? start : Math.min(Math.max(at + by, 0), nodes.length - 1);
    this.go(nodes[next].first);
  }

  aside(by) {
    const at = this.shownNode(this.selected);
    if (at < 0) return this.walk(1);
    const node = this.layout.nodes[at];
    const row = [...this.layout.rows[node.row]].sort((a, b) => a.x - b.x);
    const next = row[row.indexOf(node) + by];
    if (next) this.go(next.first);
  }

  onKey(event) {
    if (event.target !== this.frame || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = 60;
    const moves = {
      ArrowRight: () => this.moveBy(step, 0),
      ArrowLeft: () => this.moveBy(-step, 0),
      ArrowDown: () => this.moveBy(0, step),
      ArrowUp: () => this.moveBy(0, -step),
    };
    const actions = {
      ArrowRight: () => this.aside(1),
      ArrowLeft: () => this.aside(-1),
      ArrowDown: () => this.walk(1),
      ArrowUp: () => this.walk(-1),
      Home: () => this.go(this.layout.nodes[0].first),
      End: () => this.go(Math.max(this.data.count - 1, 0)),
      Enter: () => this.toggle(),
      "/": () => this.field.focus(),
      "+": () => this.zoomBy(GRAPH_ZOOM),
      "=": () => this.zoomBy(GRAPH_ZOOM),
      "-": () => this.zoomBy(1 / GRAPH_ZOOM),
      0: () => this.fit(),
      Escape: () => this.select(-1),
    };
    const known = event.shiftKey && Object.hasOwn(moves, event.key) ? moves : actions;
    if (!Object.hasOwn(known, event.key) || !this.layout.nodes.length) return;
    event.preventDefault();
    known[event.key]();
  }

  // Search and colours.

  search(wanted) {
    this.found = wanted.trim() ? this.data.find(wanted.trim().toLowerCase()) : [];
    this.isSearching = Boolean(wanted.trim());
    this.tellFound();
    this.mark();
    this.paint();
  }

  /** Say how many matches there are, and which of them is selected. */
  tellFound() {
    const at = this.found.indexOf(this.selected);
    const count = grouped(this.found.length);
    this.count.textContent = !this.isSearching ? "" : at < 0 ? `${count} found` : `${grouped(at + 1)} of ${count}`;
  }

  /** Mark what shows a match. */
  mark() {
    this.marked = new Set(this.found.map((node) => this.layout.owner[node]));
  }

  nextFound(by) {
    if (!this.found.length) return;
    const after = this.found.findIndex((node) => (by > 0 ? node > this.selected : node >= this.selected));
    const from = this.selected < 0 || after < 0 ? (by > 0 ? 0 : this.found.length) : after;
    const at = by > 0 ? (after < 0 ? 0 : from) : from - 1;
    const node = this.found.at(at % this.found.length);
    this.open(node);
  }

  colourBy(index) {
    this.colouring = this.colourings[index];
    this.recolour();
    this.paint();
  }
}

let graphs = 0;

function graphHelp(id) {
  const touch = "Tap a node for details. The buttons zoom; a match of the search and a link move to a node.";
  return controlsHelp(
    id,
    touch,
    "Up and down: instructions in the order of the file. Left and right: the same row. Enter: expand or collapse. " +
      "Shift and arrows: move. + − 0: zoom. /: find.",
    "Drag to move, Ctrl and wheel to zoom, Shift and wheel to move, click for details, double click to expand.",
  );
}
