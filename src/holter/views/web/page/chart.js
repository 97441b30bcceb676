// One chart: its lines by uPlot, its values in words, and the limit against which they stand.

import { nonfiniteAt } from "holter/csv.js";
import { h, style } from "holter/dom.js";
import { clock, count, reading, size } from "holter/format.js";
import { over, under } from "holter/overlay.js";

const COLORS = [1, 2, 3, 4, 5, 6, 7, 8].map((n) => `--line-${n}`);
const RIGHT = 14;

export class Chart {
  constructor(board, data, host) {
    this.board = board;
    this.key = data.key;
    this.values = h("span", { class: "values" });
    this.title = h("h3", {});
    this.note = h("span", { class: "limit-note" });
    this.canvas = h("div", { class: "plot" });
    const csv = h(
      "button",
      { type: "button", class: "csv", "aria-label": `Save ${data.title} as CSV`, onclick: () => board.save(this.key) },
      "CSV",
    );
    this.root = h(
      "figure",
      { class: "chart", "data-chart": data.key },
      h("figcaption", {}, this.title, this.values, this.note, csv),
      this.canvas,
    );
    host.append(this.root);
    this.take(data);
  }

  // New readings; the plot is made anew only when its lines are others than before.
  take(data) {
    const shape = data.channels.map((one) => one.key).join() + this.board.axis;
    this.data = data;
    this.title.textContent = data.title;
    this.note.textContent = data.limit ? `limit ${size(data.limit.value)}` : nonfiniteWords(data);
    if (data.limit) this.note.title = data.limit.label;
    const lines = this.lines();
    if (this.plot && shape === this.shape) {
      this.plot.setData(lines, false);
      this.readAt(this.plot.cursor.idx);
      return;
    }
    this.shape = shape;
    this.plot?.destroy();
    this.plot = new uPlot(this.options(), lines, this.canvas);
    this.read(null);
  }

  lines() {
    const { data, board } = this;
    // What came before the first step has no place on the axis of steps.
    const first = board.axis === "step" && !data.xs ? data.times.findIndex((time) => time >= board.timing.times[0]) : 0;
    this.first = Math.max(0, first);
    const xs = data.xs ?? data.times.slice(this.first).map((time) => board.x(time));
    const raw = data.channels.map((one) => one.values.slice(this.first));
    if (!data.stacked) return [xs, ...raw];
    const sums = [];
    raw.forEach((values, n) => sums.push(values.map((value, at) => (value ?? 0) + (n ? sums[n - 1][at] : 0))));
    return [xs, ...sums];
  }

  options() {
    const { data, board } = this;
    const ink = style("--faint"),
      grid = style("--grid"),
      font = `11px ${style("--sans")}`;
    const unit = reading[data.unit];
    const colour = (n) => style(COLORS[(data.channels[n]?.colour ?? n) % COLORS.length]);
    const loss = data.key === "loss" && !data.joined; // its lowest and highest are a band
    const broken = data.nonfinite?.length > 0;
    const series = data.channels.map((one, n) => {
      const band = loss && n > 0;
      return {
        label: one.label,
        stroke: band ? "transparent" : colour(n),
        width: n === 0 || data.stacked ? 1.6 : 1.2,
        fill: data.stacked && n === 0 ? colour(n) + "33" : undefined,
        points: { show: !band && (data.times.length < 3 || broken), filter: broken ? alone : undefined },
        spanGaps: !broken,
      };
    });
    const bands = data.stacked
      ? data.channels.slice(1).map((_, n) => ({ series: [n + 2, n + 1], fill: colour(n + 1) + "33" }))
      : loss && data.channels.length > 2
        ? [{ series: [3, 2], fill: colour(0) + "2e" }]
        : [];
    const axis = { stroke: ink, font, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
    return {
      width: this.canvas.clientWidth || 600,
      height: board.height,
      padding: [10, RIGHT, 0, 0],
      legend: { show: false },
      scales: {
        x: { time: false, range: (_u, low, high) => board.range(low, high) },
        y: { range: (_u, low, high) => this.height(low, high) },
      },
      axes: [
        {
          ...axis,
          size: 26,
          gap: 4,
          space: 80,
          incrs:
            board.axis === "time"
              ? [
                  0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400,
                  172800,
                ]
              : undefined,
          values: (_u, ticks) =>
            ticks.map((tick) => (board.axis === "time" ? clock(tick, ticks[1] - ticks[0] || 1) : count(tick))),
        },
        {
          ...axis,
          size: 62,
          gap: 6,
          space: 34,
          values: (_u, ticks) => ticks.map((tick) => (tick === 0 ? "0" : unit(tick))),
        },
      ],
      series: [{}, ...series],
      bands,
      cursor: {
        sync: { key: board.name, setSeries: false },
        drag: { x: true, y: false, setScale: false, dist: 4 },
        points: { size: 5 },
        bind: {
          dblclick: () => () => {
            board.reset();
            return null;
          },
        },
      },
      hooks: {
        drawAxes: [() => under(this)],
        draw: [() => over(this)],
        setScale: [
          (u, key) => {
            if (key === "x") this.root.dataset.window = `${u.scales.x.min},${u.scales.x.max}`;
          },
        ],
        setCursor: [(u) => this.readAt(u.cursor.idx)],
        setSelect: [
          (u) => {
            if (u.select.width < 4) return;
            const [from, to] = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
            u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            board.zoom(from, to);
          },
        ],
      },
    };
  }

  // From zero for what can't be below it; the limit is on the chart once it is near enough to mean something.
  height(low, high) {
    if (low === null || high === null) return [0, 1];
    if (this.key === "loss") {
      const room = (high - low) * 0.08 || Math.abs(high) * 0.1 || 1;
      return [low - room, high + room];
    }
    if (this.data.unit === "percent") return [0, Math.max(10, high * 1.08)];
    const limit = this.data.limit?.value ?? 0;
    return [0, (limit && limit < 3 * high ? Math.max(limit * 1.06, high * 1.06) : high * 1.1) || 1];
  }

  readAt(idx) {
    this.read(idx === null || idx === undefined ? null : Math.min(idx + this.first, this.data.times.length - 1));
  }

  read(at) {
    const { data } = this;
    const unit = reading[data.unit];
    const shown = data.channels.filter((_, n) => !(this.key === "loss" && !data.joined && n > 0));
    const broken = nonfiniteAt(data, data.times[at ?? data.times.length - 1]);
    this.values.replaceChildren(
      ...shown.map((one, n) => {
        const value = at === null ? last(one.values) : near(one.values, at);
        const swatch = h("i", { class: "swatch" });
        swatch.style.background = `var(${COLORS[(one.colour ?? n) % COLORS.length]})`;
        return h(
          "span",
          { class: "value" },
          shown.length > 1 || one.label !== data.title.toLowerCase() ? [swatch, one.label, " "] : [swatch],
          h("b", {}, broken ? "NaN or Inf" : value === null ? "–" : unit(value)),
        );
      }),
    );
    if (at !== null) this.board.hover(data.times[at]);
  }

  place(time) {
    return this.plot.valToPos(this.board.x(time), "x", true);
  }

  resize() {
    this.plot.setSize({ width: this.canvas.clientWidth, height: this.board.height });
  }
}

// From which step on the loss was no number, or at which steps now and then.
function nonfiniteWords({ nonfinite, times }) {
  if (!nonfinite?.length) return "";
  const [first] = nonfinite;
  if (nonfinite.length > 1) return `NaN or Inf ${nonfinite.length} times, first at step ${count(first.step)}`;
  return `NaN or Inf ${first.until >= times.at(-1) ? "from" : "at"} step ${count(first.step)}${first.until >= times.at(-1) ? " on" : ""}`;
}

// Where a line is broken off, what stands between two gaps has no line of its own: it is drawn as a point.
function alone(plot, series) {
  const values = plot.data[series];
  const known = (at) => values[at] !== null && values[at] !== undefined;
  return values.flatMap((_, at) => (known(at) && !known(at - 1) && !known(at + 1) ? [at] : []));
}

const last = (values) => values.findLast((value) => value !== null) ?? null;

// The reading under the cursor, or the nearest one: channels of one chart may have been read at different times.
function near(values, at) {
  for (let off = 0; off < 40; off++) {
    if (values[at - off] !== null && values[at - off] !== undefined) return values[at - off];
    if (values[at + off] !== null && values[at + off] !== undefined) return values[at + off];
  }
  return null;
}
