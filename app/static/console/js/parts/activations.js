// Output of an operator for this input: its channels as pictures.
import { html, useEffect, useState } from "../html.js";
import { askJson } from "../api.js";
import { shape } from "../format.js";
import { Values } from "./inspector.js";

export function Activations({ model, request, operand: given }) {
  const [graph, setGraph] = useState(null);
  const [operand, setOperand] = useState(given ?? "");
  const [told, setTold] = useState(null);
  useEffect(() => { askJson(`models/${encodeURIComponent(model)}/graph`).then(setGraph, (error) => setTold({ error })); }, [model]);
  const rows = graph?.operators.filter(({ outputs }) => outputs.length > 0) ?? [];
  const first = rows.find(({ type, outputs }) => /Conv|Linear/.test(type) && outputs.length)?.outputs[0] ?? rows[0]?.outputs[0];
  const wanted = operand || first;
  useEffect(() => {
    if (!wanted) return undefined;
    const stop = new AbortController();
    askJson(`models/${encodeURIComponent(model)}/graph/operand`, {
      method: "POST", body: request.body, headers: { "content-type": request.type }, query: { operand: wanted }, signal: stop.signal,
    }).then(setTold, (error) => error.name !== "AbortError" && setTold({ error }));
    return () => stop.abort();
  }, [wanted, request]);
  return html`<section class="panel activations" aria-label="Activations">
    <div class="row"><h2>Activations</h2>
      <label><span class="hidden">Operator</span><select class="field" value=${wanted} onChange=${(event) => setOperand(event.target.value)}>
        ${rows.map(({ name, type, outputs }) => outputs.map((output) => html`<option key=${output} value=${output} selected=${output === wanted}>${name} · ${type} · ${shape(graph.operands[output]?.shape)}</option>`))}
      </select></label></div>
    <p class="soft fine">Output of this operator for the input above, computed by its NumPy layer. Each channel is scaled separately; dark is its minimum.</p>
    ${told?.error && html`<p class="notice" role="alert">${told.error.message}</p>`}
    ${told && !told.error && html`<div class="inside">
      <div class="maps">${told.pictures.map((picture, at) => html`<img key=${at} src=${`data:image/png;base64,${picture}`} alt=${`Channel ${at}`} title=${`Channel ${at}`} />`)}
        ${!told.pictures.length && html`<p class="soft">Not a picture.</p>`}</div>
      <div class="figures-of"><p class="mono fine">${shape(told.shape)} ${told.dtype}</p><${Values} told=${told} /></div>
    </div>`}
  </section>`;
}
