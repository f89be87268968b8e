// Time of a request by stage.
import { html } from "../html.js";
import { time } from "../format.js";

const PARTS = [["queue", "queueing"], ["decode", "decoding"], ["preprocess", "preprocessing"], ["infer", "inference"], ["postprocess", "postprocessing"]];

export function Timing({ timing, seconds }) {
  const rows = PARTS.map(([name, title]) => [name, title, timing[`${name}_ms`] ?? 0]);
  const rest = Math.max(0, seconds * 1e3 - timing.total_ms);
  const total = Math.max(1e-6, rows.reduce((sum, [, , ms]) => sum + ms, 0));
  return html`<section class="timing" aria-label="Time by stage">
    <h3>${time(timing.total_ms / 1e3)} in the server, ${time(rest / 1e3)} in transit</h3>
    <div class="split" aria-hidden="true">${rows.map(([name, , ms]) => html`<i key=${name} class=${name} style=${{ width: `${(100 * ms) / total}%` }}></i>`)}</div>
    <ul>${rows.map(([name, title, ms]) => html`<li key=${name}><i class=${name}></i>${title} <span class="number">${time(ms / 1e3)}</span></li>`)}</ul>
  </section>`;
}
