"use strict";
// How the memory map and the bytes in use below it are drawn.

const MAP_KINDS = Object.keys(KINDS);
/** Smallest width of a tensor at the peak, in pixels: the line of the peak leaves both of its sides visible. */
const LEAST_AT_PEAK = 8;

/** ECharts' options for a buffer: two charts, one above the other, that share their time. */
function mapOption(method, buffer, narrow) {
  const text = colour("text");
  const faint = colour("faint");
  const line = colour("line");
  const left = scaled(narrow ? 58 : 76);
  const right = scaled(narrow ? 8 : 24);
  const fontSize = scaled(12);
  const unit = axisUnit(mapExtent(buffer));
  const limit = mapExtent(buffer) / unit.bytes;
  const time = {
    type: "value",
    min: -1,
    max: method.instants - 1,
    minInterval: 1,
    axisLine: { onZero: false, lineStyle: { color: line } },
  };
  const bytes = {
    type: "value",
    min: 0,
    max: limit,
    axisLine: { onZero: false },
    axisLabel: {
      color: faint,
      fontSize,
      showMaxLabel: false,
      formatter: (at) => `${Number(at.toPrecision(6))} ${unit.name}`,
    },
    splitLine: { lineStyle: { color: line, opacity: 0.5 } },
  };
  const named = { nameTextStyle: { color: faint, fontSize, align: "left" }, nameGap: scaled(8) };
  return {
    animation: false,
    textStyle: { color: text },
    grid: [
      { left, right, top: scaled(46), bottom: "42%" },
      { left, right, top: "64%", bottom: scaled(66) },
    ],
    xAxis: [
      { ...time, gridIndex: 0, axisLabel: { show: false }, axisTick: { show: false }, splitLine: { show: false } },
      {
        ...time,
        gridIndex: 1,
        name: "instruction",
        nameLocation: "middle",
        nameGap: scaled(22),
        nameTextStyle: { color: faint, fontSize },
        splitLine: { show: false },
        axisLabel: {
          color: faint,
          fontSize,
          hideOverlap: true,
          showMaxLabel: true,
          alignMaxLabel: "right",
          formatter: (at) => tickLabel(method, at),
        },
      },
    ],
    yAxis: [
      { ...bytes, ...named, gridIndex: 0, name: "address" },
      { ...bytes, ...named, gridIndex: 1, splitNumber: 3, name: "bytes in use" },
    ],
    dataZoom: zooms(faint, line, left, right),
    series: [
      storageSeries(buffer, unit),
      tensorSeries(buffer, unit),
      liveSeries(method, buffer, unit),
      peakSeries(method, buffer),
    ],
  };
}

function instantLabel(method, instant) {
  if (!Number.isInteger(instant)) return "";
  if (instant <= 0) return "in";
  if (instant < method.instants - 1) return grouped(instant - 1);
  return instant === method.instants - 1 ? "out" : "";
}

/** The label of a tick: the axis begins with "in" and ends with "out". */
function tickLabel(method, at) {
  if (at === method.instants - 1) return "out";
  return at === method.instants - 2 ? "" : instantLabel(method, at + 1);
}

/** Ctrl and the wheel zoom, dragging moves, the slider does both; on a touch screen dragging scrolls the page. */
function zooms(faint, line, left, right) {
  const touch = matchMedia("(pointer: coarse)").matches;
  const inside = {
    type: "inside",
    filterMode: "none",
    moveOnMouseWheel: false,
    moveOnMouseMove: !touch,
    preventDefaultMouseMove: !touch,
  };
  return [
    { ...inside, id: "time", xAxisIndex: [0, 1], zoomOnMouseWheel: "ctrl" },
    { ...inside, id: "address", yAxisIndex: [0], zoomOnMouseWheel: "shift" },
    {
      type: "slider",
      id: "slider",
      filterMode: "none",
      xAxisIndex: [0, 1],
      left,
      right,
      bottom: scaled(8),
      height: scaled(18),
      showDetail: false,
      showDataShadow: false,
      brushSelect: false,
      borderColor: line,
      handleStyle: { color: faint },
    },
  ];
}

function boxes(id, data, renderItem, z) {
  return {
    id,
    type: "custom",
    xAxisIndex: 0,
    yAxisIndex: 0,
    clip: true,
    silent: true,
    progressive: 0, // In pieces, frame by frame, it would lag behind the keys.
    z,
    data,
    renderItem,
    encode: { x: [0, 1], y: [2, 3] },
  };
}

/** On the axes: positions of instructions, the caller's turn at -1 and behind the last; addresses in the unit. */
function box(unit, start, end, low, size, row) {
  return [start - 1, end - 1, low / unit.bytes, (low + size) / unit.bytes, row];
}

function boxAt(api, leastWidth = 1) {
  const [left, bottom] = api.coord([api.value(0), api.value(2)]);
  const [right, top] = api.coord([api.value(1), api.value(3)]);
  return { x: left, y: top, width: Math.max(right - left, leastWidth), height: Math.max(bottom - top, 1) };
}

/** Tensors at the peak stay visible next to the line that marks it, even if they live for one of many instructions. */
function leastWidth({ peak, tensors: { start, end } }, row) {
  return peak && start[row] <= peak.instant && peak.instant < end[row] ? LEAST_AT_PEAK : 1;
}

function storageSeries(buffer, unit) {
  const fill = colour("storage");
  const { start, end, offset, size: sizes } = buffer.storages;
  const data = offset.map((low, row) => box(unit, start[row], end[row], low, sizes[row], row));
  return boxes("storages", data, (_, api) => ({ type: "rect", shape: boxAt(api), style: { fill } }), 1);
}

function tensorSeries(buffer, unit) {
  const fills = MAP_KINDS.map(colour);
  const page = colour("page");
  const { start, end, offset, size: sizes, kind } = buffer.tensors;
  const data = rowsInOrder(buffer).map((row) => box(unit, start[row], end[row], offset[row], sizes[row], row));
  const least = { width: scaled(70), height: scaled(14) };
  const draw = (_, api) => {
    const row = api.value(4);
    const shape = boxAt(api, leastWidth(buffer, row));
    const framed = shape.width > 3 && shape.height > 3;
    const style = {
      fill: fills[MAP_KINDS.indexOf(text(kind[row]))],
      stroke: framed ? page : null,
      lineWidth: framed ? 1 : 0,
    };
    const plain = { type: "rect", shape, style };
    if (shape.width <= least.width || shape.height <= least.height) return plain;
    const [covered] = api.coord([visibleEnd(buffer, row) - 1, 0]);
    const room = Math.min(shape.width, covered - shape.x);
    return room > least.width ? { ...plain, ...boxLabel(tensorName(buffer, row), room, shape.height, page) } : plain;
  };
  return boxes("tensors", data, draw, 2);
}

/** A name in the middle of the left part of a box, which is `room` wide and not covered by another box. */
function boxLabel(name, room, height, fill) {
  const cut = { width: room - 8, overflow: "truncate", ellipsis: "…" };
  const middle = { align: "center", verticalAlign: "middle" };
  return {
    textConfig: { position: [room / 2, height / 2] },
    textContent: { style: { text: name, fill, fontSize: scaled(11), ...cut, ...middle } },
  };
}

function liveSeries(method, buffer, unit) {
  const fill = colour("live");
  const within = buffer.live.filter(([instant]) => instant < method.instants);
  const steps = [[0, 0], ...within, [method.instants, liveAt(buffer, method.instants - 1)]];
  return {
    id: "live",
    type: "line",
    xAxisIndex: 1,
    yAxisIndex: 1,
    step: "end",
    symbol: "none",
    silent: true,
    sampling: "max",
    data: steps.map(([instant, bytes]) => [instant - 1, bytes / unit.bytes]),
    lineStyle: { color: fill, width: 1.5 },
    areaStyle: { color: fill, opacity: 0.35 },
    markLine: { symbol: "none", silent: true, data: [...limits(buffer, unit), ...peakMark(buffer)] },
  };
}

/** The line of the peak in the lower chart. */
function peakMark({ peak }) {
  if (!peak) return [];
  const lineStyle = { color: colour("text"), type: "dashed", width: 2 };
  return [{ xAxis: peak.instant - 0.5, lineStyle, label: { show: false } }];
}

/** Horizontal lines: what the buffer has, what any plan needs, and what the bank has. */
function limits(buffer, unit) {
  const line = (at, name, hue, type, position) => ({
    yAxis: at / unit.bytes,
    lineStyle: { color: colour(hue), type, width: 1.5 },
    label: { formatter: name, color: colour(hue), fontSize: scaled(12), position, distance: 3 },
  });
  const { size, lower_bound: bound, capacity } = buffer.info;
  const optimal = bound === size;
  const lines = [line(size, optimal ? "size, optimal" : "size", "text", "solid", "insideEndTop")];
  if (bound !== null && !optimal) lines.push(line(bound, "lower bound", "doubt", "dashed", "insideEndBottom"));
  if (capacity !== null && capacity > size && capacity <= mapExtent(buffer))
    lines.push(line(capacity, "bank", "bad", "solid", "insideStartTop"));
  return lines;
}

/** A vertical line at the peak of the upper chart, with its text above the chart. */
function peakSeries(method, buffer) {
  const { peak } = buffer;
  const text = colour("text");
  const said = peak ? `peak: ${moment(method, peak.instant)}, ${size(peak.nbytes)}` : "";
  const data = peak ? [[peak.instant - 0.5, 0]] : [];
  const draw = ({ coordSys }, api) => {
    const [x] = api.coord([api.value(0), 0]);
    const { x: left, y: top, width, height } = coordSys;
    if (x < left || x > left + width) return null; // Zoomed out of view.
    const line = (style) => ({ type: "line", shape: { x1: x, y1: top, x2: x, y2: top + height }, style });
    const third = Math.floor((3 * (x - left)) / width);
    const words = {
      text: said,
      fill: text,
      x,
      y: top - scaled(24),
      fontSize: scaled(12),
      fontWeight: 600,
      align: ["left", "center", "right"][Math.min(third, 2)],
      verticalAlign: "bottom",
    };
    return {
      type: "group",
      children: [
        line({ stroke: colour("page"), lineWidth: 3, opacity: 0.6 }),
        line({ stroke: text, lineWidth: 2, lineDash: [6, 4] }),
        { type: "text", style: words },
      ],
    };
  };
  return { ...boxes("peak", data, draw, 3), clip: false, encode: { x: 0, y: 1 } };
}
