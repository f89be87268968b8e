// Graph of a model: fitted to the window at first; blocks unfold on zooming in.
import { html, useCallback, useEffect, useMemo, useRef, useState } from "../html.js";
import { askJson } from "../api.js";
import { plural, scaled, bytes } from "../format.js";
import { keep } from "../route.js";
import { Canvas } from "../parts/canvas.js";
import { Block, Operator } from "../parts/inspector.js";
import { saveDrawing } from "../parts/save.js";
import { byPrecision, PRECISIONS, precisionsOf } from "../parts/precision.js";
import { Search } from "../parts/search.js";

const NAMES = { ...Object.fromEntries(Object.entries(PRECISIONS).map(([name, title]) => [`precision-${name}`, title])), io: "in and out", conv: "convolution", linear: "matrix product", norm: "normalisation", reduce: "reduction" };

export function useGraph(model) {
  const [state, setState] = useState({});
  useEffect(() => {
    askJson(`models/${encodeURIComponent(model)}/graph`).then((graph) => setState({ graph }), (error) => setState({ error }));
  }, [model]);
  return state;
}

// Layout to draw; `look` says how it is folded: { by, open, show }.
function useLayout(model, passes, look) {
  const [state, setState] = useState({});
  useEffect(() => {
    const stop = new AbortController();
    const query = { format: "layout", passes, by: look.by, show: look.show, open: look.open && (look.open.join(",") || "none") };
    askJson(`models/${encodeURIComponent(model)}/graph`, { query, signal: stop.signal }).then(
      (layout) => setState({ layout: { ...layout, name: `${model} ${passes} ${layout.by}` } }),
      (error) => error.name !== "AbortError" && setState((old) => ({ ...old, error })),
    );
    return () => stop.abort();
  }, [model, passes, look]);
  return state;
}

function Legend({ layout }) {
  const families = [...new Set(layout.nodes.map(({ family }) => family))];
  return html`<ul class="legend">${families.map((family) => html`<li key=${family} class=${`family-${family}`}><i></i>${NAMES[family] ?? family}</li>`)}</ul>`;
}

const openOf = (query) => (query.open === undefined ? null : query.open.split(",").filter(Boolean));

export function GraphView({ route }) {
  const { model, query } = route;
  const { graph, error } = useGraph(model);
  const [passes, setPasses] = useState(query.passes ?? "after");
  const [look, setLook] = useState({ by: query.by, open: openOf(query) });
  const { layout: plain, error: layoutError } = useLayout(model, passes, look);
  const [colours, setColours] = useState(query.colours ?? "kind");
  const precisions = useMemo(() => graph && precisionsOf(graph), [graph]);
  const hasPrecisions = precisions && new Set(precisions.filter((each) => each && each !== "integer")).size > 1;
  const layout = useMemo(() => (plain && hasPrecisions && colours === "precision" ? byPrecision(plain, graph, precisions) : plain), [plain, hasPrecisions, colours]);
  const [wanted, setWanted] = useState(query.op ?? null); // a name, or an index until the names are loaded
  const [block, setBlock] = useState(null);
  const [text, setText] = useState("");
  const field = useRef(null);

  const index = typeof wanted === "number" ? wanted : graph?.operators.find(({ name }) => name === wanted)?.index;
  const row = graph?.operators[index];
  const node = layout && (block ? layout.nodes.find(({ id }) => id === block) : layout.nodes.find(({ operators }) => operators.includes(index)));
  const found = useMemo(() => {
    if (!text || !layout || !graph) return null;
    const word = text.toLowerCase();
    const rows = new Set(graph.operators.filter(({ name, type }) => `${name} ${type}`.toLowerCase().includes(word)).map(({ index }) => index));
    return new Set(layout.nodes.filter(({ operators }) => operators.some((index) => rows.has(index))).map(({ id }) => id));
  }, [text, layout, graph]);

  const pick = useCallback((each) => {
    const first = each && each.kind !== "fold" ? each.operators[0] : null;
    setBlock(each?.kind === "fold" ? each.id : null);
    setWanted(graph?.operators[first]?.name ?? first);
    keep({ op: graph?.operators[first]?.name });
  }, [graph]);
  useEffect(() => { if (row && row.name !== wanted) { setWanted(row.name); keep({ op: row.name }); } }, [row, wanted]);
  const go = (name) => { setBlock(null); setWanted(name); keep({ op: name }); };
  const unfold = (list, more = {}) => {
    setLook({ by: look.by, ...more, open: list });
    setBlock(null);
    keep({ open: list === null ? null : list.join(",") || "none" });
  };
  const toggle = (id) => {
    const now = layout.open.map((each) => each.id);
    if (now.includes(id)) pick(null); // a selection inside would unfold it again
    unfold(now.includes(id) ? now.filter((each) => each !== id) : [...now, id]);
  };
  const change = (next) => { setPasses(next); unfold(null); keep({ passes: next === "after" ? null : next }); };
  const colour = (next) => { setColours(next); keep({ colours: next === "kind" ? null : next }); };
  const fold = (by) => { unfold(null, { by }); keep({ by }); };
  // An operator selected by name is shown even if it is inside folded blocks.
  const hidden = node?.kind === "fold" && !block && row ? row.index : null;
  useEffect(() => { if (hidden !== null) unfold(layout.open.map((each) => each.id), { show: hidden }); }, [hidden]);

  if (error ?? layoutError) return html`<div class="page"><p class="notice" role="alert">${(error ?? layoutError).message}</p></div>`;
  const totals = graph?.totals;
  return html`<div class="graph-view">
    <div class="bar">
      <h1 class="hidden">Graph of ${model}</h1>
      <${Search} fieldRef=${field} graph=${graph} text=${text} onText=${setText} onGo=${go} />
      <div class="segmented" role="group" aria-label="Passes">
        ${[["before", "As exported"], ["after", "Optimised"]].map(([name, title]) => html`<button key=${name} aria-pressed=${String(passes === name)} onClick=${() => change(name)}>${title}</button>`)}
      </div>
      ${layout && layout.ways.length > 1 && html`<div class="segmented" role="group" aria-label="Blocks by">
        ${[["structure", "By structure"], ["modules", "By module"]].map(([name, title]) => html`<button key=${name} aria-pressed=${String(layout.by === name)} onClick=${() => fold(name)}>${title}</button>`)}
      </div>`}
      ${hasPrecisions && html`<div class="segmented" role="group" aria-label="Colours by">
        ${[["kind", "Kind"], ["precision", "Precision"]].map(([name, title]) => html`<button key=${name} aria-pressed=${String(colours === name)} onClick=${() => colour(name)}>${title}</button>`)}
      </div>`}
      ${layout && layout.folds > 0 && html`<button class="button small" onClick=${() => unfold(layout.all ? null : ["all"])}>${layout.all ? "Fold" : "Unfold all"}</button>`}
      <div class="segmented" role="group" aria-label="Save the drawing">${["svg", "png"].map((kind) => html`<button key=${kind} onClick=${() => saveDrawing(model, kind)}>${kind.toUpperCase()}</button>`)}</div>
      <p class="soft number totals">${totals && [plural(totals.operators, "operator"), totals.parameters && `${scaled(totals.parameters)} parameters`, totals.bytes && bytes(totals.bytes), totals.flops && scaled(totals.flops, "FLOP")].filter(Boolean).join(" · ")}</p>
    </div>
    <div class=${node ? "stage with-side" : "stage"}>
      ${layout ? html`<${Canvas} layout=${layout} selected=${node?.id} found=${found} label=${`Graph of ${model}`} onPick=${pick} onToggle=${toggle} onSearch=${() => field.current?.focus()} />` : html`<p class="empty">Drawing…</p>`}
      ${layout && html`<${Legend} layout=${layout} />`}
      ${node && graph && html`<aside class="side" aria-label="Selection">
        <button class="button quiet icon small close" aria-label="Close" onClick=${() => pick(null)}>✕</button>
        ${node.kind === "fold" && (block || !row) ? html`<${Block} node=${node} graph=${graph} onGo=${go} onToggle=${toggle} />` : html`<${Operator} key=${row.name} model=${model} row=${row} graph=${graph} precision=${hasPrecisions ? precisions[row.index] : null} onGo=${go} />
          ${node.kind !== "fold" && node.operators.length > 1 && html`<section><h3>In the same kernel</h3><ul class="operands">${node.operators.filter((index) => index !== row.index).map((index) => html`<li key=${index}><button class="link mono" onClick=${() => go(graph.operators[index].name)}>${graph.operators[index].name}</button> <span class="soft">${graph.operators[index].type}</span></li>`)}</ul></section>`}`}
      </aside>`}
    </div>
  </div>`;
}
