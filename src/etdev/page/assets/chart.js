"use strict";
// Charts that are drawn anew as a whole: when they are shown, and when colours or the size of the text change.

/** A part of the page, `view`, with a chart in its `canvas`; `option` gives what ECharts is to draw. */
function chartView(view, canvas, option) {
  let chart = null;
  const resized = new ResizeObserver(() => chart?.resize());
  resized.observe(canvas);
  return {
    view,
    redraw: () => {
      chart?.dispose();
      chart = echarts.init(canvas);
      chart.setOption(option());
    },
    dispose: () => {
      resized.disconnect();
      chart?.dispose();
    },
  };
}

/** A treemap that does not move, with the name and the size of each part in its area. `more` is what differs. */
function areas(more) {
  const label = {
    color: colour("page"),
    fontSize: scaled(12),
    lineHeight: scaled(16),
    formatter: (node) => (node.name ? `${node.name}\n${size(node.value)}` : ""),
  };
  const still = { roam: false, nodeClick: false, silent: true, breadcrumb: { show: false } };
  const whole = { left: 0, right: 0, top: 0, bottom: 0 };
  return { animation: false, series: [{ type: "treemap", ...still, ...whole, label, ...more }] };
}
