// One run from left to right: every kernel as wide as it took.
import { html } from "../html.js";
import { time } from "../format.js";

export const FAMILIES = { conv: "conv", winograd: "conv", depthwise: "conv", gemm: "linear", matmul: "linear", linear: "linear", pool: "pool", softmax: "activation", reduce: "reduce", map: "expression", transpose: "shape", copy: "shape", attention: "attention" };
export const familyOf = (row) => FAMILIES[row.kernel] ?? (row.type.match(/conv/i) ? "conv" : "other");

export function Strip({ rows, picked, onPick }) {
  return html`<div class="strip" role="group" aria-label="Kernels in the order they ran">
    ${rows.filter(({ share }) => share > 0).map((row) => html`<button key=${row.order} class=${`family-${familyOf(row)}${row.name === picked ? " picked" : ""}`} style=${{ flexGrow: String(row.share * 1000) }} title=${`${row.name} · ${row.kernel} · ${time(row.time_us / 1e6)}`} aria-label=${`${row.name}, ${row.kernel}, ${time(row.time_us / 1e6)}`} onClick=${() => onPick(row.name)} tabindex=${row.share > 0.01 ? "0" : "-1"}>${row.share > 0.07 ? html`<span>${row.name}</span>` : ""}</button>`)}
  </div>`;
}
