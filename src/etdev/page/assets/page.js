"use strict";
// The page: which program is shown, and in which colours.

(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let charts = [];

  document.getElementById("header").append(element("h1", {}, DOCUMENT.title), ...chooser(), themeButton());
  const views = [...(DOCUMENT.diff ? [diffView] : []), ...DOCUMENT.programs.map((program) => () => programView(program))];
  if (views.length) show(0);
  document.getElementById("footer").append(...lastWords());
  dark.addEventListener("change", redraw);
  addEventListener("beforeprint", redraw);
  addEventListener("afterprint", redraw);
  root.dataset.ready = "yes";

  function chooser() {
    const names = DOCUMENT.programs.map((program) => program.name);
    if (DOCUMENT.diff) return [choice("Page", ["Comparison", ...names.map((name, side) => `${SIDES[side]}: ${name}`)], show)];
    return names.length > 1 ? [choice("Target", names, show)] : [];
  }

  function themeButton() {
    const button = element("button", { type: "button", onclick: turn });
    const isDark = () => (root.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
    const label = () => {
      button.textContent = isDark() ? "Light" : "Dark";
    };
    label();
    dark.addEventListener("change", label);
    return button;

    function turn() {
      root.dataset.theme = isDark() ? "light" : "dark";
      label();
      redraw();
    }
  }

  function show(index) {
    charts.forEach((chart) => chart.dispose());
    const shown = views[index]();
    document.getElementById("content").replaceChildren(shown.view);
    charts = shown.charts;
    redraw();
  }

  function redraw() {
    charts.forEach((chart) => chart.redraw());
  }

  function lastWords() {
    const versions = Object.entries(DOCUMENT.versions)
      .map(([name, version]) => `${name} ${version}`)
      .join(", ");
    const lines = [
      `Made by ${DOCUMENT.made_by}. Charts by Apache ECharts.`,
      versions ? `Built with ${versions}.` : "",
      ...DOCUMENT.notes,
    ];
    return lines.filter(Boolean).map((line) => element("p", {}, line));
  }
})();
