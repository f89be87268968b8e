// Formatting of numbers, sizes and shapes.
const STEPS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

export const digits = (value, count = 3) =>
  value === 0 ? "0" : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(count)));

export function scaled(value, unit = "") {
  if (value === null || value === undefined) return "";
  for (const [step, prefix] of STEPS) {
    if (Math.abs(value) >= step) return `${Number((value / step).toPrecision(3))} ${prefix}${unit}`;
  }
  return `${Number(value.toPrecision(3))}${unit ? ` ${unit}` : ""}`;
}

export const bytes = (value) => scaled(value, "B");

// [number, unit] of a time in seconds.
export function timeParts(seconds) {
  if (seconds === null || seconds === undefined) return ["–", ""];
  if (seconds >= 1) return [digits(seconds), "s"];
  return seconds >= 0.9995e-3 ? [digits(seconds * 1e3), "ms"] : [digits(seconds * 1e6), "µs"];
}

export const time = (seconds) => timeParts(seconds).join(" ").trim();
export const shape = (dims) => (dims === null || dims === undefined ? "?" : dims.length ? dims.map((dim) => dim ?? "?").join("×") : "scalar");
export const port = ({ shape: dims, dtype, size_names: names }) => `${shape(dims?.map((dim, at) => dim ?? names?.[at] ?? null))} ${dtype ?? ""}`.trim();
export const percent = (share) => `${(100 * share).toFixed(share >= 0.0995 ? 0 : 1)} %`;
export const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

export function value(given) {
  if (Array.isArray(given)) return `(${given.map(value).join(", ")})`;
  return given === null ? "None" : given === true ? "True" : given === false ? "False" : String(given);
}
