"use strict";
// Elements and numbers. Texts out of a program become text nodes, never markup.

/** An element with attributes (`class`, `on…` listeners) and children: elements, texts, or null for nothing. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function grouped(number) {
  return number.toLocaleString("en-US");
}

/** A number with some decimals. Halves go to the even digit, as in all other outputs. */
function rounded(value, decimals) {
  const shifted = value * 10 ** decimals;
  const isHalf = shifted % 1 === 0.5;
  return (isHalf ? (2 * Math.round(shifted / 2)) / 10 ** decimals : value).toFixed(decimals);
}

/** `41.3 KiB`, as etdev writes it everywhere. */
function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  let value = bytes;
  for (const unit of ["KiB", "MiB", "GiB", "TiB"]) {
    value /= 1024;
    if (value < 1023.5 || unit === "TiB")
      return `${rounded(value, value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2)} ${unit}`;
  }
}

/** The unit that an axis for so many bytes is drawn in, so that its ticks are round. */
function axisUnit(bytes) {
  const power = Math.min(Math.max(Math.floor(Math.log2(Math.max(bytes, 1)) / 10), 0), 4);
  return { bytes: 1024 ** power, name: ["B", "KiB", "MiB", "GiB", "TiB"][power] };
}

function exactSize(bytes) {
  return bytes < 1024 ? `${bytes} bytes` : `${size(bytes)} (${grouped(bytes)} bytes)`;
}

function percent(part, whole) {
  if (whole && !part) return "0 %";
  return whole ? `${((100 * part) / whole).toFixed(part < whole / 10 ? 1 : 0)} %` : "";
}

/** A share as a text and as a bar, in which the whole width is 100 %. */
function shareBar(part, whole) {
  const bar = part > 0 ? element("span", { class: "bar" }) : null;
  if (bar) bar.style.width = `${(100 * part) / whole}%`;
  return element("span", { class: "share" }, percent(part, whole), bar);
}

/** The colour that a custom property has now, as a canvas takes it. */
function colour(name) {
  const probe = document.body.appendChild(element("span"));
  probe.style.color = `var(--${name})`;
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

/** A length in a chart that grows with the page's text. */
function scaled(length) {
  return (length * parseFloat(getComputedStyle(document.documentElement).fontSize)) / 16;
}

function facts(pairs) {
  return element(
    "dl",
    { class: "facts" },
    ...pairs.flatMap(([label, text]) => [element("dt", {}, label), element("dd", {}, text)]),
  );
}

/**
 * How a drawing is used: by touch where that is the pointer, by keys, and by a pointer. `id` is that of a hidden text with
 * the same words, which describes the drawing also while the list is closed.
 */
function controlsHelp(id, touch, keys, pointer) {
  const isTouch = matchMedia("(pointer: coarse)").matches;
  const ways = [...(isTouch ? [["Touch", touch]] : []), ["Keys", keys], ["Pointer", pointer]];
  const words = ways.map(([name, text]) => `${name}: ${text}`).join(" ");
  return element(
    "div",
    {},
    element("p", { id, hidden: "" }, words),
    element("details", { class: "faint" }, element("summary", {}, "Controls"), facts(ways)),
  );
}

/** A text in which parts between backticks are code. */
function withCode(text) {
  const parts = text.split(/`([^`]+)`/);
  return parts.map((part, at) => (at % 2 ? element("code", {}, part) : part)).filter((part) => part !== "");
}

/** A list of colours, each with its meaning. `entries` are pairs of a colour's name and a text. */
function colourLegend(entries) {
  const entry = ([hue, name]) => {
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = `var(--${hue})`;
    return element("li", {}, swatch, name);
  };
  return element("ul", { class: "legend" }, ...entries.map(entry));
}

function choice(label, options, onchange) {
  const select = element(
    "select",
    { onchange: () => onchange(select.selectedIndex) },
    ...options.map((text) => element("option", {}, text)),
  );
  return element("label", {}, label, select);
}
