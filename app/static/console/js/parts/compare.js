// The same input through other models and versions: answers, times, differences.
import { html, useEffect, useState } from "../html.js";
import { ask } from "../api.js";
import { digits, percent, time } from "../format.js";
import { link } from "../route.js";
import { carry } from "./carried.js";
import { numbers } from "./tensors.js";

const nameOf = ({ model, version }) => `${model} v${version}`;

async function runOf({ model, version }, request) {
  const query = { version, outputs: "true" };
  const headers = { "content-type": request.type };
  return (await ask(`models/${encodeURIComponent(model)}/infer`, { method: "POST", body: request.body, headers, query })).json();
}

// Largest difference of the outputs of two answers with equal names and shapes.
export function distance(one, other) {
  if (!one?.outputs || !other?.outputs) return null;
  let most = 0;
  for (const [name, tensor] of Object.entries(one.outputs)) {
    const found = other.outputs[name];
    if (!found || String(found.shape) !== String(tensor.shape)) return null;
    const [a, b] = [numbers(tensor.data.flat()), numbers(found.data.flat())];
    for (let at = 0; at < a.length; at += 1) most = Math.max(most, a[at] === b[at] ? 0 : Math.abs(a[at] - b[at]));
  }
  return most;
}

export function said(answer) {
  const found = answer.predictions;
  if (!found) return Object.entries(answer.outputs).map(([name, { shape }]) => `${name} ${shape.join("×")}`).join(", ");
  if (found.image) return `${found.width} × ${found.height}`;
  if (found.classes) return found.classes.slice(0, 3).map(({ label, index }) => label ?? index).join(", ");
  if (!found.length) return "nothing found";
  if ("box" in found[0]) return `${found.length} found: ${found.slice(0, 3).map(({ label, index }) => label ?? index).join(", ")}`;
  return found.slice(0, 2).map(({ label, index, probability }) => `${label ?? index} ${percent(probability ?? 0)}`).join(", ");
}

function Row({ run, first, most }) {
  const { answer, error } = run;
  if (!answer) return html`<tr><th scope="row">${nameOf(run)}</th><td colspan="3">${error ? html`<span class="refused">${error}</span>` : "Running…"}</td></tr>`;
  const apart = run === first ? null : distance(first?.answer, answer);
  return html`<tr><th scope="row">${nameOf(run)}</th><td>${said(answer)}</td>
    <td class="number"><i style=${{ width: `${(70 * answer.timing.infer_ms) / most}px` }}></i>${time(answer.timing.infer_ms / 1e3)}</td>
    <td class="number">${run === first ? "" : apart === null ? "different outputs" : apart === 0 ? "identical" : digits(apart)}</td></tr>`;
}

export function Compare({ model, version, models, request }) {
  const all = models.flatMap(({ name, versions }) => versions.filter(({ state }) => state === "ready").map((each) => ({ model: name, version: each.version })));
  const others = all.filter((each) => each.model !== model || each.version !== version);
  const [chosen, setChosen] = useState([]);
  const [runs, setRuns] = useState([]);
  useEffect(() => {
    let isWanted = true;
    const wanted = chosen.length ? [{ model, version }, ...chosen] : [];
    setRuns(wanted);
    // One after the other, so that they do not compete for the cores.
    (async () => {
      for (const [at, each] of wanted.entries()) {
        const outcome = await runOf(each, request).then((answer) => ({ answer }), (error) => ({ error: error.message }));
        if (!isWanted) return;
        setRuns((old) => old.map((row, index) => (index === at ? { ...each, ...outcome } : row)));
      }
    })();
    return () => { isWanted = false; };
  }, [request, chosen]);
  const has = (each) => chosen.some((other) => nameOf(other) === nameOf(each));
  const toggle = (each) => setChosen(has(each) ? chosen.filter((other) => nameOf(other) !== nameOf(each)) : [...chosen, each]);
  const most = Math.max(1e-6, ...runs.map(({ answer }) => answer?.timing.infer_ms ?? 0));
  return html`<section class="panel code beside" aria-label="Side by side">
    <div class="row"><h2>Side by side</h2><div class="row" role="group" aria-label="Compare with">
      ${others.slice(0, 24).map((each) => html`<button key=${nameOf(each)} class="button small" aria-pressed=${String(has(each))} onClick=${() => toggle(each)}>${nameOf(each)}</button>`)}</div>
      <a class="button small" href=${link("compare", model, chosen.length ? { entries: [{ model, version }, ...chosen].map((each) => `${each.model}:${each.version}`).join(",") } : {})} onClick=${() => carry(model, request)}>Operator by operator</a></div>
    <p class="soft fine">The same input through other models and versions, one after the other.</p>
    ${runs.length > 0 && html`<div class="scroll" tabindex="0" role="region" aria-label="Answers"><table>
      <thead><tr><th scope="col">Model</th><th scope="col">Answer</th><th scope="col">Inference</th><th scope="col">Largest difference</th></tr></thead>
      <tbody>${runs.map((run) => html`<${Row} key=${nameOf(run)} run=${run} first=${runs[0]} most=${most} />`)}</tbody></table></div>`}
  </section>`;
}
