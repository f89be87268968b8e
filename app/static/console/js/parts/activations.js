// Output of an operator for this input: its channels as pictures.
import { html, useEffect, useState } from "../html.js";
import { askJson } from "../api.js";
import { shape } from "../format.js";
import { Values } from "./inspector.js";

export function Activations({ model, request, operand: given }) {
  const [graph, setGraph] = useState(null);
  const [operand, setOperand] = useState(given ?? "");
  const [statistics, setStatistics] = useState(null);
  useEffect(() => { askJson(`models/${encodeURIComponent(model)}/graph`).then(setGraph, (error) => setStatistics({ error })); }, [model]);
  const rows = graph?.operators.filter(({ outputs }) => outputs.length > 0) ?? [];
  const first = rows.find(({ type, outputs }) => /Conv|Linear/.test(type) && outputs.length)?.outputs[0] ?? rows[0]?.outputs[0];
  const wanted = operand || first;
  useEffect(() => {
    if (!wanted) return undefined;
    const stop = new AbortController();
    askJson(`models/${encodeURIComponent(model)}/graph/operand`, {
      method: "POST", body: request.body, headers: { "content-type": request.type }, query: { operand: wanted }, signal: stop.signal,
    }).then(setStatistics, (error) => error.name !== "AbortError" && setStatistics({ error }));
    return () => stop.abort();
  }, [wanted, request]);
  return html`<section class="panel activations" aria-label="Activations">
    <div class="row"><h2>Activations</h2>
      <label><span class="hidden">Operator</span><select class="field" value=${wanted} onChange=${(event) => setOperand(event.target.value)}>
        ${rows.map(({ name, type, outputs }) => outputs.map((output) => html`<option key=${output} value=${output} selected=${output === wanted}>${name} · ${type} · ${shape(graph.operands[output]?.shape)}</option>`))}
      </select></label></div>
    <p class="soft fine">Output of this operator for the input above, computed by its NumPy layer. Each channel is scaled separately; dark is its minimum.</p>
    ${statistics?.error && html`<p class="notice" role="alert">${statistics.error.message}</p>`}
    ${statistics && !statistics.error && html`<div class="inside">
      <div class="maps">${statistics.pictures.map((picture, at) => html`<img key=${at} src=${`data:image/png;base64,${picture}`} alt=${`Channel ${at}`} title=${`Channel ${at}`} />`)}
        ${!statistics.pictures.length && html`<p class="soft">Not a picture.</p>`}</div>
      <div class="figures-of"><p class="mono fine">${shape(statistics.shape)} ${statistics.dtype}</p><${Values} statistics=${statistics} /></div>
    </div>`}
  </section>`;
}
