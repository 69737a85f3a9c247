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
