// Two runs on the same axes: one curve each, and their figures side by side.

import { Board, stepAt } from "holter/board.js";
import { fill, h, prose } from "holter/dom.js";

export class ComparePage {
  constructor(host) {
    this.board = new Board();
    this.head = h("header", { class: "verdict compare-head" });
    fill(host, h("div", { class: "compare" }, this.head, this.board.root));
  }

  show(a, b) {
    document.title = `${a.run.id} and ${b.run.id} · Holter`;
    const keys = [...new Set([...a.figures, ...b.figures].map((one) => one.key))];
    const cell = (doc, key) => {
      const one = doc.figures.find((figure) => figure.key === key);
      return h(
        "td",
        {},
        one ? one.value : "–",
        one?.of ? h("span", { class: "of" }, key === "step" ? one.of : `of ${one.of}`) : null,
      );
    };
    const label = (key) => [...a.figures, ...b.figures].find((one) => one.key === key).label;
    const side = (doc, n) => {
      const swatch = h("i", { class: "swatch" });
      swatch.style.background = `var(--line-${n})`;
      return h(
        "th",
        { scope: "col" },
        swatch,
        h("a", { href: `/run/${doc.run.id}` }, doc.run.id),
        " ",
        doc.run.name || "",
        h("span", { class: "of" }, doc.ending.claim),
      );
    };
    fill(
      this.head,
      h("h1", { class: "claim" }, "Two runs"),
      h(
        "div",
        { class: "scroll" },
        h(
          "table",
          { class: "sides" },
          h("thead", {}, h("tr", {}, h("td", {}), side(a, 1), side(b, 2))),
          h(
            "tbody",
            {},
            keys.map((key) =>
              h("tr", { "data-figure": key }, h("th", { scope: "row" }, label(key)), cell(a, key), cell(b, key)),
            ),
            h(
              "tr",
              {},
              h("th", { scope: "row" }, "first finding"),
              [a, b].map((doc) =>
                h("td", {}, doc.findings[0] ? prose(`${doc.findings[0].cause}: ${doc.findings[0].claim}`) : "none"),
              ),
            ),
          ),
        ),
      ),
    );
    const last = Math.max(a.clock.steps.at(-1) ?? 0, b.clock.steps.at(-1) ?? 0);
    const timing = {
      ...a.clock,
      length: Math.max(a.clock.length, b.clock.length),
      last,
      steps: a.clock.steps.length > 1 && b.clock.steps.length > 1 ? a.clock.steps : [],
    };
    this.board.resupply = (axis) => joined(a, b, axis);
    this.board.show(joined(a, b, "time"), timing, []);
  }
}

// By time both runs begin at zero; by step each run's readings lie where it did that step, whenever that was.
function joined(a, b, axis) {
  const found = [];
  for (const one of a.charts) {
    const other = b.charts.find((chart) => chart.key === one.key);
    if (!other) continue;
    const sides = [
      [a, one],
      [b, other],
    ].map(([doc, chart]) => new Map(places(doc.clock, chart, axis)));
    const xs = [...new Set(sides.flatMap((side) => [...side.keys()]))].sort((x, y) => x - y);
    const same = one.limit && other.limit && one.limit.value === other.limit.value;
    found.push({
      ...one,
      stacked: false,
      xs,
      times: xs,
      ahead: [],
      limit: same ? one.limit : null,
      channels: [a, b].map((doc, n) => ({
        key: `${n}`,
        label: doc.run.id,
        values: xs.map((x) => sides[n].get(x) ?? null),
      })),
    });
  }
  return found;
}

function places(clock, chart, axis) {
  const total = chart.stacked
    ? chart.times.map((_, at) => chart.channels.reduce((sum, channel) => sum + (channel.values[at] ?? 0), 0))
    : chart.channels[0].values;
  const points = chart.times.map((time, at) => [axis === "time" ? time : stepAt(clock, time), total[at]]);
  return points.filter(([x, value]) => x !== null && value !== null);
}
