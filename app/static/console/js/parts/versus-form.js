// Entries to compare: models, versions, back ends, threads; entry 1 is the baseline.
import { html, useRef } from "../html.js";
import { plural } from "../format.js";

export const MOST = 12;
const BACKENDS = [["", "as served"], ["compiled", "machine code"], ["reference", "NumPy layers"]];

const PRECISIONS = [["", "precision as served"], ["float32", "float32"], ["bf16", "bf16"], ["auto", "bf16 where faster"]];

// MODEL:VERSION:BACKEND:THREADS:PRECISION; omitted parts are as served.
export const read = (text) => {
  const [model, version = "", backend = "", threads = "", precision = ""] = text.split(":");
  return backend === "reference" ? { model, version, backend, threads: "", precision: "" } : { model, version, backend, threads, precision };
};
export const spelt = ({ model, version, backend, threads, precision = "" }) => [model, version, backend, ...(backend === "reference" ? [] : [threads, precision])].join(":").replace(/:+$/, "");

function Choice({ label, value, options, onChange, isDisabled }) {
  return html`<select class="field" aria-label=${label} value=${value} disabled=${isDisabled} onChange=${(event) => onChange(event.target.value)}>
    ${options.map(([name, title]) => html`<option key=${name} value=${name} selected=${name === value}>${title}</option>`)}</select>`;
}

function Entry({ entry, at, count, models, threads, isBusy, onChange, onRemove, onFirst }) {
  const versions = models.find(({ name }) => name === entry.model)?.versions ?? [];
  const change = (more) => onChange({ ...entry, ...more });
  const where = `of entry ${at + 1}`;
  return html`<li class="entry"><span class="place number">${at + 1}</span>
    <${Choice} label=${`Model ${where}`} value=${entry.model} options=${models.map(({ name }) => [name, name])} isDisabled=${isBusy} onChange=${(model) => change({ model, version: "" })} />
    <${Choice} label=${`Version ${where}`} value=${entry.version} options=${[["", "newest"], ...versions.map(({ version }) => [String(version), `version ${version}`])]} isDisabled=${isBusy} onChange=${(version) => change({ version })} />
    <${Choice} label=${`Back end ${where}`} value=${entry.backend} options=${BACKENDS} isDisabled=${isBusy} onChange=${(backend) => change({ backend })} />
    <${Choice} label=${`Threads ${where}`} value=${entry.threads} options=${[["", "threads as served"], ...Array.from({ length: threads }, (_, less) => [String(less + 1), plural(less + 1, "thread")])]} isDisabled=${isBusy || entry.backend === "reference"} onChange=${(each) => change({ threads: each })} />
    <${Choice} label=${`Precision ${where}`} value=${entry.precision ?? ""} options=${PRECISIONS} isDisabled=${isBusy || entry.backend === "reference"} onChange=${(precision) => change({ precision })} />
    <span class="moves">${at === 0 ? html`<span class="chip">baseline</span>` : html`<button class="button quiet small" disabled=${isBusy} aria-label=${`Make baseline: entry ${at + 1}`} onClick=${onFirst}>Make baseline</button>`}
      <button class="button quiet icon small" disabled=${isBusy || count < 2} aria-label=${`Remove entry ${at + 1}`} onClick=${onRemove}>✕</button></span></li>`;
}

export function VersusForm({ entries, models, threads, samples, input, isBusy, status, problem, onEntries, onInput, onRun, onCancel }) {
  const file = useRef(null);
  const ready = models.map(({ name, versions }) => ({ name, versions: versions.filter(({ state }) => state === "ready") })).filter(({ versions }) => versions.length);
  const replace = (at, entry) => onEntries(entries.map((each, index) => (index === at ? entry : each)));
  const add = () => {
    const last = entries.at(-1);
    const next = threads > 1 && last.backend !== "reference" && last.threads !== "1" ? { ...last, backend: "compiled", threads: "1" } : { ...last, backend: last.backend === "reference" ? "compiled" : "reference", threads: "" };
    onEntries([...entries, next]);
  };
  const names = [["", "random values"], ...samples.map(({ name }) => [name, name])];
  if (input.request) names.push(["*", input.request.name ?? "input of Try it"]);
  return html`<section class="panel block" aria-label="Entries">
    <ol class="entries">${entries.map((entry, at) => html`<${Entry} key=${at} entry=${entry} at=${at} count=${entries.length} models=${ready} threads=${threads} isBusy=${isBusy} onChange=${(each) => replace(at, each)} onRemove=${() => onEntries(entries.filter((_, index) => index !== at))} onFirst=${() => onEntries([entry, ...entries.filter((_, index) => index !== at)])} />`)}</ol>
    <div class="row"><button class="button small" disabled=${isBusy || entries.length >= MOST} onClick=${add}>Add entry</button></div>
    <div class="row start"><label class="row"><span class="soft">Input</span><select class="field" aria-label="Input" value=${input.name} disabled=${isBusy} onChange=${(event) => onInput({ ...input, name: event.target.value })}>
        ${names.map(([name, title]) => html`<option key=${name} value=${name} selected=${name === input.name}>${title}</option>`)}</select></label>
      <button class="button" disabled=${isBusy} onClick=${() => file.current.click()}>Choose a file</button>
      <input ref=${file} class="hidden" type="file" accept="image/*,.npy,.npz,.json" tabindex="-1" aria-label="Input file" onChange=${({ target: { files: [chosen] } }) => chosen && onInput({ name: "*", request: { body: chosen, type: chosen.type || (/\.npz$/.test(chosen.name) ? "application/x-npz" : /\.npy$/.test(chosen.name) ? "application/x-npy" : "application/octet-stream"), name: chosen.name } })} />
      ${isBusy ? html`<button class="button" onClick=${onCancel}>Cancel</button>` : html`<button class="button primary" onClick=${onRun}>Compare</button>`}
      <p class="soft" role="status">${status}</p></div>
    ${problem && html`<p class="notice" role="alert">${problem}</p>`}
  </section>`;
}
