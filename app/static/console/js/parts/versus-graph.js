// Differences on the graph, and statistics of both values of the selected operator.
import { html, useEffect, useMemo, useState } from "../html.js";
import { askJson } from "../api.js";
import { digits, plural, shape } from "../format.js";
import { link } from "../route.js";
import { Canvas } from "./canvas.js";
import { little } from "./versus-table.js";

const path = (model) => `models/${encodeURIComponent(model)}/graph`;
// Range of the colour scale below the tolerance.
const DECADES = 3;

function useDrawing({ model, version }) {
  const [state, setState] = useState({});
  useEffect(() => {
    let isWanted = true;
    Promise.all([askJson(path(model), { query: { version } }), askJson(path(model), { query: { version, format: "layout" } })]).then(
      ([graph, layout]) => isWanted && setState({ graph, layout: { ...layout, name: `${model} ${version}` } }), (error) => isWanted && setState({ error }));
    return () => { isWanted = false; };
  }, [model, version]);
  const open = async (names) => {
    const layout = await askJson(path(model), { query: { version, format: "layout", open: names.join(",") || "none" } });
    setState((old) => ({ ...old, layout: { ...layout, name: `${model} ${version}` } }));
  };
  return [state, open];
}

const warmth = (row) => {
  if (row.diverges) return 0.72;
  if (!row.relative) return 0.02;
  return Math.max(0.03, 0.6 * Math.min(1, 1 + Math.log10((row.relative * (row.scale || 1)) / row.allowed) / DECADES));
};
const worse = (one, other) => (!one || (other.diverges && !one.diverges) || (other.diverges === one.diverges && (other.relative ?? Infinity) > (one.relative ?? Infinity)) ? other : one);

function Figures({ row, here, there }) {
  const say = (value) => (value === undefined || value === null ? "–" : digits(value, 6));
  return html`<table class="kernels figures-table"><thead><tr><th scope="col">Value</th><th scope="col">${there}</th><th scope="col">${here}</th></tr></thead>
    <tbody>${["min", "max", "mean", "std"].map((name) => html`<tr key=${name}><td>${name}</td><td class="number mono">${say(row.there[name])}</td><td class="number mono">${say(row.here[name])}</td></tr>`)}</tbody></table>`;
}

function Picked({ row, entry, first }) {
  return html`<div class="picked-value"><p class="mono type soft">${row.type} · ${shape(row.shape)}</p><h3 class="name mono">${row.operator}</h3>
    ${row.kernel && html`<p class="soft fine">Last operator of the kernel that begins with <span class="mono">${row.kernel}</span>; the difference may come from any operator in it.</p>`}
    <dl class="pairs number"><dt>largest difference</dt><dd class="mono">${row.apart ?? little(row.max_abs)}</dd><dt>relative to scale</dt><dd class="mono">${little(row.relative)}</dd><dt>allowed</dt><dd class="mono">${little(row.allowed)}</dd></dl>
    <${Figures} row=${row} here=${`entry ${entry.id + 1}`} there="entry 1" />
    <a class="button small own" href=${link("graph", entry.model, { op: row.operator })}>In the graph</a>
    ${entry.model !== first.model && html`<p class="soft fine">Matched by name: both models have an operator of this name.</p>`}</div>`;
}

function Unmatched({ walked }) {
  const lists = [["Only here", walked.unknown, walked.unknown_count], ["Only in entry 1", walked.missing, walked.missing_count]].filter(([, , count]) => count);
  return html`<div class="unmatched">${walked.inside > 0 && html`<p class="soft fine">${plural(walked.inside, "operator")} more ${walked.inside === 1 ? "is" : "are"} fused into a kernel or optimised away, so their values are not recorded.</p>`}
    ${lists.map(([title, names, count]) => html`<details key=${title}><summary>${title}: ${plural(count, "operator")}, not comparable</summary><p class="mono fine">${names.join(", ")}${count > names.length && ` and ${count - names.length} more`}</p></details>`)}</div>`;
}

export function VersusGraph({ entry, first, picked, onPick }) {
  const { walked } = entry;
  const [{ graph, layout, error }, open] = useDrawing(entry);
  const maps = useMemo(() => {
    if (!layout) return {};
    const rows = new Map();
    for (const row of walked.rows) rows.set(row.operator, worse(rows.get(row.operator), row));
    const found = layout.nodes.map(({ id, operators }) => [id, operators.map((index) => rows.get(graph.operators[index].name)).filter(Boolean).reduce((one, other) => worse(one, other), null)]).filter(([, row]) => row);
    return { heat: new Map(found.map(([id, row]) => [id, warmth(row)])), notes: new Map(found.map(([id, row]) => [id, row.diverges ? `${row.apart ? "differs" : little(row.relative)} ✕` : row.relative === 0 ? "same" : little(row.relative)])) };
  }, [layout, walked]);
  if (error) return html`<p class="notice" role="alert">${error.message}</p>`;
  const toggle = (id) => {
    const now = layout.open.map((each) => each.id);
    open(now.includes(id) ? now.filter((each) => each !== id) : [...now, id]);
  };
  const node = layout && picked && layout.nodes.find(({ operators }) => operators.some((index) => graph.operators[index].name === picked));
  const pick = (each) => {
    const known = each?.operators.map((index) => graph.operators[index].name).filter((name) => walked.rows.some((row) => row.operator === name));
    onPick(known?.length ? known.reduce((one, other) => worse(walked.rows.find((row) => row.operator === one), walked.rows.find((row) => row.operator === other)).operator) : each ? graph.operators[each.operators[0]].name : null);
  };
  const row = walked.rows.find(({ operator }) => operator === picked);
  return html`<div class="columns">
    <section class="panel hot" aria-label="Differences on the graph">${layout ? html`<${Canvas} layout=${layout} heat=${maps.heat} notes=${maps.notes} selected=${node?.id} label=${`Differences on the graph of ${entry.model}`} onPick=${pick} onToggle=${toggle} onSearch=${() => null} />` : html`<p class="empty">Drawing…</p>`}</section>
    <section class="panel block"><h2>${picked ? "Both values" : "Values of an operator"}</h2>
      ${row ? html`<${Picked} row=${row} entry=${entry} first=${first} />` : html`<p class="soft">${picked ? `${picked} has no value recorded in both entries.` : "Select an operator on the graph or in the chart to see the minimum, maximum, mean and standard deviation of both values. Cards are warmer the closer they are to the tolerance; a cross marks values beyond it."}</p>`}
      <${Unmatched} walked=${walked} /></section>
  </div>`;
}
