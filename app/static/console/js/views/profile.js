// Where the time goes: tiles, one run as a strip, the graph by heat, all kernels in a table, the roofline.
import { html, useEffect, useMemo, useState } from "../html.js";
import { askJson } from "../api.js";
import { bytes, percent, plural, scaled, time } from "../format.js";
import { link } from "../route.js";
import { Canvas } from "../parts/canvas.js";
import { Roofline } from "../parts/roofline.js";
import { saveReport } from "../parts/save.js";
import { Strip } from "../parts/strip.js";
import { Table } from "../parts/kernel-table.js";

const at = (model, rest) => `models/${encodeURIComponent(model)}/${rest}`;

// Kernels with what a reader wants to know of each; of a run without machine code the operators.
function rowsOf(told, graph) {
  const byName = new Map(graph.operators.map((row) => [row.name, row]));
  const rows = told.kernels.length
    ? told.kernels.map((kernel, order) => ({ ...kernel, order, name: kernel.operators[0] }))
    : told.operators.map((row, order) => ({ ...row, order, operators: [row.name], flops: byName.get(row.name)?.flops ?? 0, bytes: 0 }));
  return rows.map((row) => ({ ...row, type: byName.get(row.name)?.type ?? "", share: told.time_us ? row.time_us / told.time_us : 0 }));
}

function useProfile(model, turn) {
  const [state, setState] = useState({});
  useEffect(() => {
    setState((old) => ({ ...old, isBusy: true, error: null }));
    Promise.all([askJson(at(model, "graph")), askJson(at(model, "graph"), { query: { format: "layout" } }), askJson(at(model, "profile"))]).then(
      ([graph, layout, told]) => setState({ graph, layout: { ...layout, name: model }, told, rows: rowsOf(told, graph) }),
      (error) => setState({ error }),
    );
  }, [model, turn]);
  return [state, (change) => setState((old) => ({ ...old, ...change }))];
}

function Tiles({ told, rows }) {
  const flops = rows.reduce((sum, row) => sum + row.flops, 0);
  const peak = told.host?.measured?.flops_per_s * (told.threads ?? 1);
  const rate = (flops / told.time_us) * 1e6;
  const tiles = [["One run", time(told.time_us / 1e6)], ["Work", scaled(flops, "FLOP")], ["Rate", scaled(rate, "FLOP/s")],
    ["Share of the peak", peak ? percent(rate / peak) : "–"], ["Values alive at once", bytes(told.peak_bytes)], [told.kernels.length ? "Kernels" : "Operators", String(rows.length)]];
  return html`<dl class="tiles">${tiles.map(([title, text]) => html`<div key=${title} class="panel"><dt>${title}</dt><dd class="number">${text}</dd></div>`)}</dl>`;
}

export function ProfileView({ route }) {
  const { model } = route;
  const [turn, setTurn] = useState(0);
  const [{ graph, layout, told, rows, error, isBusy }, change] = useProfile(model, turn);
  const [picked, setPicked] = useState(null);
  const maps = useMemo(() => {
    if (!rows || !layout) return {};
    const times = new Map();
    for (const row of rows) for (const name of row.operators.slice(0, 1)) times.set(name, (times.get(name) ?? 0) + row.time_us);
    const sums = layout.nodes.map(({ id, operators }) => [id, operators.reduce((sum, index) => sum + (times.get(graph.operators[index].name) ?? 0), 0)]);
    const most = Math.max(1e-9, ...sums.map(([, sum]) => sum));
    return { heat: new Map(sums.map(([id, sum]) => [id, 0.62 * Math.sqrt(sum / most)])), notes: new Map(sums.filter(([, sum]) => sum > 0).map(([id, sum]) => [id, time(sum / 1e6)])) };
  }, [rows, layout]);
  const toggle = async (id) => {
    const now = layout.open.map((each) => each.id);
    const open = now.includes(id) ? now.filter((each) => each !== id) : [...now, id];
    change({ layout: { ...await askJson(at(model, "graph"), { query: { format: "layout", open: open.join(",") || "none" } }), name: model } });
  };
  if (error) return html`<div class="page"><p class="notice" role="alert">${error.message}</p></div>`;
  if (!rows) return html`<div class="page"><p class="empty" role="status">Running ${model}…</p></div>`;
  const node = picked && layout.nodes.find(({ operators }) => operators.some((index) => graph.operators[index].name === picked));
  return html`<div class="page profile">
    <div class="title"><h1>Profile of ${model}</h1>
      <p class="lead">${told.backend}, ${plural(told.threads ?? 1, "thread")}, zeros of ${Object.values(told.inputs).map((dims) => dims.join("×")).join(", ")}${told.host ? ` · ${told.host.cpu}, ${told.host.level}` : ""}</p>
      <button class="button small again" onClick=${() => saveReport(model)}>Save report</button>
      <button class="button small" disabled=${isBusy} onClick=${() => setTurn(turn + 1)}>${isBusy ? "Running…" : "Run again"}</button></div>
    <${Tiles} told=${told} rows=${rows} />
    <section class="panel block"><h2>One run, from left to right</h2><${Strip} rows=${rows} picked=${picked} onPick=${setPicked} /></section>
    <div class="columns">
      <section class="panel hot" aria-label="Time on the graph"><${Canvas} layout=${layout} heat=${maps.heat} notes=${maps.notes} selected=${node?.id} label=${`Time on the graph of ${model}`} onPick=${(each) => setPicked(each ? graph.operators[each.operators[0]].name : null)} onToggle=${toggle} onSearch=${() => null} /></section>
      <section class="panel block"><h2>By time</h2><${Table} rows=${rows} picked=${picked} onPick=${setPicked} />
        ${picked && html`<p><a href=${link("graph", model, { op: picked })}>${picked} in the graph</a></p>`}</section>
    </div>
    ${told.kernels.length > 0 && told.host?.measured && html`<section class="panel block"><h2>What bounds each kernel</h2>
      <p class="soft fine">Further up is faster. Below the slope a kernel waits for memory, below the flat line for arithmetic. Size is time. Work is counted as the operator has it: a kernel that needs less of it may lie above the line.</p>
      <${Roofline} rows=${rows} host=${told.host} threads=${told.threads ?? 1} picked=${picked} onPick=${setPicked} /></section>`}
  </div>`;
}
