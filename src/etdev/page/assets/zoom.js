"use strict";
// Which part of a memory map is in view: instants along one axis, addresses along the other.

const ZOOM_STEP = 1.6;
const AXES = [0, 1];

class Zoom {
  /** `limits` are how many instants and bytes there are; `chart` is given with each drawing. */
  constructor(limits) {
    this.limits = limits;
    this.chart = null;
  }

  /** The part of an axis that is in view: where it begins and ends. */
  shown(axis) {
    const { start, end } = this.chart.getOption().dataZoom[axis];
    return [(start / 100) * this.limits[axis], (end / 100) * this.limits[axis]];
  }

  show(axis, low, high) {
    const limit = this.limits[axis];
    const width = Math.min(high - low, limit);
    const first = Math.min(Math.max(low, 0), limit - width);
    const [start, end] = [(100 * first) / limit, (100 * (first + width)) / limit];
    this.chart.dispatchAction({ type: "dataZoom", dataZoomIndex: axis, start, end });
  }

  /** Show more or less, around a point or what is in the middle now. */
  by(factor, centre) {
    for (const axis of AXES) {
      const [low, high] = this.shown(axis);
      const middle = centre ? centre[axis] : (low + high) / 2;
      const half = Math.max(((high - low) * factor) / 2, 1);
      this.show(axis, middle - half, middle + half);
    }
  }

  whole() {
    AXES.forEach((axis) => this.show(axis, 0, this.limits[axis]));
  }

  /** Move to a range of each axis, where nothing of it is in view. */
  reveal(ranges) {
    for (const axis of AXES) {
      const [from, to] = ranges[axis];
      const [low, high] = this.shown(axis);
      if (from < high && to > low) continue;
      const half = (high - low) / 2;
      this.show(axis, (from + to) / 2 - half, (from + to) / 2 + half);
    }
  }
}
