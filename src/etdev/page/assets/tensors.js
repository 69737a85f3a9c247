"use strict";
// What stands around a memory map, and the tables that say the same in words.

function mapSummary(method, buffer) {
  const peak = buffer.peak ? `; most in use: ${size(buffer.peak.nbytes)} at ${moment(method, buffer.peak.instant)}` : "";
  const tensors = `${grouped(buffer.tensors.value.length)} tensors in ${size(buffer.info.size)}`;
  return `Memory map of ${bufferName(buffer)}: ${tensors}, ${grouped(method.instants - 2)} instructions${peak}`;
}

function mapHelp(id) {
  return controlsHelp(
    id,
    "Tap a tensor to describe it; the slider and the buttons zoom and move.",
    "Left and right: tensors by time. Up and down: tensors by address. P: the peak. + − 0: zoom.",
    "Drag to move, Ctrl and wheel to zoom time, Shift and wheel to zoom addresses, click to hold. " +
      "The tables below contain the same facts.",
  );
}

/** The colours of a map; in a comparison, the colours of both maps. */
function mapLegend(buffers) {
  const isThere = (kind) => buffers.some(({ tensors }) => tensors.kind.some((number) => text(number) === kind));
  const held = buffers.some(({ storages }) => storages.offset.length);
  return colourLegend([
    ...MAP_KINDS.filter(isThere).map((kind) => [kind, KINDS[kind]]),
    ...(held ? [["storage", "kept for tensors that share the bytes"]] : []),
  ]);
}

/** Which tensors make the peak, the largest first. */
function peakTable(method, buffer, onselect, oninstruction) {
  const { instant, nbytes: most, during, tensors } = buffer.peak;
  const when = during === moment(method, instant) ? `while ${during}` : `at ${moment(method, instant)} (${during})`;
  return dataTable({
    caption: `${exactSize(most)} are in use ${when}, by ${grouped(tensors.length)} tensors:`,
    rows: tensors.map((_, row) => row),
    columns: [
      { title: "tensor", ...tensorCell(buffer, (row) => rowOfValue(buffer, tensors[row].value), onselect) },
      { title: "bytes", number: true, value: (row) => tensors[row].nbytes, text: (row) => grouped(tensors[row].nbytes) },
      {
        title: "share",
        number: true,
        value: (row) => tensors[row].nbytes,
        text: (row) => percent(tensors[row].nbytes, most),
        cell: (row) => shareBar(tensors[row].nbytes, most),
      },
      { title: "type", text: (row) => typeOf(buffer, rowOfValue(buffer, tensors[row].value)) },
      {
        title: "written by",
        ...instructionCell((row) => tensors[row].origin, (row) => tensors[row].instruction ?? -1, oninstruction),
      },
    ],
    under: (row) => writtenAt(method, tensors[row].instruction ?? -1),
  });
}

/** The module and the source line of an instruction, as far as they are known. */
function writtenAt(method, position) {
  const module = position < 0 ? "" : text(method.graph.module[position]);
  return [module, sourceOf(method, position)].filter(Boolean).join(" · ");
}

/** Every tensor of the buffer. */
function tensorTable(method, buffer, onselect, oninstruction) {
  const { value, offset, size: sizes, start, end, writer, reason, kind } = buffer.tensors;
  const numbers = (title, column) => ({
    title,
    number: true,
    value: (row) => column[row],
    text: (row) => grouped(column[row]),
  });
  return dataTable({
    caption: "Every tensor; a name shows it in the map",
    rows: value.map((_, row) => row),
    columns: [
      { title: "tensor", ...tensorCell(buffer, (row) => row, onselect) },
      numbers("bytes", sizes),
      numbers("offset", offset),
      { title: "from", number: true, value: (row) => start[row], text: (row) => instantLabel(method, start[row]) },
      {
        title: "to",
        number: true,
        value: (row) => end[row],
        text: (row) => (start[row] < end[row] ? instantLabel(method, end[row] - 1) : "–"),
      },
      { title: "type", text: (row) => typeOf(buffer, row) },
      {
        title: "op",
        ...instructionCell(
          (row) => operatorOf(method, writer[row]) || text(kind[row]),
          (row) => writer[row],
          oninstruction,
        ),
      },
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
    cell: (row) =>
      element("button", { type: "button", class: "plain", onclick: () => onselect(rowOf(row)) }, name(row)),
  };
}

/** A text that leads to an instruction in the graph, where there is one. */
function instructionCell(textOf, positionOf, oninstruction) {
  const cell = (row) =>
    positionOf(row) < 0
      ? textOf(row)
      : element("button", { type: "button", class: "plain", onclick: () => oninstruction(positionOf(row)) }, textOf(row));
  return { text: textOf, cell };
}
