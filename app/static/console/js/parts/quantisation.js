// Report of pnnx-serve quantize: precision, times and error of each layer.
import { html } from "../html.js";
import { bytes, digits, percent, plural, time } from "../format.js";
import { link } from "../route.js";

const TIMES = { float_us: "float32", bf16_us: "bf16", int8_us: "quantised" };
const points = (share) => `${share >= 0 ? "+" : "−"}${Math.abs(100 * share).toFixed(2)}`;

function Accuracy({ found }) {
  return html`<p>Accuracy <b class="number">${(100 * found.before).toFixed(2)} % → ${(100 * found.after).toFixed(2)} %</b> on ${plural(found.samples, "labelled sample")}:
    ${" "}${found.lost} lost, ${found.gained} gained; change ${points(found.change)} points, 95 % confidence ${points(found.interval[0])} to ${points(found.interval[1])}.</p>`;
}

export function Quantisation({ model, report }) {
  const { layers } = report;
  const most = Math.max(1e-12, ...layers.map(({ share }) => share));
  const done = layers.filter(({ precision }) => precision !== "float32");
  const kinds = [...new Set(done.map(({ precision }) => precision))].join(" and ") || "fewer bits";
  const times = Object.keys(TIMES).filter((key) => layers.some((row) => row[key] !== null));
  const titles = ["Layer", "Precision", ...times.map((key) => TIMES[key]), "SQNR", "Share of the error", "Back in float32"];
  const words = [`${done.length} of ${plural(layers.length, "layer")} in ${kinds}`, `${time(report.float_ms / 1e3)} → ${time(report.int8_ms / 1e3)} a run`,
    report.saved_bytes > 0 && `weights ${bytes(report.saved_bytes)} smaller`, report.kept !== null && `${(100 * report.kept).toFixed(3)} % of the outputs' energy kept`, report.samples ? plural(report.samples, "sample") : "made-up inputs"];
  return html`<section class="panel block" aria-label="Quantisation"><h2>Quantisation</h2>
    <p class="soft">${words.filter(Boolean).join(" · ")}</p>
    ${report.accuracy && html`<${Accuracy} found=${report.accuracy} />`}
    <p class="soft fine">Times and errors of each layer alone, measured when the model was quantised. The last column tells what a layer would cost in float32 again: time, and the share of the present error that would vanish.</p>
    <div class="scroll" tabindex="0" role="region" aria-label="Layers"><table class="kernels plain quantised">
      <thead><tr>${titles.map((title) => html`<th key=${title} scope="col">${title}</th>`)}</tr></thead>
      <tbody>${layers.map((row) => html`<tr key=${row.name}>
        <td class="mono" title=${row.type}><a href=${link("graph", model, { op: row.name })}>${row.name}</a></td>
        <td><span class=${row.precision === "float32" ? "chip" : "chip good"}>${row.precision}</span> <span class="soft">${row.reason}</span></td>
        ${times.map((key) => html`<td key=${key} class="number">${row[key] === null ? "" : time(row[key] / 1e6)}</td>`)}
        <td class="number">${row.sqnr_db === null ? "–" : `${digits(row.sqnr_db, 3)} dB`}</td>
        <td class="number"><i style=${{ width: `${(38 * row.share) / most}px` }}></i>${percent(row.share)}</td>
        <td class="number">${row.precision === "float32" ? "" : `${row.restore_us < 0 ? "−" : "+"}${time(Math.abs(row.restore_us) / 1e6)}, −${percent(row.restore_share)}`}</td>
      </tr>`)}</tbody></table></div></section>`;
}
