// Tune: candidate settings of a model, measured against each other.
import { html, useEffect, useReducer, useRef, useState } from "../html.js";
import { askJson, follow, key, lock } from "../api.js";
import { plural } from "../format.js";
import { keep } from "../route.js";
import { Advice, Candidates, nameOf, shortOf } from "../parts/candidates.js";
import { Tradeoff } from "../parts/tradeoff.js";
import { gridOf, picksOf, TuneForm } from "../parts/tune-form.js";

const at = (model, rest) => `models/${encodeURIComponent(model)}/${rest}`;
const NOTHING = { rows: [], best: [], state: "idle" };

// Pareto front: no other candidate is better in both latency and throughput.
const front = (rows) => rows.filter((row) => row.median_s && !rows.some((other) => other.median_s && other !== row && other.median_s <= row.median_s && other.per_second >= row.per_second && (other.median_s < row.median_s || other.per_second > row.per_second))).map(({ id }) => id);

function advance(state, event) {
  const change = (more) => state.rows.map((row) => (row.id === event.id ? { ...row, ...more } : row));
  switch (event.event) {
    case "begin": return { ...NOTHING, state: "busy" };
    case "plan": return { ...state, rows: event.candidates, rounds: event.rounds, inputs: event.inputs };
    case "doing": return { ...state, rows: change({ doing: event.text }) };
    case "ready": return { ...state, rows: change({ doing: undefined, isReady: true, problem: event.problem, largest: event.largest, share: event.share }) };
    case "times": {
      const { event: _, ...figures } = event;
      const rows = change(figures);
      return { ...state, rows, best: front(rows), round: event.round };
    }
    case "done": return { ...state, state: "done", done: event, best: event.best };
    case "error": return { ...state, state: "failed", problem: event.message, status: event.status };
    case "cancelled": return { ...state, state: "cancelled" };
    default: return state;
  }
}

function useTuning(model) {
  const [state, dispatch] = useReducer(advance, NOTHING);
  const stop = useRef(null);
  const cancel = () => stop.current?.abort();
  useEffect(() => cancel, [model]);
  const start = async (grid) => {
    cancel();
    const mine = (stop.current = new AbortController());
    dispatch({ event: "begin" });
    try {
      const options = { method: "POST", body: JSON.stringify(grid), headers: { "content-type": "application/json" }, signal: mine.signal };
      let last = null;
      for await (const event of follow(at(model, "tune"), options)) dispatch(last = event);
      if (last?.event !== "done" && last?.event !== "error") dispatch({ event: "error", message: "Disconnected from the server." });
    } catch (error) {
      dispatch(mine.signal.aborted ? { event: "cancelled" } : { event: "error", message: error.message, status: error.status });
    }
  };
  return [state, start, cancel];
}

function words({ state, rows, round, rounds }) {
  const made = rows.filter((row) => row.isReady).length;
  if (state === "idle") return "";
  if (state === "busy" && !rows.length) return "Starting…";
  if (state === "busy" && !round) return `Compiling and checking ${Math.min(made + 1, rows.length)} of ${rows.length}`;
  return { busy: `Measuring, round ${round} of ${rounds}`, done: "Measured", cancelled: "Cancelled; results so far", failed: "" }[state];
}

export function TuneView({ route }) {
  const { model, query } = route;
  const [about, setAbout] = useState(null);
  const [samples, setSamples] = useState([]);
  const [error, setError] = useState(null);
  const [picks, setPicks] = useState(null);
  const [seconds, setSeconds] = useState(1);
  const [sample, setSample] = useState("");
  const [picked, setPicked] = useState(null);
  const [state, start, cancel] = useTuning(model);
  useEffect(() => {
    Promise.all([askJson(at(model, "tune")), askJson(at(model, "samples"))]).then(([about, listed]) => {
      const usable = listed.samples;
      setAbout(about);
      setSamples(usable);
      setPicks(picksOf(query, about));
      if (about.needs_sample && usable.length) setSample(usable[0].name);
    }, setError);
  }, [model]);
  if (error) return html`<div class="page"><p class="notice" role="alert">${error.message}</p></div>`;
  if (!about) return html`<div class="page"><p class="empty">Loading…</p></div>`;
  const pick = (name, values) => {
    const next = { ...picks, [name]: values };
    setPicks(next);
    keep({ [name]: String(values) === String(picksOf({}, about)[name]) ? null : values.join(",") });
  };
  const isBusy = state.state === "busy";
  const { rows, best, done } = state;
  const row = (id) => rows.find((each) => each.id === id);
  const served = rows.find((each) => each.served);
  const known = rows.filter((each) => each.median_s);
  const least = (value) => known.reduce((one, other) => (!one || value(other) < value(one) ? other : one), null);
  const cards = [["Lowest latency", done ? row(done.latency) : least((each) => each.median_s)], ["Highest throughput", done ? row(done.throughput) : least((each) => -each.per_second)]];
  const chosen = row(picked);
  if (chosen?.median_s && !cards.some(([, each]) => each === chosen)) cards.push(["Selected", chosen]);
  return html`<div class="page tune">
    <div class="title"><h1>Tune ${model}</h1><p class="lead">Candidate settings, measured on this machine. Served now: ${nameOf({ ...about.served })}</p></div>
    <div class="columns">
      <${TuneForm} about=${about} samples=${samples} picks=${picks} seconds=${seconds} sample=${sample} isBusy=${isBusy} onPick=${pick} onSeconds=${setSeconds} onSample=${setSample} onStart=${() => { setPicked(null); start(gridOf(picks, seconds, sample)); }} onCancel=${cancel} />
      <section class="panel block" aria-label="Latency against throughput"><div class="row"><h2>Latency against throughput</h2><p class="soft fine" role="status">${words(state)}</p></div>
        <progress max=${state.rounds ?? 1} value=${state.state === "done" ? state.rounds : isBusy ? state.round ?? 0 : 0} aria-label="Rounds measured"></progress>
        ${state.problem && html`<p class="notice" role="alert">${state.problem}${state.status === 403 ? html` ${key() ? html`<button class="button small" onClick=${() => lock("Tuning needs a key for admin.")}>Use another key</button>` : "Open the console on the server's machine, or configure keys."}` : ""}</p>`}
        <${Tradeoff} rows=${rows} best=${best} picked=${picked} onPick=${setPicked} name=${nameOf} short=${shortOf} /></section>
    </div>
    ${rows.length > 0 && html`<div class="advices">${cards.map(([title, each]) => html`<${Advice} key=${title} title=${title} row=${each} served=${served} />`)}</div>`}
    ${rows.length > 0 && html`<section class="panel block"><div class="row"><h2>${plural(rows.length, "candidate")}</h2></div>
      <p class="soft fine">Each candidate is checked against the reference first; then they run in turn, round by round, so that other load affects all of them equally.</p>
      <${Candidates} rows=${rows} best=${best} picked=${picked} onPick=${setPicked} /></section>`}
  </div>`;
}
