"use strict";
// What the columns of a buffer say, row by row. No drawing.

const DOCUMENT = JSON.parse(document.getElementById("data").textContent);
const KINDS = {
  input: "filled by the caller",
  state: "kept between calls",
  kernel: "computed by a kernel",
  delegate: "computed by a delegate",
  transfer: "copied between host and device",
  alias: "filled through other tensors",
};

/** A text by its number; `otherwise` if there is none. */
function text(number, otherwise = "") {
  return number < 0 ? otherwise : DOCUMENT.texts[number];
}

/** When an instant is: the caller's turn, or an instruction. */
function moment(method, instant) {
  if (instant <= 0) return "filling the inputs";
  return instant >= method.instants - 1 ? "reading the outputs" : `instruction ${grouped(instant - 1)}`;
}

/** The buffer by its memory id, its bank and its device. */
function bufferName(buffer) {
  const bank = buffer.info.bank === null ? "" : `bank ${buffer.info.bank}, `;
  return `${bank}buffer ${buffer.info.index} on ${buffer.info.device}`;
}

/** The buffers that are compared with a buffer, and itself; only itself on the page of one program. */
function comparedBuffers(buffer) {
  return buffer.compared ?? [buffer];
}

/** The bytes that a map shows: the bank if at least a quarter of it is in use, otherwise the buffer. */
function mapExtent(buffer) {
  const extents = comparedBuffers(buffer).map(({ info: { capacity, size } }) =>
    capacity !== null && capacity <= 4 * size ? capacity : size,
  );
  return Math.max(...extents, 1);
}

function tensorName(buffer, row) {
  return text(buffer.tensors.name[row], `value ${buffer.tensors.value[row]}`);
}

function operatorOf(method, position) {
  return position < 0 ? "" : text(method.instructions.operator[position]);
}

function sourceOf(method, position) {
  return position < 0 ? "" : text(method.instructions.source[position]);
}

/** All that is known of a tensor, as labels and texts. */
function tensorFacts(method, buffer, row) {
  const { value, kind, dtype, shape, offset, size: sizes, start, end, writer, storage, reason } = buffer.tensors;
  const used = start[row] < end[row];
  const shared =
    storage[row] < 0 ? "" : `${exactSize(buffer.storages.size[storage[row]])} with other tensors`;
  return [
    [
      "tensor",
      buffer.tensors.name[row] < 0 ? `value ${value[row]}` : `${tensorName(buffer, row)}, value ${value[row]}`,
    ],
    ["op", whoFills(method, text(kind[row]), writer[row])],
    ["source", sourceOf(method, writer[row])],
    ["type", `${text(dtype[row])} ${text(shape[row])}`],
    ["bytes", exactSize(sizes[row])],
    ["offset", grouped(offset[row])],
    ["lifetime", used ? `${moment(method, start[row])} to ${moment(method, end[row] - 1)}` : "never in use"],
    ["shared", shared],
    ["place", text(reason[row])],
  ].filter(([, found]) => found !== "");
}

function whoFills(method, kind, writer) {
  if (writer < 0) return KINDS[kind];
  const instruction = `${operatorOf(method, writer)}, instruction ${grouped(writer)}`;
  return kind === "alias" ? `${KINDS[kind]}: ${instruction}` : instruction;
}

/** The tensor at a point; of several, the one that came last. -1 where there is none. */
function tensorAt(buffer, instant, address) {
  const { offset, size: sizes, start, end, value } = buffer.tensors;
  let found = -1;
  for (let row = 0; row < value.length; row++) {
    if (start[row] <= instant && instant < end[row] && offset[row] <= address && address < offset[row] + sizes[row]) {
      if (found < 0 || start[row] >= start[found]) found = row;
    }
  }
  return found < 0 ? holderAt(buffer, instant, address) : found;
}

/** The tensor for which bytes are held at a point though it is not in use itself, such as one with an alias. */
function holderAt(buffer, instant, address) {
  const { offset, size: sizes, start, end } = buffer.storages;
  for (let storage = 0; storage < offset.length; storage++) {
    if (
      start[storage] <= instant &&
      instant < end[storage] &&
      offset[storage] <= address &&
      address < offset[storage] + sizes[storage]
    ) {
      return largestIn(buffer, storage);
    }
  }
  return -1;
}

function largestIn(buffer, storage) {
  let found = -1;
  buffer.tensors.storage.forEach((one, row) => {
    if (one === storage && (found < 0 || buffer.tensors.size[row] > buffer.tensors.size[found])) found = row;
  });
  return found;
}

function rowOfValue(buffer, value) {
  return buffer.tensors.value.indexOf(value);
}

/** Rows in the order in which the keyboard walks through them: by time, then by address. */
function rowsInOrder(buffer) {
  const { start, end, offset, value } = buffer.tensors;
  const used = value.map((_, row) => row).filter((row) => start[row] < end[row]);
  return used.sort((a, b) => start[a] - start[b] || offset[a] - offset[b] || value[a] - value[b]);
}

/** The first instant at which a tensor that is drawn later covers the middle of a tensor; its end if there is none. */
function visibleEnd(buffer, row) {
  const { offset, size: sizes, start, end, value } = buffer.tensors;
  const middle = offset[row] + sizes[row] / 2;
  const isLater = (other) =>
    start[other] - start[row] || offset[other] - offset[row] || value[other] - value[row];
  let found = end[row];
  for (let other = 0; other < value.length; other++) {
    const covers = offset[other] <= middle && middle < offset[other] + sizes[other] && start[other] < end[other];
    if (covers && start[other] < found && isLater(other) > 0) found = start[other];
  }
  return found;
}

/** The nearest tensor above or below that is in use at some time when a tensor is. */
function neighbour(buffer, row, direction) {
  const { start, end, offset, value } = buffer.tensors;
  let found = -1;
  for (let other = 0; other < value.length; other++) {
    const meets = start[other] < end[row] && start[row] < end[other];
    const distance = (offset[other] - offset[row]) * direction;
    if (meets && distance > 0 && (found < 0 || distance < (offset[found] - offset[row]) * direction)) found = other;
  }
  return found;
}

/** What is known of an instant. */
function instantFacts(method, buffer, instant) {
  const op = instant < method.instants - 1 ? operatorOf(method, instant - 1) : "";
  return [
    ["when", moment(method, instant)],
    ["op", op],
    ["in use", exactSize(liveAt(buffer, instant))],
  ].filter(([, found]) => found !== "");
}

/** Bytes in use at an instant. */
function liveAt(buffer, instant) {
  let low = 0;
  let high = buffer.live.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (buffer.live[middle][0] <= instant) low = middle + 1;
    else high = middle;
  }
  return low ? buffer.live[low - 1][1] : 0;
}
