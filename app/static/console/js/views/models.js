// All models, as they are doing now.
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
      <p class="lead number">${moment ? lead(moment) : "Asking the server…"}</p>
    </div>
    ${live.isLive === false && html`<p class="notice" role="alert">${moment ? "The server is away. What is shown is what it told last; this page goes on by itself when it is back." : live.error?.message ?? "The server is away."}</p><br />`}
    ${moment && !moment.models.length && html`<div class="panel empty"><h2>There is no model yet</h2><p>Put a folder with a PNNX pair into the store, and it appears here.</p></div>`}
    <ul class="cards">
      ${moment?.models.map((model) => html`<li key=${model.name} class=${`panel model ${model.state}`}><${ModelCard} model=${model} moments=${live.moments} /></li>`)}
    </ul>
  </div>`;
}
