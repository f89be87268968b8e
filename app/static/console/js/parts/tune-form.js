// Options to measure: every combination is a candidate.
import { html } from "../html.js";
import { plural } from "../format.js";

const BATCHES = [1, 2, 4, 8, 16, 32];
const SECONDS = [0.5, 1, 3, 10];

export const AXES = {
  threads: { title: "Threads", of: ({ threads }) => threads, say: String },
  batch: { title: "Batch", of: ({ most_batch: most }) => BATCHES.filter((each) => each <= most), say: String },
  backend: { title: "Back end", of: () => ["compiled", "reference"], say: (each) => ({ compiled: "Machine code", reference: "NumPy layers" })[each] },
  winograd: { title: "Winograd", of: () => ["auto", "off"], say: (each) => ({ auto: "Where faster", off: "Off" })[each] },
  precision: { title: "Precision", of: () => ["float32", "bf16", "auto"], say: (each) => ({ auto: "bf16 where faster" })[each] ?? each },
  passes: { title: "Passes", of: ({ passes }) => ["none", "all", ...passes], say: (each) => ({ none: "All on", all: "All off" })[each] ?? `Without ${each.replaceAll("_", " ")}` },
};
const SHOWN_PASSES = 2;

// Options given by the URL, or the defaults.
export function picksOf(query, about) {
  const usual = { threads: about.threads, batch: [1, 4].filter((each) => each <= about.most_batch), backend: ["compiled"], winograd: ["auto"], precision: ["float32"], passes: ["none"] };
  return Object.fromEntries(Object.entries(AXES).map(([name, { of }]) => {
    const picked = query[name]?.split(",").map((each) => of(about).find((known) => String(known) === each)).filter((each) => each !== undefined);
    return [name, picked?.length ? picked : usual[name]];
  }));
}

export const count = (picks) => {
  const compiled = picks.backend.includes("compiled") ? picks.threads.length * picks.winograd.length * picks.precision.length * picks.passes.length : 0;
  return (compiled + Number(picks.backend.includes("reference"))) * picks.batch.length;
};

export const gridOf = (picks, seconds, sample) => ({
  threads: picks.threads, batch: picks.batch, backend: picks.backend, winograd: picks.winograd, precision: picks.precision,
  passes_off: picks.passes.map((each) => (each === "none" ? [] : [each])), seconds, sample: sample || null,
});

function Axis({ name, about, picks, isBusy, onChange }) {
  const { title, of, say } = AXES[name];
  const all = of(about);
  const toggle = (each) => {
    const next = picks.includes(each) ? picks.filter((other) => other !== each) : all.filter((other) => picks.includes(other) || other === each);
    if (next.length) onChange(name, next);
  };
  const buttons = (some) => some.map((each) => html`<button key=${each} class="button small" aria-pressed=${String(picks.includes(each))} disabled=${isBusy} onClick=${() => toggle(each)}>${say(each)}</button>`);
  const hidden = name === "passes" ? all.slice(SHOWN_PASSES) : [];
  return html`<div class="axis"><h3 id=${`axis-${name}`}>${title}</h3><div class="row" role="group" aria-labelledby=${`axis-${name}`}>${buttons(hidden.length ? all.slice(0, SHOWN_PASSES) : all)}
    ${hidden.length > 0 && html`<details open=${hidden.some((each) => picks.includes(each))}><summary>One at a time</summary><div class="row">${buttons(hidden)}</div></details>`}</div></div>`;
}

export function TuneForm({ about, samples, picks, seconds, sample, isBusy, onPick, onSeconds, onSample, onStart, onCancel }) {
  const many = count(picks);
  const isTooMany = many > about.most_candidates;
  const lacksSample = about.needs_sample && !sample;
  return html`<section class="panel tune-form" aria-label="Candidates">
    ${Object.keys(AXES).map((name) => html`<${Axis} key=${name} name=${name} about=${about} picks=${picks[name]} isBusy=${isBusy} onChange=${onPick} />`)}
    <div class="axis"><h3>Input</h3><div class="row">
      <label><span class="hidden">Input</span><select class="field" value=${sample} disabled=${isBusy} onChange=${(event) => onSample(event.target.value)}>
        ${!about.needs_sample && html`<option value="" selected=${!sample}>random values</option>`}
        ${about.needs_sample && html`<option value="" selected=${!sample} disabled>choose a sample</option>`}
        ${samples.map(({ name }) => html`<option key=${name} value=${name} selected=${name === sample}>${name}</option>`)}</select></label>
      <label class="row"><span class="soft">for</span><select class="field" aria-label="Seconds for each candidate" value=${seconds} disabled=${isBusy} onChange=${(event) => onSeconds(Number(event.target.value))}>
        ${SECONDS.map((each) => html`<option key=${each} value=${each} selected=${each === seconds}>${each} s each</option>`)}</select></label></div></div>
    <div class="row start">
      ${isBusy ? html`<button class="button" onClick=${onCancel}>Cancel</button>` : html`<button class="button primary" disabled=${isTooMany || lacksSample} onClick=${onStart}>Measure</button>`}
      <p class=${isTooMany ? "refused" : "soft"} role="status">${plural(many, "candidate")}${isTooMany ? `, at most ${about.most_candidates} at once` : lacksSample ? ": the input size is dynamic, choose a sample" : `, ${Math.ceil(many * seconds)} s of runs plus compiling`}</p></div>
    <p class="soft fine">Served models are not changed. Their requests have priority, but may wait for a run in progress; times measured meanwhile are marked as disturbed.</p>
  </section>`;
}
