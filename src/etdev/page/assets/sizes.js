"use strict";
// What the bytes of files are spent on.

const SECTION_HUES = {
  flatbuffer: "alias",
  constants: "kernel",
  "initial state": "state",
  delegates: "delegate",
  "named data": "transfer",
  "padding and unused": "line",
  "names and padding": "line",
};

/** The program's file, and that of its external weights if it has any; `charts` are to be drawn. */
function filesView(program, charts) {
  const views = program.files.map((file) => {
    const sizes = sizesView(file);
    charts.push(sizes);
    return element("div", {}, element("h3", {}, `${file.name}, ${exactSize(file.size)}`), sizes.view);
  });
  const missing = program.without
    ? element("p", { class: "not-run" }, `External weights are not shown: ${program.without}.`)
    : null;
  return section(program.files.length > 1 ? "Files" : "File", missing, ...views);
}

/** Sections of a file and the largest things in them, as areas and as tables. */
function sizesView(file) {
  const parts = file.sections.map((section) => `${section.name} ${size(section.size)}`);
  const canvas = element("div", {
    class: "chart low",
    role: "img",
    "aria-label": `Size of ${file.name} by section: ${parts.join(", ")}`,
  });
  const items = file.sections.flatMap((section) => section.items.map((item) => [section.name, ...item]));
  const view = element(
    "div",
    {},
    sectionLegend(file),
    canvas,
    dataTable({
      rows: file.sections,
      columns: [
        { title: "section", text: (section) => section.name },
        { title: "bytes", number: true, value: (section) => section.size, text: (section) => grouped(section.size) },
        {
          title: "share",
          number: true,
          value: (section) => section.size,
          text: (section) => percent(section.size, file.size),
        },
      ],
    }),
    items.length ? element("h4", {}, "Largest weights and other data") : null,
    items.length
      ? plainTable({
          columns: ["name", "bytes", "section", "what"],
          sizes: [1],
          note: null,
          rows: items.map(([section, name, bytes, what]) => [name, bytes, section, what]).sort((a, b) => b[1] - a[1]),
        })
      : null,
  );
  return chartView(view, canvas, () => treemapOption(file));
}

/** Colours of the sections in the areas. */
function sectionLegend(file) {
  const shown = file.sections.filter((section) => section.size);
  return colourLegend(shown.map(({ name }) => [SECTION_HUES[name] || "alias", name]));
}

function treemapOption(file) {
  return areas({ itemStyle: { borderColor: colour("page"), gapWidth: 1 }, data: file.sections.map(sectionNode) });
}

function sectionNode(section) {
  const hue = SECTION_HUES[section.name] || "alias";
  const itemStyle = { color: colour(hue) };
  const label = hue === "line" ? { color: colour("text") } : {}; // Which is too pale for the text of the others.
  if (!section.items.length) return { name: section.name, value: section.size, itemStyle, label };
  const listed = section.items.map(([name, value]) => ({ name, value, itemStyle }));
  const rest = section.size - listed.reduce((sum, item) => sum + item.value, 0);
  const others = rest > 0 ? [{ name: `others in ${section.name}`, value: rest, itemStyle }] : [];
  return { name: section.name, value: section.size, itemStyle, children: [...listed, ...others] };
}
