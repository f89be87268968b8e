// All models with their current load.
import { html } from "../html.js";
import { bytes, plural, time } from "../format.js";
import { ModelCard } from "../parts/model-card.js";

function lead(moment) {
  const { models, process } = moment;
  const failed = models.filter((model) => model.state === "failed").length;
  const parts = [plural(models.length, "model"), plural(process.threads, "thread")];
  if (process.workers > 1) parts.push(plural(process.workers, "worker"));
  if (process.bytes) parts.push(`${bytes(process.bytes)} in use`);
  parts.push(`up ${age(moment.at - process.started)}`);
  if (failed) parts.unshift(`${failed} failed`);
  return parts.join(" · ");
}

function age(seconds) {
  if (seconds < 120) return time(Math.max(1, Math.round(seconds)));
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

export function ModelsView({ live }) {
  const moment = live.moments.at(-1);
  return html`<div class="page">
    <div class="title">
      <h1>Models</h1>
      <p class="lead number">${moment ? lead(moment) : "Loading…"}</p>
    </div>
    ${live.isLive === false && html`<p class="notice" role="alert">${moment ? "Disconnected from the server. The figures are the last ones received; the page reconnects by itself." : live.error?.message ?? "Disconnected from the server."}</p><br />`}
    ${moment && !moment.models.length && html`<div class="panel empty"><h2>No models yet</h2><p>Put a folder with a PNNX pair or an ONNX file into the store; it appears here.</p></div>`}
    <ul class="cards">
      ${moment?.models.map((model) => html`<li key=${model.name} class=${`panel model ${model.state}`}><${ModelCard} model=${model} moments=${live.moments} /></li>`)}
    </ul>
  </div>`;
}
