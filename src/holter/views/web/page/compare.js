// Several runs on the same axes: one curve each, and their figures side by side.

import { Board } from "holter/board.js";
import { fill, h, prose } from "holter/dom.js";
import { stepAt } from "holter/steps.js";

export class ComparePage {
  constructor(host) {
    this.board = new Board();
    this.head = h("section", { class: "verdict compare-head" });
    fill(host, h("div", { class: "compare" }, this.head, this.board.root));
  }

  show(docs) {
    const names = docs.map((doc) => doc.run.id);
    document.title = `${names.join(", ")} · Holter`;
    const figures = docs.flatMap((doc) => doc.figures);
    const keys = [...new Set(figures.map((one) => one.key))];
    const cell = (doc, key) => {
      const one = doc.figures.find((figure) => figure.key === key);
      return h(
        "td",
        {},
        one ? one.value : "–",
        one?.of ? h("span", { class: "of" }, key === "step" || key === "loss" ? one.of : `of ${one.of}`) : null,
      );
    };
    const label = (key) => figures.find((one) => one.key === key).label;
    const side = (doc, n) => {
      const swatch = h("i", { class: "swatch" });
      swatch.style.background = `var(--line-${n + 1})`;
      return h(
        "th",
        { scope: "col" },
        swatch,
        h("a", { href: `/run/${encodeURIComponent(doc.run.id)}` }, doc.run.id),
        " ",
        doc.run.name || "",
        h("span", { class: "of" }, doc.ending.claim),
      );
    };
    fill(
      this.head,
      h("h1", { class: "claim" }, `${["Two", "Three", "Four"][docs.length - 2] ?? docs.length} runs`),
      docs.length === 2
        ? h("p", { class: "hint" }, "What differs and what explains it: ", h("code", {}, `holter why ${names[1]} --against ${names[0]}`))
        : null,
      h(
        "div",
        { class: "scroll", tabindex: 0, role: "region", "aria-label": "Figures side by side" },
        h(
          "table",
          { class: "sides" },
          h("thead", {}, h("tr", {}, h("td", {}), docs.map(side))),
          h(
            "tbody",
            {},
            keys.map((key) =>
              h(
                "tr",
                { "data-figure": key },
                h("th", { scope: "row" }, label(key)),
                docs.map((doc) => cell(doc, key)),
              ),
            ),
            h(
              "tr",
              {},
              h("th", { scope: "row" }, "first finding"),
              docs.map((doc) =>
                h("td", {}, doc.findings[0] ? prose(`${doc.findings[0].cause}: ${doc.findings[0].claim}`) : "none"),
              ),
            ),
          ),
        ),
      ),
    );
    const clocks = docs.map((doc) => doc.clock);
    const timing = {
      ...clocks[0],
      length: Math.max(...clocks.map((one) => one.length)),
      last: Math.max(...clocks.map((one) => one.steps.at(-1) ?? 0)),
      steps: clocks.every((one) => one.steps.length > 1) ? clocks[0].steps : [],
    };
    this.board.called = names.join("-");
    this.board.resupply = (axis) => joined(docs, axis);
    this.board.show(joined(docs, "time"), timing, []);
  }
}

// By time all runs begin at zero; by step each run's readings lie where it did that step, whenever that was.
function joined(docs, axis) {
  const found = [];
  for (const key of new Set(docs.flatMap((doc) => doc.charts.map((chart) => chart.key)))) {
    const with_it = docs.map((doc) => [doc, doc.charts.find((chart) => chart.key === key)]).filter(([, chart]) => chart);
    if (with_it.length < 2) continue;
    const sides = with_it.map(([doc, chart]) => new Map(places(doc.clock, chart, axis)));
    const xs = [...new Set(sides.flatMap((side) => [...side.keys()]))].sort((x, y) => x - y);
    const [one] = with_it[0].slice(1);
    const same = with_it.every(([, chart]) => chart.limit?.value === one.limit?.value);
    found.push({
      ...one,
      stacked: false,
      joined: true,
      xs,
      times: xs,
      ahead: [],
      nonfinite: [],
      limit: same ? one.limit : null,
      channels: with_it.map(([doc], n) => ({
        key: doc.run.id,
        label: doc.run.id,
        colour: docs.indexOf(doc),
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
