"use strict";
// What the bytes of the file are spent on.

const SECTION_HUES = {
  program: "alias",
  constants: "kernel",
  "initial state": "state",
  delegates: "delegate",
  "named data": "transfer",
  "padding and unused": "line",
};

/** Sections and the largest things in them, as areas and as tables. */
function sizesView(program) {
  const parts = program.sections.map((section) => `${section.name} ${size(section.size)}`);
  const canvas = element("div", {
    class: "chart low",
    role: "img",
    "aria-label": `Size of the file by section: ${parts.join(", ")}`,
  });
  const items = program.sections.flatMap((section) => section.items.map((item) => [section.name, ...item]));
  const view = element(
    "div",
    {},
    canvas,
    plainTable({
      columns: ["section", "bytes", "share"],
      sizes: [1],
      note: null,
      rows: program.sections.map((section) => [section.name, section.size, percent(section.size, program.size)]),
    }),
    items.length ? element("h3", {}, "Largest weights and other data") : null,
    items.length
      ? plainTable({
          columns: ["name", "bytes", "section", "what"],
          sizes: [1],
          note: null,
          rows: items.map(([section, name, bytes, what]) => [name, bytes, section, what]).sort((a, b) => b[1] - a[1]),
        })
      : null,
  );
  return chartView(view, canvas, () => treemapOption(program));
}

function treemapOption(program) {
  const page = colour("page");
  return {
    animation: false,
    series: [
      {
        type: "treemap",
        roam: false,
        nodeClick: false,
        silent: true,
        breadcrumb: { show: false },
        left: 0,
        right: 0,
        top: 0,
        bottom: 0,
        label: {
          color: page,
          fontSize: scaled(12),
          lineHeight: scaled(16),
          formatter: (node) => `${node.name}\n${size(node.value)}`,
        },
        itemStyle: { borderColor: page, gapWidth: 1 },
        data: program.sections.map(sectionNode),
      },
    ],
  };
}

function sectionNode(section) {
  const itemStyle = { color: colour(SECTION_HUES[section.name] || "alias") };
  if (!section.items.length) return { name: section.name, value: section.size, itemStyle };
  const listed = section.items.map(([name, value]) => ({ name, value, itemStyle }));
  const rest = section.size - listed.reduce((sum, item) => sum + item.value, 0);
  const others = rest > 0 ? [{ name: `others in ${section.name}`, value: rest, itemStyle }] : [];
  return { name: section.name, value: section.size, itemStyle, children: [...listed, ...others] };
}
