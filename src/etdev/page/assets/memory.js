"use strict";
// The memory map: what the pointer and the keyboard do in it, and the tables that say the same in words.

const ZOOM_STEP = 1.6;

/** The map of a buffer with its tables. `redraw` and `dispose` are for the page. */
function memoryView(method, buffer) {
  const order = rowsInOrder(buffer);
  const unit = axisUnit(buffer.size).bytes;
  const limits = [method.instants, Math.max(buffer.size, 1)];
  const placeInOrder = new Map(order.map((row, place) => [row, place]));
  const canvas = element("div", { class: "chart" });
  const marker = element("div", { class: "marker" });
  const tip = element("div", { class: "tip", role: "status", "aria-live": "polite" });
  const frame = element("div", { class: "chart-frame", tabindex: "0", role: "application", "aria-label": mapSummary(method, buffer), "aria-describedby": "map-help", onkeydown: onKey, onblur: () => select(-1) }, canvas, marker);
  let chart = null;
  let selected = -1;
  let pinned = false;

  const view = element("div", {}, zoomButtons(), legend(buffer), frame, tip, mapHelp());
  frame.append(tip);
  const resized = new ResizeObserver(() => { if (chart) { chart.resize(); mark(); } });
  resized.observe(canvas);
  return { view, redraw, select: (row) => { frame.focus(); pinned = true; reveal(row); select(row); frame.scrollIntoView({ block: "center" }); }, dispose: () => { resized.disconnect(); chart?.dispose(); } };

  function redraw() {
    const before = chart?.getOption().dataZoom;
    chart?.dispose();
    chart = echarts.init(canvas);
    chart.setOption(mapOption(method, buffer, canvas.clientWidth < 600));
    before?.forEach(({ start, end }, dataZoomIndex) => chart.dispatchAction({ type: "dataZoom", dataZoomIndex, start, end }));
    chart.on("datazoom", mark);
    const surface = chart.getZr();
    surface.on("mousemove", (event) => { if (!pinned) point(event.offsetX, event.offsetY); });
    surface.on("globalout", () => { if (!pinned) select(-1); });
    surface.on("click", (event) => { pinned = false; point(event.offsetX, event.offsetY); pinned = selected >= 0; });
    mark();
  }

  function point(x, y) {
    if (chart.containPixel({ gridIndex: 0 }, [x, y])) {
      const [position, address] = chart.convertFromPixel({ gridIndex: 0 }, [x, y]);
      select(tensorAt(buffer, Math.floor(position) + 1, Math.floor(address * unit)), [x, y]);
    } else if (chart.containPixel({ gridIndex: 1 }, [x, y])) {
      const instant = Math.floor(chart.convertFromPixel({ gridIndex: 1 }, [x, y])[0]) + 1;
      select(-1);
      tell([["when", moment(method, instant)], ["op", operatorOf(method, instant < method.instants - 1 ? instant - 1 : -1)], ["in use", exactSize(liveAt(buffer, instant))]], [x, y]);
    } else select(-1);
  }

  function select(row, at) {
    if (row !== selected || row < 0) {
      selected = row;
      if (row < 0) { pinned = false; tip.replaceChildren(); }
      else tell(tensorFacts(method, buffer, row), at);
    } else if (at) place(at);
    mark(at);
  }

  function tell(pairs, at) {
    tip.replaceChildren(facts(pairs.filter(([, found]) => found !== "")));
    if (at) place(at);
  }

  /** Beside a point, inside the frame. */
  function place([x, y]) {
    const [width, height] = [frame.clientWidth, frame.clientHeight];
    const right = x + 16 + tip.offsetWidth > width;
    tip.style.left = `${right ? Math.max(x - 16 - tip.offsetWidth, 0) : x + 16}px`;
    tip.style.top = `${Math.max(Math.min(y + 16, height - tip.offsetHeight), 0)}px`;
  }

  /** Frame the tensor that is selected, as much of it as is in view. */
  function mark(at) {
    const box = selected < 0 || !chart ? null : selectedBox();
    marker.style.display = box ? "block" : "none";
    if (!box) return;
    const [left, top, right, bottom] = box;
    Object.assign(marker.style, { left: `${left - 2}px`, top: `${top - 2}px`, width: `${right - left + 4}px`, height: `${bottom - top + 4}px` });
    if (!Array.isArray(at)) place([Math.min(right, left + 60), top]);
  }

  function selectedBox() {
    const { start, end, offset, size: sizes } = buffer.tensors;
    const grid = chart.getModel().getComponent("grid", 0).coordinateSystem.getRect();
    const pixel = (instant, address) => chart.convertToPixel({ gridIndex: 0 }, [instant - 1, address / unit]);
    const [left, bottom] = pixel(start[selected], offset[selected]);
    const [right, top] = pixel(end[selected], offset[selected] + sizes[selected]);
    const box = [Math.max(left, grid.x), Math.max(top, grid.y), Math.min(right, grid.x + grid.width), Math.min(bottom, grid.y + grid.height)];
    return box[0] <= box[2] && box[1] <= box[3] ? box : null;
  }

  function onKey(event) {
    const action = { ArrowRight: () => walk(1), ArrowLeft: () => walk(-1), ArrowUp: () => climb(1), ArrowDown: () => climb(-1), Home: () => go(order[0]), End: () => go(order.at(-1)), p: toPeak, "+": () => zoom(1 / ZOOM_STEP), "=": () => zoom(1 / ZOOM_STEP), "-": () => zoom(ZOOM_STEP), 0: whole, Escape: () => select(-1) }[event.key];
    if (!action || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    action();
  }

  function go(row) {
    if (row === undefined || row < 0) return;
    pinned = true;
    reveal(row);
    select(row);
  }

  function walk(by) {
    const from = placeInOrder.get(selected);
    go(order[from === undefined ? (by > 0 ? 0 : order.length - 1) : Math.min(Math.max(from + by, 0), order.length - 1)]);
  }

  function climb(direction) {
    if (selected < 0) walk(1);
    else go(neighbour(buffer, selected, direction));
  }

  function toPeak() {
    if (buffer.peak) go(rowOfValue(buffer, buffer.peak.tensors.value[0]));
  }

  /** The part of an axis that is in view: instants of the first, addresses of the second. */
  function shown(index) {
    const { start, end } = chart.getOption().dataZoom[index];
    return [(start / 100) * limits[index], (end / 100) * limits[index]];
  }

  function showPart(index, low, high) {
    const width = Math.min(high - low, limits[index]);
    const first = Math.min(Math.max(low, 0), limits[index] - width);
    const share = (value) => (100 * value) / limits[index];
    chart.dispatchAction({ type: "dataZoom", dataZoomIndex: index, start: share(first), end: share(first + width) });
  }

  /** Zoom around the tensor that is selected, or the middle. */
  function zoom(factor) {
    const { start, end, offset, size: sizes } = buffer.tensors;
    const middles = selected < 0 ? [] : [(start[selected] + end[selected]) / 2, offset[selected] + sizes[selected] / 2];
    for (const index of [0, 1]) {
      const [low, high] = shown(index);
      const centre = middles[index] ?? (low + high) / 2;
      const half = Math.max(((high - low) * factor) / 2, 1);
      showPart(index, centre - half, centre + half);
    }
  }

  function whole() {
    showPart(0, 0, limits[0]);
    showPart(1, 0, limits[1]);
  }

  /** Move the view to where a tensor is, if it is outside. */
  function reveal(row) {
    const { start, end, offset, size: sizes } = buffer.tensors;
    const ranges = [[0, start[row], end[row]], [1, offset[row], offset[row] + sizes[row]]];
    for (const [index, from, to] of ranges) {
      const [low, high] = shown(index);
      if (from < high && to > low) continue;
      const middle = (from + to) / 2;
      showPart(index, middle - (high - low) / 2, middle + (high - low) / 2);
    }
  }

  function zoomButtons() {
    const button = (label, name, onclick) => element("button", { type: "button", "aria-label": name, title: name, onclick }, label);
    return element("div", { class: "controls" }, button("+", "Zoom in", () => zoom(1 / ZOOM_STEP)), button("−", "Zoom out", () => zoom(ZOOM_STEP)), button("All", "Show all", whole), button("Peak", "Largest tensor at the peak", () => { frame.focus(); toPeak(); }));
  }
}

function mapSummary(method, buffer) {
  const peak = buffer.peak ? `; most in use: ${size(buffer.peak.size)} at ${moment(method, buffer.peak.instant)}` : "";
  return `Memory map of buffer ${buffer.index} on ${buffer.device}: ${grouped(buffer.tensors.value.length)} tensors in ${size(buffer.size)}, ${grouped(method.instants - 2)} instructions${peak}`;
}

function mapHelp() {
  return element("p", { class: "faint", id: "map-help" }, "Left and right: tensors by time. Up and down: what lies above and below. P: the peak. + − 0: zoom. With a pointer: drag to move, Ctrl and wheel to zoom time, Shift and wheel to zoom addresses, click to hold. The tables below say the same.");
}

function legend(buffer) {
  const there = MAP_KINDS.filter((kind) => buffer.tensors.kind.some((number) => text(number) === kind));
  const entry = (hue, name) => {
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = `var(--${hue})`;
    return element("li", {}, swatch, name);
  };
  const held = buffer.storages.offset.length ? [entry("storage", "held for an alias, or as a part")] : [];
  return element("ul", { class: "legend" }, ...there.map((kind) => entry(kind, KINDS[kind])), ...held);
}

/** Which tensors make the peak, the largest first. */
function peakTable(method, buffer, onselect) {
  const { instant, size: most, during, tensors } = buffer.peak;
  const bar = (row) => {
    const made = element("span", { class: "bar" });
    made.style.width = percent(tensors.size[row], tensors.size[0]).replace(" ", "");
    return made;
  };
  const when = during === moment(method, instant) ? `while ${during}` : `at ${moment(method, instant)} (${during})`;
  return dataTable({
    caption: `${exactSize(most)} are in use ${when}, by ${grouped(tensors.value.length)} tensors:`,
    rows: tensors.value.map((_, row) => row),
    columns: [
      { title: "tensor", ...tensorCell(buffer, (row) => rowOfValue(buffer, tensors.value[row]), onselect) },
      { title: "bytes", number: true, value: (row) => tensors.size[row], text: (row) => grouped(tensors.size[row]) },
      { title: "share", number: true, value: (row) => tensors.size[row], text: (row) => percent(tensors.size[row], most), cell: (row) => element("span", {}, percent(tensors.size[row], most), bar(row)) },
      { title: "type", text: (row) => typeOf(buffer, rowOfValue(buffer, tensors.value[row])) },
      { title: "written by", text: (row) => text(tensors.written_by[row]) },
      { title: "source", wide: true, text: (row) => sourceOf(method, tensors.instruction[row]) },
    ],
  });
}

/** Every tensor of the buffer. */
function tensorTable(method, buffer, onselect) {
  const { value, offset, size: sizes, start, end, writer, reason, kind } = buffer.tensors;
  const numbers = (title, column) => ({ title, number: true, value: (row) => column[row], text: (row) => grouped(column[row]) });
  return dataTable({
    caption: "Every tensor; a name shows it in the map",
    rows: value.map((_, row) => row),
    columns: [
      { title: "tensor", ...tensorCell(buffer, (row) => row, onselect) },
      numbers("bytes", sizes),
      numbers("offset", offset),
      { title: "from", number: true, value: (row) => start[row], text: (row) => instantLabel(method, start[row]) },
      { title: "to", number: true, value: (row) => end[row], text: (row) => (start[row] < end[row] ? instantLabel(method, end[row] - 1) : "–") },
      { title: "type", text: (row) => typeOf(buffer, row) },
      { title: "op", text: (row) => operatorOf(method, writer[row]) || text(kind[row]) },
      { title: "source", wide: true, text: (row) => sourceOf(method, writer[row]) },
      { title: "place", wide: true, text: (row) => text(reason[row]) },
    ],
  });
}

function typeOf(buffer, row) {
  return row < 0 ? "" : `${text(buffer.tensors.dtype[row])} ${text(buffer.tensors.shape[row])}`;
}

function tensorCell(buffer, rowOf, onselect) {
  const name = (row) => (rowOf(row) < 0 ? "" : tensorName(buffer, rowOf(row)));
  return {
    text: name,
    cell: (row) => element("button", { type: "button", class: "plain", onclick: () => onselect(rowOf(row)) }, name(row)),
  };
}
