// Tensor inputs: dynamic sizes, values (generated or typed), or a file.
import { html, useRef, useState } from "../html.js";
import { port } from "../format.js";
import { base64, fill, known } from "./tensors.js";

const FIRST = 1;
const DYNAMIC_SIZE = 64;
const MOST_TYPED = 64;

function Input({ spec, state, onChange }) {
  const change = (at, value) => onChange({ ...state, shape: state.shape.map((dim, index) => (index === at ? Math.max(0, Number(value) || 0) : dim)) });
  const count = state.shape.reduce((product, dim) => product * dim, 1);
  return html`<fieldset class="tensor"><legend class="mono">${spec.name} <span class="soft">${port(spec)}</span></legend>
    <div class="row">
      ${spec.shape?.map((dim, at) => html`<input key=${at} class="field dim mono" inputmode="numeric" aria-label=${`Dimension ${at} of ${spec.name}`} value=${state.shape[at]} disabled=${dim !== null && at > 0} onInput=${(event) => change(at, event.target.value)} />`)}
      <select class="field" aria-label=${`Values of ${spec.name}`} value=${state.how} onChange=${(event) => onChange({ ...state, how: event.target.value })}>
        ${["random", "zeros", "ones", ...(count <= MOST_TYPED ? ["typed"] : [])].map((how) => html`<option key=${how} value=${how} selected=${how === state.how}>${how}</option>`)}
      </select>
    </div>
    ${state.how === "typed" && count <= MOST_TYPED && html`<div class="row">${Array.from({ length: count }, (_, at) => html`<input key=${at} class="field dim mono" type="number" step="any" aria-label=${`Value ${at} of ${spec.name}`} value=${state.values?.[at] ?? 0} onInput=${(event) => onChange({ ...state, values: Array.from({ length: count }, (__, index) => (index === at ? Number(event.target.value) : state.values?.[index] ?? 0)) })} />`)}</div>`}
  </fieldset>`;
}

export function TensorInput({ about, onRun }) {
  const [states, setStates] = useState(() => about.inputs.map(({ shape }) => ({ shape: (shape ?? []).map((dim, at) => dim ?? (at ? DYNAMIC_SIZE : FIRST)), how: "random" })));
  const file = useRef(null);
  const unknown = about.inputs.filter(({ dtype }) => !known(dtype));
  const run = () => {
    const inputs = Object.fromEntries(about.inputs.map(({ name, dtype }, at) => {
      const { shape, how } = states[at];
      return [name, { shape, dtype, b64: base64(fill(shape, dtype, how, states[at].values)) }];
    }));
    onRun({ body: JSON.stringify({ inputs }), type: "application/json", name: "request.json", inputs: about.inputs.map((spec, at) => ({ ...spec, ...states[at] })) });
  };
  const take = (chosen) => chosen && onRun({ body: chosen, type: chosen.name.endsWith(".npz") ? "application/x-npz" : "application/x-npy", name: chosen.name });
  return html`
    ${about.inputs.map((spec, at) => html`<${Input} key=${spec.name} spec=${spec} state=${states[at]} onChange=${(state) => setStates(states.map((each, index) => (index === at ? state : each)))} />`)}
    ${unknown.length > 0 && html`<p class="notice calm">Inputs of ${unknown[0].dtype} are sent as .npy.</p>`}
    <div class="row">
      <button class="button primary" disabled=${unknown.length > 0} onClick=${run}>Run</button>
      <button class="button" onClick=${() => file.current.click()}>${about.inputs.length > 1 ? "Send an .npz" : "Send an .npy"}</button>
      <input ref=${file} class="hidden" type="file" accept=".npy,.npz" tabindex="-1" aria-label="Tensor file" onChange=${(event) => take(event.target.files[0])} />
    </div>`;
}
