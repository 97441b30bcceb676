// A chart as numbers, for a spreadsheet or a script: one line for each reading, in seconds, bytes and per cent as recorded.

import { stepAt } from "holter/steps.js";

const UNITS = { bytes: "bytes", seconds: "seconds", percent: "percent", rate: "per second", number: "" };
const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

export function csvOf(data, timing, axis) {
  const unit = UNITS[data.unit] ? ` (${UNITS[data.unit]})` : "";
  const bySteps = !data.xs && timing.steps.length > 1;
  const heads = [data.xs && axis === "step" ? "step" : "seconds", ...(bySteps ? ["step"] : [])];
  const rows = [[...heads, ...data.channels.map((one) => `${one.label}${unit}`)]];
  (data.xs ?? data.times).forEach((x, at) => {
    const step = bySteps ? stepAt(timing, x) : null;
    const values = data.channels.map((one) => one.values[at] ?? (nonfiniteAt(data, x) ? "nan" : ""));
    rows.push([x, ...(bySteps ? [step === null ? "" : Math.floor(step)] : []), ...values]);
  });
  return rows.map((row) => `${row.map((cell) => quoted(String(cell))).join(",")}\n`).join("");
}

// The time during which the value was NaN or infinite, if this is one.
export const nonfiniteAt = (data, time) =>
  (data.nonfinite ?? []).find((one) => time >= one.since && time <= one.until) ?? null;

export function save(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
