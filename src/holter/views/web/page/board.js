// All charts of a run on one axis: zoom one and all follow, hover one and all read, by time or by step.

import { Chart } from "holter/chart.js";
import { csvOf, save } from "holter/csv.js";
import { h } from "holter/dom.js";
import { clock, count } from "holter/format.js";
import { stepAt } from "holter/steps.js";

let boards = 0;

export class Board {
  // more(begin, end): a promise of the charts between two times, in finer grain; null where there is no more.
  // fine(key): a promise of one whole chart as it was recorded; null where there is no more than what is shown.
  constructor({ more = null, fine = null } = {}) {
    this.name = `board-${++boards}`;
    this.more = more;
    this.fine = fine;
    this.called = "run";
    this.axis = "time";
    this.window = null;
    this.charts = new Map();
    this.marks = [];
    this.chosen = null;
    this.height = matchMedia("(max-width: 720px)").matches ? 132 : 150;
    this.readout = h("output", { class: "readout", "aria-live": "off" });
    this.said = h("p", { class: "mark-text" });
    const choice = (axis, label) =>
      h(
        "button",
        { type: "button", "data-axis": axis, "aria-pressed": axis === this.axis, onclick: () => this.by(axis) },
        label,
      );
    this.choices = [choice("time", "Time"), choice("step", "Step")];
    this.back = h("button", { type: "button", class: "back", hidden: true, onclick: () => this.reset() }, "Whole run");
    this.grid = h("div", { class: "charts" });
    this.root = h(
      "section",
      {
        class: "board",
        tabindex: 0,
        "aria-label": "Charts. Keys: plus and minus zoom, arrows move, 0 shows the whole run, x changes the axis, comma and full stop read the values before and after.",
        onkeydown: (event) => this.key(event),
      },
      (this.bar = h(
        "div",
        { class: "board-bar" },
        h("div", { class: "axis", role: "group", "aria-label": "Horizontal axis" }, this.choices),
        h(
          "div",
          { class: "zoomers", role: "group", "aria-label": "Zoom" },
          h("button", { type: "button", "aria-label": "Zoom in", onclick: () => this.scale(0.5) }, "+"),
          h("button", { type: "button", "aria-label": "Zoom out", onclick: () => this.scale(2) }, "−"),
          this.back,
        ),
        this.readout,
      )),
      this.said,
      this.grid,
    );
    new ResizeObserver(() => this.resize()).observe(this.grid);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.again());
  }

  show(charts, timing, marks) {
    this.timing = timing;
    this.marks = marks;
    this.whole = charts;
    if (!this.window) this.take(charts);
    else this.finer();
    const steps = timing.steps.length > 1;
    this.choices[1].disabled = !steps;
    this.choices[1].title = steps ? "" : "No steps are known of this run";
  }

  take(charts) {
    if (!globalThis.uPlot) {
      this.bar.hidden = true;
      this.grid.replaceChildren(
        h(
          "p",
          { class: "quiet" },
          "This install has no charts: the chart library could not be had when it was built. Install it again with a network, or see hatch_build.py. All else is here.",
        ),
      );
      return;
    }
    const kept = new Set(charts.map((one) => one.key));
    for (const [key, chart] of this.charts)
      if (!kept.has(key)) {
        chart.root.remove();
        this.charts.delete(key);
      }
    for (const data of charts) {
      const known = this.charts.get(data.key);
      if (known) known.take(data);
      else this.charts.set(data.key, new Chart(this, data, this.grid));
    }
    if (!charts.length) this.grid.replaceChildren(h("p", { class: "quiet" }, "The run was too short for curves."));
    this.rescale();
  }

  // Time to the axis at hand; before the first step there is no place for it on the axis of steps.
  x(time) {
    return this.axis === "time" ? time : (stepAt(this.timing, time) ?? 0);
  }

  time(x) {
    if (this.axis === "time") return x;
    const { times, steps } = this.timing;
    const at = steps.findIndex((step) => step >= x);
    if (at < 0) return times.at(-1);
    if (at === 0) return x <= 0 ? 0 : times[0];
    return times[at - 1] + ((x - steps[at - 1]) / (steps[at] - steps[at - 1] || 1)) * (times[at] - times[at - 1]);
  }

  end() {
    return this.axis === "time" ? this.timing.length : (this.timing.last ?? this.timing.steps.at(-1));
  }

  range(low, high) {
    if (this.window) return this.window;
    return [0, Math.max(this.end() || 0, low === high ? (high ?? 0) + 1 : 0, 1e-3)];
  }

  zoom(from, to) {
    const end = this.end();
    const least = this.axis === "time" ? 0.5 : 1;
    let [low, high] = [Math.max(0, Math.min(from, to)), Math.min(end, Math.max(from, to))];
    if (high - low < least) [low, high] = [Math.max(0, low - least / 2), low + least / 2];
    this.window = low <= 0 && high >= end ? null : [low, high];
    this.back.hidden = !this.window;
    this.rescale();
    clearTimeout(this.waiting);
    if (this.window) this.waiting = setTimeout(() => this.finer(), 120);
    else this.take(this.whole);
  }

  async finer() {
    if (!this.more || !this.window) return this.take(this.whole);
    const asked = this.window;
    const found = await this.more(this.time(asked[0]), this.time(asked[1]));
    if (found && asked === this.window) this.take(found);
  }

  rescale() {
    for (const { plot } of this.charts.values()) {
      const [min, max] = this.range(0, 0);
      plot?.setScale("x", { min, max });
    }
    this.root.dataset.window = this.window ? this.window.map((n) => n.toFixed(2)).join() : "";
  }

  // A moment, with a tenth of the run around it.
  around(time) {
    const x = this.x(time),
      half = this.end() / 20;
    this.zoom(Math.min(x, this.end()) - half, x + half);
    this.hover(time);
  }

  reset() {
    this.zoom(0, this.end());
  }

  scale(factor) {
    const [low, high] = this.window ?? [0, this.end()];
    const middle = (low + high) / 2,
      half = ((high - low) / 2) * factor;
    this.zoom(middle - half, middle + half);
  }

  move(part) {
    if (!this.window) return;
    const [low, high] = this.window;
    const by = Math.max(-low, Math.min(this.end() - high, (high - low) * part));
    this.zoom(low + by, high + by);
  }

  by(axis) {
    if (axis === this.axis || (axis === "step" && this.timing.steps.length < 2)) return;
    const times = this.window?.map((x) => this.time(x));
    this.axis = axis;
    this.window = times ? times.map((time) => this.x(time)) : null;
    for (const choice of this.choices) choice.setAttribute("aria-pressed", choice.dataset.axis === axis);
    if (this.resupply) this.whole = this.resupply(axis);
    if (this.resupply) this.take(this.whole);
    else this.again();
  }

  again() {
    for (const chart of this.charts.values()) {
      chart.shape = "";
      chart.take(chart.data);
    }
    this.rescale();
  }

  // A finding was chosen: its charts come forward, with the span and the places of its evidence on them.
  choose(finding, { aside = false, scroll = false } = {}) {
    this.chosen = finding;
    for (const chart of this.charts.values()) {
      chart.root.classList.toggle(
        "aside",
        aside && Boolean(finding?.charts.length) && !finding.charts.includes(chart.key),
      );
      chart.root.classList.toggle("chosen", Boolean(finding?.charts.includes(chart.key)));
      chart.plot?.redraw(false);
    }
    const first = scroll && finding && finding.charts.map((key) => this.charts.get(key)).find(Boolean);
    if (first && matchMedia("(max-width: 1080px)").matches)
      first.root.scrollIntoView({ block: "center", behavior: "smooth" });
  }

  hover(time) {
    if (!this.charts.size) return;
    const step = this.resupply ? null : stepAt(this.timing, time);
    const by = this.resupply && this.axis === "step" ? `step ${count(time)}` : `${clock(time, 1)} in`;
    this.readout.textContent = step === null ? by : `${by}, step ${count(Math.floor(step))}`;
    const near = this.marks.filter((mark) => mark.text && Math.abs(this.px(mark.time) - this.px(time)) < 7);
    this.said.textContent = near
      .slice(0, 2)
      .map((mark) => mark.text)
      .join(" · ");
  }

  // Reads the values at the next place, as a mouse would that moves a fiftieth of the width; said aloud, too.
  read(by) {
    const [low, high] = this.range(0, 0);
    const at = this.at === undefined || this.at < low || this.at > high ? (by > 0 ? low : high) : this.at;
    this.at = Math.max(low, Math.min(high, at + (by * (high - low)) / 50));
    this.readout.setAttribute("aria-live", "polite");
    for (const { plot } of this.charts.values()) plot.setCursor({ left: plot.valToPos(this.at, "x"), top: 20 });
  }

  async save(key) {
    const data = (await this.fine?.(key)) ?? this.charts.get(key).data;
    save(`${this.called}-${key}.csv`, csvOf(data, this.timing, this.axis));
  }

  px(time) {
    return this.charts.values().next().value.plot.valToPos(this.x(time), "x");
  }

  resize() {
    for (const chart of this.charts.values()) chart.plot && chart.resize();
  }

  key(event) {
    if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      "+": () => this.scale(0.5),
      "=": () => this.scale(0.5),
      "-": () => this.scale(2),
      0: () => this.reset(),
      ArrowLeft: () => this.move(-0.25),
      ArrowRight: () => this.move(0.25),
      x: () => this.by(this.axis === "time" ? "step" : "time"),
      ",": () => this.read(-1),
      ".": () => this.read(1),
    }[event.key];
    if (act) {
      act();
      event.preventDefault();
    }
  }
}
