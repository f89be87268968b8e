// Sortable table of the kernels of a run.
import { html, useState } from "../html.js";
import { percent, scaled, time } from "../format.js";

const COLUMNS = [["name", "Operator", (row) => row.name], ["kernel", "Kernel", (row) => row.kernel], ["time_us", "Time", (row) => time(row.time_us / 1e6)],
  ["share", "Share", (row) => percent(row.share)], ["gflops", "Rate", (row) => (row.flops > 0 && row.gflops ? scaled(row.gflops * 1e9, "FLOP/s") : "")]];

export function Table({ rows, picked, onPick }) {
  const [[key, isDown], setOrder] = useState(["time_us", true]);
  const sorted = [...rows].sort((a, b) => {
    const [one, other] = [a[key] ?? 0, b[key] ?? 0];
    return (isDown ? -1 : 1) * (typeof one === "string" ? one.localeCompare(other) : one - other);
  });
  const most = Math.max(...rows.map(({ time_us: each }) => each));
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Kernels"><table class="kernels">
    <thead><tr>${COLUMNS.map(([name, title]) => html`<th key=${name} scope="col" aria-sort=${name === key ? (isDown ? "descending" : "ascending") : "none"}><button onClick=${() => setOrder([name, name === key ? !isDown : name !== "name" && name !== "kernel"])}>${title}${name === key ? (isDown ? " ↓" : " ↑") : ""}</button></th>`)}</tr></thead>
    <tbody>${sorted.map((row) => html`<tr key=${row.order} class=${row.name === picked ? "picked" : ""} onClick=${() => onPick(row.name)}>
      ${COLUMNS.map(([name, , text], at) => html`<td key=${name} class=${at > 1 ? "number" : "mono"}>${at === 0 ? html`<button class="link mono">${text(row)}</button>` : name === "share" ? html`<i style=${{ width: `${(38 * row.time_us) / most}px` }}></i>${text(row)}` : text(row)}</td>`)}
    </tr>`)}</tbody></table></div>`;
}
