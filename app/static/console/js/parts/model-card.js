// Card of a model: task, inputs and outputs, load.
import { html } from "../html.js";
import { bytes, digits, plural, port, timeParts } from "../format.js";
import { percentiles, rates } from "../live.js";
import { link } from "../route.js";
import { TITLES } from "../views/titles.js";
import { Spark } from "./spark.js";

const SECONDS = 60;
const STATES = { ready: "good", loading: "warn", failed: "bad", unloaded: "" };

function Ports({ model }) {
  const rows = [["in", model.inputs], ["out", model.outputs]];
  return html`<dl class="ports">
    ${rows.map(([word, ports]) => html`<dt key=${word}>${word}</dt>
      <dd class="mono">${ports.slice(0, 3).map((each) => html`<div key=${each.name}>${each.name} ${port(each)}</div>`)}${ports.length > 3 && html`<div>and ${ports.length - 3} more</div>`}</dd>`)}
  </dl>`;
}

function Figure({ title, parts: [number, unit] }) {
  return html`<div><dt>${title}</dt><dd>${number}${unit && html`<small>${unit}</small>`}</dd></div>`;
}

function Batches({ batches }) {
  const rows = Object.entries(batches ?? {}).slice(0, 10);
  if (!rows.some(([size]) => size !== "1")) return null;
  const most = Math.max(...rows.map(([, count]) => count));
  return html`<ul class="batches" aria-label="Runs by batch size">
    ${rows.map(([size, count]) => html`<li key=${size} title=${`${plural(count, "run")} of ${plural(Number(size), "item")}`}><i style=${{ height: `${Math.max(1, (16 * count) / most)}px` }}></i>${size}</li>`)}
  </ul>`;
}

function Doing({ model, version, moments }) {
  const found = rates(moments, model.name, version.version);
  const recent = found.slice(-5);
  const rate = recent.length ? recent.reduce((sum, each) => sum + each, 0) / recent.length : 0;
  const [p50, p99] = percentiles(moments, model.name, version.version, [0.5, 0.99]) ?? [null, null];
  const failures = Object.values(version.statistics.failures).reduce((sum, count) => sum + count, 0);
  const words = [
    plural(version.statistics.requests, "request"), failures && `${plural(failures, "failure")}`,
    version.statistics.runs > 0 && version.statistics.runs !== version.statistics.requests && plural(version.statistics.runs, "run"),
    `${bytes(version.weights_bytes)} of weights`, plural(version.operators, "operator"),
  ];
  return html`<dl class="figures">
      <${Figure} title="Requests" parts=${[digits(rate), "/s"]} />
      <${Figure} title="Median" parts=${timeParts(p50)} />
      <${Figure} title="p99" parts=${timeParts(p99)} />
      <${Figure} title="Queue" parts=${[digits(version.queued), ""]} />
    </dl>
    <${Spark} values=${found} count=${SECONDS} label="Requests a second in the last minute" />
    <div class="spread">
      <p class="small">${words.filter(Boolean).map((word) => html`<span key=${word}>${word}</span>`)}</p>
      <${Batches} batches=${version.batches} />
    </div>`;
}

function Defects({ defects }) {
  if (!defects?.length) return null;
  const lines = defects.map(({ operator, type, error }) => `${type ? `${type} ${operator}: ` : ""}${error}`);
  return html`<div class="notice warn trouble">Compiler defect; the reference back end runs instead:
    <ul>${lines.map((line) => html`<li key=${line}>${line}</li>`)}</ul></div>`;
}

export function ModelCard({ model, moments }) {
  const version = [...model.versions].reverse().find(({ state }) => state === "ready");
  const about = [model.task, version && `v${version.version}`, version?.backend, version?.precision && version.precision !== "float32" && version.precision, version?.threads && plural(version.threads, "thread"), model.default && "default"];
  return html`
    <header>
      <div><h2>${version ? html`<a href=${link("graph", model.name)}>${model.name}</a>` : model.name}</h2>
        <p class="about">${about.filter(Boolean).join(" · ")}</p></div>
        ${model.state === "ready" && model.reason && html`<span class="chip warn">update failed</span>`}
        <span class=${`chip ${STATES[model.state] ?? ""}`}>${model.state}</span>
    </header>
    ${model.reason && html`<p class=${model.state === "failed" ? "notice trouble" : "notice warn trouble"}>${model.reason}${model.state === "failed" ? html`<br />Run <code>pnnx-serve check ${model.name}</code> to list every problem.` : ""}</p>`}
    ${version?.remark && html`<p class="notice calm">${version.remark}</p>`}
    ${version?.compile_failure && html`<p class="notice calm trouble">Runs on the reference: ${version.compile_failure}</p>`}
    <${Defects} defects=${version?.compiler_defects} />
    ${version && html`<${Ports} model=${model} /><${Doing} model=${model} version=${version} moments=${moments} />
      <footer>
        ${Object.entries(TITLES).map(([name, title]) => html`<a key=${name} class="button small" href=${link(name, model.name)} aria-label=${`${title}: ${model.name}`}>${title}</a>`)}
      </footer>`}`;
}
