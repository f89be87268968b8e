// Profile: summary, timeline by thread, memory, heat map of the graph, kernels, roofline.
import { html, useEffect, useMemo, useState } from "../html.js";
import { askJson } from "../api.js";
import { bytes, percent, plural, scaled, time } from "../format.js";
import { keep, link } from "../route.js";
import { Arena } from "../parts/arena.js";
import { Canvas } from "../parts/canvas.js";
import { Quantisation } from "../parts/quantisation.js";
import { Roofline } from "../parts/roofline.js";
import { saveReport } from "../parts/save.js";
import { askedOf, Sizes } from "../parts/sizes.js";
import { Table } from "../parts/kernel-table.js";
import { Timeline } from "../parts/timeline.js";

const at = (model, rest) => `models/${encodeURIComponent(model)}/${rest}`;

// Kernels of a run; operators if it ran on the reference.
function rowsOf(profile, graph) {
  const byName = new Map(graph.operators.map((row) => [row.name, row]));
  const rows = profile.kernels.length
    ? profile.kernels.map((kernel, order) => ({ ...kernel, order, name: kernel.operators[0] }))
    : profile.operators.map((row, order) => ({ ...row, order, operators: [row.name], flops: byName.get(row.name)?.flops ?? 0, bytes: 0 }));
  return rows.map((row) => ({ ...row, type: byName.get(row.name)?.type ?? "", share: profile.time_us ? row.time_us / profile.time_us : 0 }));
}

// Samples to measure with, and the profile of the requested input.
function useProfile(model, query) {
  const [state, setState] = useState({});
  const [asked, setAsked] = useState(null);
  const change = (more) => setState((old) => ({ ...old, ...more }));
  useEffect(() => {
    const parts = [askJson(`models/${encodeURIComponent(model)}`), askJson(at(model, "samples")), askJson(at(model, "quantisation")).catch(() => null)];
    Promise.all(parts).then(([about, { samples }, quantised]) => {
      change({ about, samples, quantised });
      setAsked(askedOf(query, about, samples));
    }, (error) => change({ error }));
  }, [model]);
  useEffect(() => {
    if (!asked) return undefined;
    const stop = new AbortController();
    change({ isBusy: true, error: null });
    const get = (rest, more) => askJson(at(model, rest), { query: more, signal: stop.signal });
    // The profile first: it compiles the kernels of these sizes, which the graph then shows.
    get("profile", asked).then(async (profile) => {
      const [graph, layout] = await Promise.all([get("graph"), get("graph", { format: "layout" })]);
      change({ graph, layout: { ...layout, name: model }, profile, rows: rowsOf(profile, graph), isBusy: false });
    }).catch((error) => error.name !== "AbortError" && change({ error, isBusy: false }));
    return () => stop.abort();
  }, [model, asked]);
  return [{ ...state, asked }, change, setAsked];
}

function Tiles({ profile, rows }) {
  const flops = rows.reduce((sum, row) => sum + row.flops, 0);
  const peak = profile.host?.measured?.flops_per_s * (profile.threads ?? 1);
  const rate = (flops / profile.time_us) * 1e6;
  const tiles = [["One run", time(profile.time_us / 1e6)], ["Work", scaled(flops, "FLOP")], ["Rate", scaled(rate, "FLOP/s")],
    ["Share of peak", peak ? percent(rate / peak) : "–"], ["Memory of a run", bytes(profile.peak_bytes)], [profile.kernels.length ? "Kernels" : "Operators", String(rows.length)]];
  return html`<dl class="tiles">${tiles.map(([title, text]) => html`<div key=${title} class="panel"><dt>${title}</dt><dd class="number">${text}</dd></div>`)}</dl>`;
}

export function ProfileView({ route }) {
  const { model } = route;
  const [{ about, samples, quantised, asked, graph, layout, profile, rows, error, isBusy }, change, setAsked] = useProfile(model, route.query);
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
  const run = (wanted) => {
    keep({ sample: wanted.sample ?? null, shape: wanted.shape?.join(";") ?? null });
    setAsked({ ...wanted });
  };
  if (error && !about) return html`<div class="page"><p class="notice" role="alert">${error.message}</p></div>`;
  if (!about) return html`<div class="page"><p class="empty" role="status">Loading…</p></div>`;
  const sizes = html`<${Sizes} key=${profile ? "measured" : "first"} about=${about} samples=${samples} profile=${profile} asked=${asked} isBusy=${isBusy} onRun=${run} />`;
  const notice = error && html`<p class="notice" role="alert">${error.message}</p>`;
  if (!rows) {
    return html`<div class="page profile"><div class="title"><h1>Profile of ${model}</h1></div>
      ${isBusy ? html`<p class="empty" role="status">Running ${model}…</p>` : html`${!error && html`<p class="notice calm">This model has inputs of dynamic size: choose one to measure on zeros.</p>`}${sizes}${notice}${quantised && html`<${Quantisation} model=${model} report=${quantised} />`}`}</div>`;
  }
  const node = picked && layout.nodes.find(({ operators }) => operators.some((index) => graph.operators[index].name === picked));
  return html`<div class="page profile">
    <div class="title"><h1>Profile of ${model}</h1>
      <p class="lead">${profile.backend}, ${plural(profile.threads ?? 1, "thread")}, ${profile.input} of ${Object.values(profile.inputs).map((dims) => dims.join("×")).join(", ")}${profile.host ? ` · ${profile.host.cpu}, ${profile.host.level}` : ""}</p>
      <button class="button small again" onClick=${() => saveReport(model, asked)}>Save report</button></div>
    ${sizes}${notice}
    <${Tiles} profile=${profile} rows=${rows} />
    <section class="panel block"><h2>Timeline by thread</h2><${Timeline} rows=${rows} picked=${picked} onPick=${setPicked} /></section>
    ${profile.buffers.length > 0 && html`<section class="panel block"><h2>Memory over time</h2><${Arena} profile=${profile} graph=${graph} picked=${picked} onPick=${setPicked} /></section>`}
    <div class="columns">
      <section class="panel hot" aria-label="Time on the graph"><${Canvas} layout=${layout} heat=${maps.heat} notes=${maps.notes} selected=${node?.id} label=${`Time on the graph of ${model}`} onPick=${(each) => setPicked(each ? graph.operators[each.operators[0]].name : null)} onToggle=${toggle} onSearch=${() => null} /></section>
      <section class="panel block"><h2>Kernels by time</h2><${Table} rows=${rows} picked=${picked} onPick=${setPicked} />
        ${picked && html`<p><a href=${link("graph", model, { op: picked })}>${picked} in the graph</a></p>`}</section>
    </div>
    ${quantised && html`<${Quantisation} model=${model} report=${quantised} />`}
    ${profile.kernels.length > 0 && profile.host?.measured && html`<section class="panel block"><h2>Roofline</h2>
      <p class="soft fine">Higher is faster. Kernels near the slope are limited by memory, near the flat line by arithmetic. Dot size is time. Operations are counted for the direct algorithm: Winograd kernels may exceed the line.</p>
      <${Roofline} rows=${rows} host=${profile.host} threads=${profile.threads ?? 1} picked=${picked} onPick=${setPicked} /></section>`}
  </div>`;
}
