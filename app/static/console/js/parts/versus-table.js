// Table of all entries: answer, latency, difference from entry 1.
import { html } from "../html.js";
import { digits, plural, shape, time } from "../format.js";
import { said } from "./compare.js";

export const little = (value) => (value === 0 ? "identical" : value === null || value === undefined ? "–" : value < 1e-3 || value >= 1e6 ? value.toExponential(1) : digits(value, 2));

export const nameOf = ({ model, version, backend, threads, precision }) => `${model} v${version}, ${backend === "reference" ? "NumPy layers" : plural(threads, "thread")}${precision && precision !== "float32" ? `, ${precision}` : ""}`;

function answerOf({ predictions, outputs }) {
  if (predictions) return said({ predictions });
  return outputs?.map((each) => `${each.name} ${shape(each.shape)}`).join(", ") ?? "";
}

function Apart({ row }) {
  const outputs = row.outputs?.filter((each) => "relative" in each) ?? [];
  if (row.id === 0 || !row.outputs) return html`<td class="number">${row.id === 0 ? html`<span class="soft">–</span>` : ""}</td>`;
  if (!outputs.length) return html`<td class="soft">different outputs</td>`;
  const worst = outputs.reduce((one, other) => ((other.relative ?? Infinity) > (one.relative ?? Infinity) ? other : one));
  return html`<td class="number" title=${worst.apart ?? `largest difference ${worst.max_abs}, allowed ${worst.allowed}`}>${worst.apart ? html`<span class="refused">${worst.apart.startsWith("shape") ? "different shape" : "not comparable"}</span>` : html`${little(worst.max_abs)}${worst.diverges && html` <span class="chip bad">beyond tolerance</span>`}`}</td>`;
}

function First({ row }) {
  const { walked } = row;
  if (row.id === 0) return html`<td></td>`;
  if (!walked) return html`<td class="soft">${row.doing ?? ""}</td>`;
  if (walked.problem) return html`<td class="refused">${walked.problem}</td>`;
  if (!walked.rows.length) return html`<td class="soft">no operators with equal names</td>`;
  return html`<td>${walked.first ? html`<span class="mono refused">${walked.first.operator}</span>${walked.first.kernel && html` <span class="soft">with ${walked.first.kernel}</span>`}` : html`<span class="good-word">none</span>`} <span class="soft">of ${walked.rows.length}</span></td>`;
}

export function VersusTable({ rows, picked, onPick }) {
  const most = Math.max(1e-12, ...rows.map((row) => row.median_s ?? 0));
  const first = rows[0]?.median_s;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Entries"><table class="kernels versus-table">
    <thead><tr>${["Entry", "Answer", "Median latency", "Relative to entry 1", "Max error", "First operator beyond tolerance"].map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${row.id} class=${row.id === picked ? "picked" : ""} onClick=${() => row.id && onPick(row.id)}>
      <td>${row.id ? html`<button class="link" aria-pressed=${String(row.id === picked)} onClick=${() => onPick(row.id)}>${nameOf(row)}</button>` : nameOf(row)}${row.served && html` <span class="chip">as served</span>`}</td>
      ${row.problem ? html`<td colspan="5" class="refused">${row.problem}</td>` : html`<td>${answerOf(row) || html`<span class="soft">${row.doing ?? "waiting"}</span>`}</td>
        <td class="number">${row.median_s && html`<i style=${{ width: `${Math.max(1, (64 * row.median_s) / most)}px` }}></i>${time(row.median_s)}${row.disturbed > 0 && html` <span class="chip warn" title="Requests were answered meanwhile">disturbed</span>`}`}</td>
        <td class="number">${row.median_s && first && row.id ? `${digits(row.median_s / first, 2)} ×` : ""}</td><${Apart} row=${row} /><${First} row=${row} />`}
    </tr>`)}</tbody></table></div>`;
}
