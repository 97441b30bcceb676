// What is drawn over a chart's lines: the limit, the forecast, the marks, and the span a finding points at.

import { style } from "holter/dom.js";

export function under(chart) {
  const { plot, board, data } = chart;
  const { ctx, bbox } = plot;
  for (const one of data.nonfinite ?? []) {
    const [from, to] = [one.since, one.until].map((time) => chart.place(time));
    ctx.save();
    clip(ctx, bbox);
    ctx.fillStyle = style("--nonfinite");
    ctx.fillRect(from, bbox.top, Math.max(2 * devicePixelRatio, to - from), bbox.height);
    line(ctx, style("--bad"), [], 1.2 * devicePixelRatio, [from, bbox.top], [from, bbox.top + bbox.height]);
    ctx.fillStyle = style("--bad");
    ctx.font = `${11 * devicePixelRatio}px ${style("--sans")}`;
    const right = from + 60 * devicePixelRatio > bbox.left + bbox.width;
    ctx.textAlign = right ? "right" : "left";
    ctx.fillText("NaN", from + (right ? -4 : 4) * devicePixelRatio, bbox.top + bbox.height - 6 * devicePixelRatio);
    ctx.restore();
  }
  const chosen = board.chosen;
  if (!chosen || (chosen.charts.length && !chosen.charts.includes(chart.key))) return;
  const [from, to] = chosen.span.map((time) => chart.place(time));
  ctx.save();
  clip(ctx, bbox);
  ctx.fillStyle = style("--mark-soft");
  ctx.fillRect(from, bbox.top, Math.max(2 * devicePixelRatio, to - from), bbox.height);
  ctx.restore();
}

export function over(chart) {
  const { plot, data, board } = chart;
  const { ctx, bbox } = plot;
  const dot = devicePixelRatio;
  ctx.save();
  clip(ctx, bbox, 8 * dot);
  if (data.limit) {
    const y = Math.round(plot.valToPos(data.limit.value, "y", true));
    line(ctx, style("--bad"), [5 * dot, 4 * dot], 1.2 * dot, [bbox.left, y], [bbox.left + bbox.width, y]);
  }
  for (const ahead of data.ahead.slice(-3)) forecast(chart, ctx, ahead);
  for (const mark of board.marks) {
    const x = Math.round(chart.place(mark.time));
    const shown = mark.finding === undefined || mark.finding === board.chosen?.index;
    if (mark.finding !== undefined && !shown) continue;
    const colour = style(mark.kind === "act" ? "--good" : mark.finding === undefined ? "--faint" : "--bad");
    if (mark.finding !== undefined || mark.kind === "act")
      line(ctx, colour, [2 * dot, 2 * dot], dot, [x, bbox.top], [x, bbox.top + bbox.height]);
    ctx.fillStyle = colour;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top + 5 * dot);
    ctx.lineTo(x - 3.5 * dot, bbox.top - 1 * dot);
    ctx.lineTo(x + 3.5 * dot, bbox.top - 1 * dot);
    ctx.fill();
  }
  ctx.restore();
}

// What was foretold, from where it was told to the limit, with the earliest and the latest time as a wedge.
function forecast(chart, ctx, ahead) {
  const { plot } = chart;
  const from = [chart.place(ahead.since), plot.valToPos(ahead.used, "y", true)];
  const y = plot.valToPos(ahead.limit, "y", true);
  const [early, when, late] = [ahead.earliest, ahead.when, ahead.latest].map((time) => chart.place(time));
  ctx.fillStyle = style("--ahead-soft");
  ctx.beginPath();
  ctx.moveTo(...from);
  ctx.lineTo(early, y);
  ctx.lineTo(late, y);
  ctx.fill();
  const dot = devicePixelRatio;
  line(ctx, style("--ahead"), [4 * dot, 3 * dot], 1.2 * dot, from, [when, y]);
}

function line(ctx, colour, dash, width, from, to) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = width;
  ctx.setLineDash(dash);
  ctx.beginPath();
  ctx.moveTo(...from);
  ctx.lineTo(...to);
  ctx.stroke();
  ctx.setLineDash([]);
}

function clip(ctx, bbox, above = 0) {
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top - above, bbox.width, bbox.height + above);
  ctx.clip();
}
