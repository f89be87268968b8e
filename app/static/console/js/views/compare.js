// Compare: one input through models, versions, back ends and threads: answers, times, first difference.
import { html, useEffect, useReducer, useRef, useState } from "../html.js";
import { ask, askJson, follow } from "../api.js";
import { keep } from "../route.js";
import { carried } from "../parts/carried.js";
import { Drift } from "../parts/drift.js";
import { read, spelt, VersusForm } from "../parts/versus-form.js";
import { VersusGraph } from "../parts/versus-graph.js";
import { nameOf, VersusTable } from "../parts/versus-table.js";

const at = (model, rest) => `models/${encodeURIComponent(model)}/${rest}`;
const NOTHING = { rows: [], state: "idle" };

function advance(state, event) {
  const change = (more) => state.rows.map((row) => (row.id === event.id ? { ...row, doing: undefined, ...more } : row));
  const { event: kind, id: _, ...fields } = event;
  switch (kind) {
    case "begin": return { ...NOTHING, state: "busy" };
    case "plan": return { ...state, rows: event.entries, rounds: event.rounds };
    case "doing": return { ...state, doing: event.text, at: event.id, rows: change({ doing: event.text }) };
    case "answer": return { ...state, rows: change(fields) };
    case "times": return { ...state, round: event.round, rows: change(fields) };
    case "operators": return { ...state, rows: change({ walked: { rows: [], ...fields } }) };
    case "done": return { ...state, state: "done" };
    case "error": return { ...state, state: "failed", problem: event.message };
    case "cancelled": return { ...state, state: "cancelled" };
    default: return state;
  }
}

function useComparison() {
  const [state, dispatch] = useReducer(advance, NOTHING);
  const stop = useRef(null);
  const cancel = () => stop.current?.abort();
  useEffect(() => cancel, []);
  const run = async (entries, send) => {
    cancel();
    const mine = (stop.current = new AbortController());
    dispatch({ event: "begin" });
    try {
      const { body, type } = await send();
      const options = { method: "POST", body, headers: type ? { "content-type": type } : {}, query: { entries: entries.map(spelt).join(",") }, signal: mine.signal };
      let last = null;
      for await (const event of follow("compare", options)) dispatch(last = event);
      if (last?.event !== "done" && last?.event !== "error") dispatch({ event: "error", message: "Disconnected from the server." });
    } catch (error) {
      dispatch(mine.signal.aborted ? { event: "cancelled" } : { event: "error", message: error.message });
    }
  };
  return [state, run, cancel];
}

function words({ state, round, rounds, rows, at: place, doing }) {
  if (state === "busy" && round === rounds && doing) return `Entry ${(place ?? 0) + 1} of ${rows.length}: ${doing}`;
  if (state === "busy" && round) return `Measuring, round ${round} of ${rounds}`;
  if (state === "busy") return rows.length ? `Running ${(place ?? 0) + 1} of ${rows.length}` : "Starting…";
  return { idle: "", done: "Compared", cancelled: "Cancelled; results so far", failed: "" }[state];
}

const usual = (model) => [model, `${model}::reference`];

export function CompareView({ route, live }) {
  const { model, query } = route;
  const moment = live.moments.at(-1);
  const [entries, setEntries] = useState(() => (query.entries?.split(",") ?? usual(model)).filter(Boolean).map(read));
  const [samples, setSamples] = useState(null);
  const [input, setInput] = useState({ name: carried(model) ? "*" : query.sample ?? "", request: carried(model) });
  const [picked, setPicked] = useState(query.op ?? null);
  const [chosen, setChosen] = useState(null);
  const [state, run, cancel] = useComparison();
  useEffect(() => {
    askJson(at(model, "samples")).then(({ samples: listed }) => {
      setSamples(listed);
      setInput((old) => (old.name || !listed.length ? old : { ...old, name: listed[0].name }));
    }, () => setSamples([]));
  }, [model]);
  const change = (next) => { setEntries(next); keep({ entries: next.map(spelt).join(",") }); };
  const pick = (name) => { setPicked(name); keep({ op: name }); };
  const take = (next) => { setInput(next); keep({ sample: next.name === "*" ? null : next.name }); };
  const send = async () => {
    if (input.name === "*") return input.request;
    if (!input.name) return { body: "" };
    const { type } = samples.find(({ name }) => name === input.name) ?? {};
    return { body: await (await ask(at(model, `samples/${encodeURIComponent(input.name)}`))).blob(), type };
  };
  // A link with entries runs the comparison at once.
  const isAsked = useRef(Boolean(query.entries));
  useEffect(() => {
    if (!samples || !isAsked.current || (samples.length && !input.name)) return;
    isAsked.current = false;
    run(entries, send);
  }, [samples, input.name]);
  if (!moment || !samples) return html`<div class="page"><p class="empty">Loading…</p></div>`;
  const { rows } = state;
  const walked = rows.filter((row) => row.walked?.rows.length);
  const shown = walked.find(({ id }) => id === chosen) ?? walked.find(({ walked: { first } }) => first) ?? walked[0];
  return html`<div class="page versus">
    <div class="title"><h1>Compare ${model}</h1><p class="lead">One input through all entries: answers, times, and the first difference in values. Entry 1 is the baseline.</p></div>
    <${VersusForm} entries=${entries} models=${moment.models} threads=${moment.process.threads} samples=${samples} input=${input} isBusy=${state.state === "busy"} status=${words(state)} problem=${state.problem} onEntries=${change} onInput=${take} onRun=${() => run(entries, send)} onCancel=${cancel} />
    ${rows.length > 0 && html`<section class="panel block"><h2>Side by side</h2><${VersusTable} rows=${rows} picked=${shown?.id} onPick=${setChosen} /></section>`}
    ${shown && html`<section class="panel block"><h2>First difference: ${nameOf(shown)}</h2>
      <p class="soft fine">Values recorded in both entries, in execution order: largest difference relative to the scale, the largest magnitude in entry 1.${shown.backend !== "reference" || rows[0].backend !== "reference" ? " Machine code is compiled again for this, to record the values between kernels." : ""}</p>
      <${Drift} rows=${shown.walked.rows} picked=${picked} onPick=${pick} /></section>
      <${VersusGraph} key=${shown.id} entry=${shown} first=${rows[0]} picked=${picked} onPick=${pick} />`}
    ${!shown && walked.length === 0 && state.state === "done" && rows.length > 1 && html`<p class="notice calm">No operators to compare: ${rows.slice(1).map((row) => row.problem ?? row.walked?.problem ?? "no operators with equal names").join("; ")}.</p>`}
  </div>`;
}
