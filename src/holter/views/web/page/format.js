// Numbers as people read them: the same words as units.py gives, for what only the page knows (axes, hover).

export function size(bytes) {
  const sign = bytes < 0 ? "-" : "";
  const n = Math.abs(bytes);
  for (const [unit, factor] of [
    ["TB", 1e12],
    ["GB", 1e9],
    ["MB", 1e6],
    ["KB", 1e3],
  ]) {
    if (n >= factor * 0.9995) {
      const value = n / factor;
      return `${sign}${value >= 99.95 ? value.toFixed(0) : value.toFixed(1)} ${unit}`;
    }
  }
  return `${sign}${n.toFixed(0)} bytes`;
}

export function duration(seconds) {
  if (!(seconds >= 0) || !isFinite(seconds)) return "an unknown time";
  if (seconds < 0.0005) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 0.9995) return `${(seconds * 1e3).toFixed(0)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  for (const [big, small, factor, part] of [
    ["d", "h", 86400, 3600],
    ["h", "min", 3600, 60],
    ["min", "s", 60, 1],
  ]) {
    if (whole >= factor) {
      const rest = Math.floor((whole % factor) / part);
      return rest ? `${Math.floor(whole / factor)} ${big} ${rest} ${small}` : `${Math.floor(whole / factor)} ${big}`;
    }
  }
  return `${whole} s`;
}

export const count = (n) => Math.round(n).toLocaleString("en-US");

export function plain(value) {
  if (value === 0) return "0";
  const n = Math.abs(value);
  if (n >= 1e6 || n < 1e-3) return value.toExponential(2).replace("e+", "e");
  return String(Number(value.toPrecision(4)));
}

const rate = (value) =>
  value >= 100 ? count(value) : value >= 0.05 || value === 0 ? value.toFixed(1) : value.toPrecision(2);
const percent = (value) => `${value >= 9.95 || value === 0 ? value.toFixed(0) : value.toFixed(1)} %`;

// One reading of a chart, by the chart's unit.
export const reading = { bytes: size, seconds: duration, percent, rate, number: plain };

// Time on an axis: no more than the distance between two ticks asks for.
export function clock(seconds, apart) {
  const sign = seconds < 0 ? "-" : "";
  const all = Math.abs(seconds);
  if (apart < 1) return `${sign}${all.toFixed(1)} s`;
  const s = Math.round(all),
    d = Math.floor(s / 86400),
    h = Math.floor((s % 86400) / 3600),
    m = Math.floor((s % 3600) / 60);
  const two = (n) => String(n).padStart(2, "0");
  if (s < 60 && apart < 60) return `${sign}${s} s`;
  if (d) return apart >= 3600 ? `${sign}${d} d ${h} h` : `${sign}${d} d ${two(h)}:${two(m)}`;
  if (h)
    return apart >= 3600 ? `${sign}${h} h` : `${sign}${h}:${two(m)}${apart < 60 ? ":" + two(s % 60) : ""} h`.trim();
  return apart >= 60 && s % 60 === 0 ? `${sign}${m} min` : `${sign}${m}:${two(s % 60)}`;
}

export const wall = (seconds) =>
  new Date(seconds * 1000).toLocaleString("en-GB", {
    day: "numeric",
    month: "short",
    hour: "2-digit",
    minute: "2-digit",
  });
