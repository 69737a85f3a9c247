"use strict";
// The memory map: what the pointer and the keyboard do in it.

let mapsMade = 0;

class MemoryMap {
  constructor(method, buffer) {
    this.method = method;
    this.buffer = buffer;
    this.help = `map-help-${mapsMade++}`;
    this.unit = axisUnit(mapExtent(buffer)).bytes;
    this.zoom = new Zoom([method.instants, mapExtent(buffer)]);
    this.order = rowsInOrder(buffer);
    this.placeInOrder = new Map(this.order.map((row, place) => [row, place]));
    this.chart = null;
    this.selected = -1;
    this.pinned = false;
    this.build();
  }

  build() {
    this.canvas = element("div", { class: "chart" });
    this.marker = element("div", { class: "marker" });
    this.tip = element("div", { class: "tip", role: "status", "aria-live": "polite" });
    const attributes = {
      class: "chart-frame",
      tabindex: "0",
      role: "application",
      "aria-label": mapSummary(this.method, this.buffer),
      "aria-describedby": this.help,
      onkeydown: (event) => this.onKey(event),
      onblur: () => this.select(-1),
    };
    this.frame = element("div", attributes, this.canvas, this.marker, this.tip);
    this.view = element("div", {}, this.buttons(), mapLegend(comparedBuffers(this.buffer)), this.frame, mapHelp(this.help));
    this.resized = new ResizeObserver(() => this.onResize());
    this.resized.observe(this.canvas);
  }

  buttons() {
    const button = (label, name, onclick) =>
      element("button", { type: "button", "aria-label": name, title: name, onclick }, label);
    const toPeak = () => {
      this.frame.focus();
      this.toPeak();
    };
    return element(
      "div",
      { class: "controls" },
      button("+", "Zoom in", () => this.zoomBy(1 / ZOOM_STEP)),
      button("−", "Zoom out", () => this.zoomBy(ZOOM_STEP)),
      button("All", "Show all", () => this.zoom.whole()),
      button("Peak", "Largest tensor at the peak", toPeak),
    );
  }

  /** Draw anew, in the colours of now; what is in view stays in view. */
  redraw() {
    const before = this.chart?.getOption().dataZoom;
    this.chart?.dispose();
    this.chart = this.zoom.chart = echarts.init(this.canvas);
    this.chart.setOption(mapOption(this.method, this.buffer, this.canvas.clientWidth < 600));
    before?.forEach(({ start, end }, dataZoomIndex) =>
      this.chart.dispatchAction({ type: "dataZoom", dataZoomIndex, start, end }),
    );
    this.chart.on("datazoom", () => this.mark());
    this.listen(this.chart.getZr());
    this.mark();
  }

  dispose() {
    this.resized.disconnect();
    this.chart?.dispose();
  }

  /** What the pointer is over is shown; a click holds it, another one lets it go. */
  listen(surface) {
    surface.on("mousemove", (event) => {
      if (!this.pinned) this.point(event.offsetX, event.offsetY);
    });
    surface.on("globalout", () => {
      if (!this.pinned) this.select(-1);
    });
    surface.on("click", (event) => {
      this.point(event.offsetX, event.offsetY);
      this.pinned = this.selected >= 0;
    });
  }

  onResize() {
    if (!this.chart) return;
    this.chart.resize();
    this.mark();
  }

  onKey(event) {
    const actions = {
      ArrowRight: () => this.walk(1),
      ArrowLeft: () => this.walk(-1),
      ArrowUp: () => this.climb(1),
      ArrowDown: () => this.climb(-1),
      Home: () => this.go(this.order[0]),
      End: () => this.go(this.order.at(-1)),
      p: () => this.toPeak(),
      "+": () => this.zoomBy(1 / ZOOM_STEP),
      "=": () => this.zoomBy(1 / ZOOM_STEP),
      "-": () => this.zoomBy(ZOOM_STEP),
      0: () => this.zoom.whole(),
      Escape: () => this.select(-1),
    };
    if (!Object.hasOwn(actions, event.key) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[event.key]();
  }

  /** Show what is at a point of the drawing. */
  point(x, y) {
    const at = (gridIndex) =>
      this.chart.containPixel({ gridIndex }, [x, y]) && this.chart.convertFromPixel({ gridIndex }, [x, y]);
    const inMap = at(0);
    const inCurve = at(1);
    const [position, address] = inMap || inCurve || [];
    const instant = Math.floor(position) + 1;
    this.select(inMap ? tensorAt(this.buffer, instant, Math.floor(address * this.unit)) : -1, [x, y]);
    if (this.selected < 0 && (inMap || inCurve)) this.tell(instantFacts(this.method, this.buffer, instant), [x, y]);
  }

  /** Say what a tensor is, and frame it; -1 is none. */
  select(row, at) {
    if (row < 0) {
      this.pinned = false;
      this.tip.replaceChildren();
    } else if (row !== this.selected) {
      this.tell(tensorFacts(this.method, this.buffer, row), at);
    } else if (at) this.place(at);
    this.selected = row;
    this.mark(at);
  }

  /** Go to a tensor from elsewhere in the page. */
  present(row) {
    this.frame.focus();
    this.go(row);
    this.frame.scrollIntoView({ block: "center" });
  }

  go(row) {
    if (row === undefined || row < 0) return;
    this.pinned = true;
    this.zoom.reveal(this.extent(row));
    this.select(row);
  }

  walk(by) {
    const from = this.placeInOrder.get(this.selected);
    const last = this.order.length - 1;
    const beginning = by > 0 ? 0 : last;
    this.go(this.order[from === undefined ? beginning : Math.min(Math.max(from + by, 0), last)]);
  }

  climb(direction) {
    if (this.selected < 0) this.walk(1);
    else this.go(neighbour(this.buffer, this.selected, direction));
  }

  toPeak() {
    if (this.buffer.peak) this.go(rowOfValue(this.buffer, this.buffer.peak.tensors[0].value));
  }

  zoomBy(factor) {
    const middle = ([from, to]) => (from + to) / 2;
    this.zoom.by(factor, this.selected < 0 ? null : this.extent(this.selected).map(middle));
  }

  /** From when to when, and from where to where. */
  extent(row) {
    const { start, end, offset, size: sizes } = this.buffer.tensors;
    return [
      [start[row], end[row]],
      [offset[row], offset[row] + sizes[row]],
    ];
  }

  tell(pairs, at) {
    this.tip.replaceChildren(facts(pairs));
    if (at) this.place(at);
  }

  /** Put the text beside a point, inside the frame. */
  place([x, y]) {
    const [width, height] = [this.frame.clientWidth, this.frame.clientHeight];
    const leftOf = x - 16 - this.tip.offsetWidth;
    const fits = x + 16 + this.tip.offsetWidth <= width;
    this.tip.style.left = `${fits ? x + 16 : Math.max(leftOf, 0)}px`;
    this.tip.style.top = `${Math.max(Math.min(y + 16, height - this.tip.offsetHeight), 0)}px`;
  }

  /** Frame the tensor that is selected, as much of it as is in view. */
  mark(at) {
    const box = this.selected < 0 || !this.chart ? null : this.selectedBox();
    this.marker.style.display = box ? "block" : "none";
    if (!box) return;
    const { left, top, right, bottom } = box;
    this.marker.style.left = `${left - 2}px`;
    this.marker.style.top = `${top - 2}px`;
    this.marker.style.width = `${right - left + 4}px`;
    this.marker.style.height = `${bottom - top + 4}px`;
    if (!at) this.place([Math.min(right, left + 60), top]);
  }

  selectedBox() {
    const inView = this.extent(this.selected).map(([from, to], axis) => {
      const [low, high] = this.zoom.shown(axis);
      return [Math.max(from, low), Math.min(to, high)];
    });
    if (inView.some(([from, to]) => from > to)) return null;
    const [[start, end], [low, high]] = inView;
    const pixel = (instant, address) => this.chart.convertToPixel({ gridIndex: 0 }, [instant - 1, address / this.unit]);
    const [left, bottom] = pixel(start, low);
    const [right, top] = pixel(end, high);
    return { left, top, right, bottom };
  }
}
