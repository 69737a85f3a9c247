"use strict";
// Which device works when, and what is copied between.

/** The timeline of a method on devices, and its copies as a table. */
function timelineView(method) {
  const { devices, transfers } = method.timeline;
  const canvas = element("div", {
    class: "chart timeline",
    role: "img",
    "aria-label": `Devices by instruction: ${devices.join(", ")}; ${transfers.instruction.length} copies, listed below`,
  });
  const view = element("div", {}, canvas, transfers.instruction.length ? transferTable(method) : null);
  return chartView(view, canvas, () => timelineOption(method));
}

function timelineOption(method) {
  const { devices, lane, start, end, transfers } = method.timeline;
  const faint = colour("faint");
  const fontSize = scaled(12);
  const hues = [colour("kernel"), colour("delegate")];
  const copies = colour("transfer");
  const stretches = start.map((from, row) => [from, end[row], lane[row], 0]);
  const arrows = transfers.instruction.map((at, row) => [
    at,
    transfers.to_device[row] ? 1 : 0,
    devices.indexOf(text(transfers.device[row])),
  ]);
  return {
    animation: false,
    grid: { left: scaled(8), right: scaled(24), top: scaled(8), bottom: scaled(40), containLabel: true },
    xAxis: {
      type: "value",
      min: 0,
      max: Math.max(method.instants - 2, 1),
      minInterval: 1,
      name: "instruction",
      nameLocation: "middle",
      nameGap: scaled(22),
      nameTextStyle: { color: faint, fontSize },
      axisLabel: { color: faint, fontSize, hideOverlap: true },
      splitLine: { show: false },
    },
    yAxis: {
      type: "category",
      data: devices,
      inverse: true,
      axisLabel: { color: colour("text"), fontSize },
      axisTick: { show: false },
    },
    series: [
      {
        type: "custom",
        silent: true,
        clip: true,
        data: stretches,
        encode: { x: [0, 1], y: 2 },
        renderItem: (_, api) => stretch(api, hues),
      },
      {
        type: "custom",
        silent: true,
        clip: true,
        data: arrows,
        encode: { x: 0, y: 2 },
        renderItem: (_, api) => arrow(api, copies),
      },
    ],
  };
}

function stretch(api, hues) {
  const lane = api.value(2);
  const [left, middle] = api.coord([api.value(0), lane]);
  const [right] = api.coord([api.value(1), lane]);
  const height = api.size([0, 1])[1] * 0.5;
  return {
    type: "rect",
    shape: { x: left, y: middle - height / 2, width: Math.max(right - left, 1), height },
    style: { fill: hues[lane ? 1 : 0] },
  };
}

/** From the lane that is copied from to the one that is copied to. */
function arrow(api, stroke) {
  const host = api.coord([api.value(0) + 0.5, 0]);
  const device = api.coord([api.value(0) + 0.5, api.value(2)]);
  const [from, to] = api.value(1) ? [host, device] : [device, host];
  const back = to[1] > from[1] ? -7 : 7;
  return {
    type: "group",
    children: [
      { type: "line", shape: { x1: from[0], y1: from[1], x2: to[0], y2: to[1] }, style: { stroke, lineWidth: 2 } },
      {
        type: "polygon",
        shape: { points: [to, [to[0] - 4, to[1] + back], [to[0] + 4, to[1] + back]] },
        style: { fill: stroke },
      },
    ],
  };
}

function transferTable(method) {
  const { instruction, to_device, device, size: sizes, value } = method.timeline.transfers;
  const total = (there) => sizes.reduce((sum, bytes, row) => (to_device[row] === there ? sum + bytes : sum), 0);
  return dataTable({
    caption: `Copies, if each instruction runs once: ${exactSize(total(true))} to devices, ${exactSize(total(false))} back`,
    rows: instruction.map((_, row) => row),
    columns: [
      {
        title: "instruction",
        number: true,
        value: (row) => instruction[row],
        text: (row) => grouped(instruction[row]),
      },
      {
        title: "direction",
        text: (row) => (to_device[row] ? `host to ${text(device[row])}` : `${text(device[row])} to host`),
      },
      { title: "bytes", number: true, value: (row) => sizes[row], text: (row) => grouped(sizes[row]) },
      { title: "into", text: (row) => `value ${value[row]}` },
      { title: "source", wide: true, text: (row) => sourceOf(method, instruction[row]) },
    ],
  });
}
