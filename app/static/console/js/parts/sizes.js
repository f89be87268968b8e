// Input of a profile: the model's own sizes, others, or a sample.
import { html, useState } from "../html.js";
import { plural } from "../format.js";

const DYNAMIC_SIZE = 64;
const isDynamic = ({ shape }) => shape === null || shape.some((dim, at) => dim === null && at > 0);

// Input given by the URL, or null if the reader must choose one.
export function askedOf(query, about, samples) {
  if (query.sample) return { sample: query.sample };
  if (query.shape) return { shape: query.shape.split(";") };
  return about.inputs.some(isDynamic) && !about.preprocess && !samples.length ? null : {};
}

export function Sizes({ about, samples, profile, asked, isBusy, onRun }) {
  const [shapes, setShapes] = useState(() => about.inputs.map(({ name, shape }, at) => profile?.inputs[name] ?? asked?.shape?.[at]?.split(",").map(Number) ?? (shape ?? []).map((dim, place) => dim ?? (place ? DYNAMIC_SIZE : 1))));
  const first = asked?.sample ?? (profile?.input.startsWith("sample ") ? profile.input.slice(7) : "");
  const [sample, setSample] = useState(samples.some(({ name }) => name === first) ? first : "");
  const change = (input, at, text) => setShapes(shapes.map((shape, number) => (number === input ? shape.map((dim, place) => (place === at ? Math.max(0, Number.parseInt(text, 10) || 0) : dim)) : shape)));
  const run = (event) => {
    event.preventDefault();
    onRun(sample ? { sample } : { shape: shapes.map((shape) => shape.join(",") || "scalar") });
  };
  return html`<form class="sizes" onSubmit=${run} aria-label="Input of the profile">
    ${samples.length > 0 && html`<label class="soft">On <select class="field" value=${sample} onChange=${(event) => setSample(event.target.value)}>
      <option value="" selected=${!sample}>zeros</option>${samples.map(({ name }) => html`<option key=${name} value=${name} selected=${name === sample}>${name}</option>`)}</select></label>`}
    ${!sample && about.inputs.map((spec, input) => html`<span key=${spec.name} class="sized"><span class="mono soft">${about.inputs.length > 1 || !samples.length ? spec.name : ""}</span>
      ${shapes[input].map((dim, at) => html`${at > 0 && html`<span class="soft" aria-hidden="true">×</span>`}<input class="field dim mono" inputmode="numeric" aria-label=${`Dimension ${at} of ${spec.name}`} value=${dim} disabled=${spec.shape?.[at] !== null && at > 0} onInput=${(event) => change(input, at, event.target.value)} />`)}</span>`)}
    <button class="button small" disabled=${isBusy}>${isBusy ? "Running…" : profile ? "Run again" : "Run"}</button>
    ${about.inputs.some(isDynamic) && html`<span class="soft fine">${plural(about.inputs.filter(isDynamic).length, "input")} of dynamic size</span>`}
  </form>`;
}
