// Details of the operators of a card.
import { html, useEffect, useState } from "../html.js";
import { askJson } from "../api.js";
import { bytes, digits, port, scaled, shape, time, value } from "../format.js";
import { link } from "../route.js";
import { Histogram } from "./histogram.js";
import { PRECISIONS } from "./precision.js";

const KERNELS = {
  fused: (row) => `Fused into the kernel of ${row.fused_into}; its output is never written to memory.`,
  view: () => "No work: its result is a view, or constant.",
  removed: () => "Removed by an optimisation pass.",
  reference: (row) => (row.why ? `Runs on the NumPy reference: ${row.why}` : "Runs on the NumPy reference."),
};

function Kernel({ row }) {
  if (!row.kernel) return null;
  const text = KERNELS[row.kernel]?.(row) ?? "Machine code for these shapes and this processor.";
  return html`<section><h3>Kernel</h3><p><span class=${`chip ${row.kernel === "reference" ? "warn" : "good"}`}>${row.kernel}</span></p><p class="soft fine">${text}</p></section>`;
}

function Parameters({ params }) {
  const rows = Object.entries(params).filter(([name]) => name !== "expr");
  if (!rows.length) return null;
  return html`<section><h3>Parameters</h3><dl class="pairs">${rows.map(([name, given]) => html`<dt key=${name}>${name}</dt><dd class="mono">${value(given)}</dd>`)}</dl></section>`;
}

export function Values({ statistics }) {
  const rows = [["min", statistics.min], ["max", statistics.max], ["mean", statistics.mean], ["std", statistics.std]].filter(([, number]) => number !== undefined);
  return html`
    ${statistics.histogram && html`<${Histogram} counts=${statistics.histogram} low=${statistics.min} high=${statistics.max} />`}
    <dl class="pairs number">${rows.map(([name, number]) => html`<dt key=${name}>${name}</dt><dd class="mono">${typeof number === "number" ? digits(number, 5) : number}</dd>`)}
      ${statistics.not_finite > 0 && html`<dt>not finite</dt><dd class="mono">${digits(statistics.not_finite)}</dd>`}
      ${statistics.zeros > 0 && html`<dt>zeros</dt><dd class="mono">${((100 * statistics.zeros) / statistics.seen).toFixed(1)} %</dd>`}
    </dl>
    <details><summary>First values</summary><p class="mono values">${statistics.first.map((each) => (typeof each === "number" ? digits(each, 4) : each)).join("  ")}</p></details>`;
}

function Attribute({ model, operator, name, about }) {
  const [statistics, setStatistics] = useState(null);
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    if (!isOpen || statistics) return;
    askJson(`models/${encodeURIComponent(model)}/graph/attribute`, { query: { operator, attribute: name } })
      .then(setStatistics, (error) => setStatistics({ error: error.message }));
  }, [isOpen]);
  return html`<details class="attribute" onToggle=${(event) => setOpen(event.target.open)}>
    <summary><span class="mono">${name}</span> <span class="soft mono">${port(about)}</span> <span class="soft number">${bytes(about.bytes)}</span></summary>
    ${statistics?.error && html`<p class="notice">${statistics.error}</p>`}
    ${isOpen && !statistics && html`<p class="soft fine">Reading…</p>`}
    ${statistics && !statistics.error && html`<${Values} statistics=${statistics} />`}
  </details>`;
}

function Operands({ title, names, operands, onGo }) {
  if (!names.length) return null;
  return html`<section><h3>${title}</h3><ul class="operands">${names.map((name, at) => {
    const operand = operands[name];
    const others = title === "Inputs" ? [operand?.producer].filter(Boolean) : operand?.consumers ?? [];
    return html`<li key=${at}><span class="mono">${operand ? port(operand) : name}</span>
      ${others.slice(0, 6).map((other) => html`<button key=${other} class="link mono" onClick=${() => onGo(other)}>${title === "Inputs" ? "← " : "→ "}${other}</button>`)}</li>`;
  })}</ul></section>`;
}

export function Operator({ model, row, graph, precision, onGo }) {
  const attributes = Object.entries(row.attributes);
  return html`
    <header><p class="mono type">${row.type}</p><h2 class="name">${row.name}</h2></header>
    ${row.expression && html`<section><h3>Formula</h3><p class="formula mono">${row.expression}</p></section>`}
    <${Kernel} row=${row} />
    ${precision && html`<section><h3>Precision</h3><p>${PRECISIONS[precision]}</p></section>`}
    ${(row.flops > 0 || row.time_us > 0) && html`<section><h3>Work</h3><dl class="pairs number">
      ${row.flops > 0 && html`<dt>operations</dt><dd>${scaled(row.flops, "FLOP")}</dd>`}
      ${row.time_us > 0 && html`<dt>time</dt><dd>${time(row.time_us / 1e6)}</dd>`}
      ${row.time_us > 0 && row.flops > 0 && html`<dt>rate</dt><dd>${scaled((row.flops / row.time_us) * 1e6, "FLOP/s")}</dd>`}
    </dl></section>`}
    <${Operands} title="Inputs" names=${row.inputs} operands=${graph.operands} onGo=${onGo} />
    <${Operands} title="Outputs" names=${row.outputs} operands=${graph.operands} onGo=${onGo} />
    ${row.outputs.length > 0 && row.kernel && html`<a class="button small" href=${link("try", model, { operand: row.outputs[0] })}>Show its output for an input</a>`}
    <${Parameters} params=${row.params} />
    ${attributes.length > 0 && html`<section><h3>Attributes</h3>${attributes.map(([name, about]) => html`<${Attribute} key=${`${row.name} ${name}`} model=${model} operator=${row.name} name=${name} about=${about} />`)}</section>`}`;
}

export function Block({ node, graph, onGo, onToggle }) {
  const rows = node.operators.map((index) => graph.operators[index]);
  const flops = rows.reduce((sum, row) => sum + (row.flops ?? 0), 0);
  const weights = rows.reduce((sum, row) => sum + Object.values(row.attributes).reduce((all, { bytes: each }) => all + each, 0), 0);
  return html`
    <header><p class="mono type">${node.operators.length} operators</p><h2 class="name">${node.title}</h2></header>
    <button class="button" onClick=${() => onToggle(node.id)}>Unfold</button>
    <section><dl class="pairs number">${flops > 0 && html`<dt>operations</dt><dd>${scaled(flops, "FLOP")}</dd>`}${weights > 0 && html`<dt>weights</dt><dd>${bytes(weights)}</dd>`}
      <dt>result</dt><dd class="mono">${shape(graph.operands[rows.at(-1).outputs[0]]?.shape)}</dd></dl></section>
    <section><h3>Operators</h3><ul class="operands">${rows.slice(0, 200).map((row) => html`<li key=${row.index}><button class="link mono" onClick=${() => onGo(row.name)}>${row.name}</button> <span class="soft">${row.type}</span></li>`)}</ul></section>`;
}
