// Try it: send a picture, text, sound or tensors, see the result, and the code for the same request.
import { html, useEffect, useRef, useState } from "../html.js";
import { askJson, ask } from "../api.js";
import { Activations } from "../parts/activations.js";
import { Code } from "../parts/code.js";
import { Compare } from "../parts/compare.js";
import { Parameters } from "../parts/parameters.js";
import { PictureInput } from "../parts/picture-input.js";
import { placesOf } from "../parts/pipeline-result.js";
import { Result } from "../parts/result.js";
import { SoundInput } from "../parts/sound-input.js";
import { Live } from "../parts/sound-result.js";
import { TensorInput } from "../parts/tensor-input.js";
import { TextInput } from "../parts/text-input.js";
import { Timing } from "../parts/timing.js";
import { Tokens } from "../parts/tokens.js";

const at = (model, rest = "") => `models/${encodeURIComponent(model)}${rest}`;

function useAbout(model) {
  const [state, setState] = useState({});
  useEffect(() => {
    Promise.all([askJson(at(model)), askJson(at(model, "/samples"))]).then(
      ([about, { samples }]) => setState({ about, samples }), (error) => setState({ error }),
    );
  }, [model]);
  return state;
}

// A request that is sent as it stands: {body, type, name, shown}.
export function TryView({ route, live }) {
  const { model } = route;
  const { about, samples, error } = useAbout(model);
  const [sent, setSent] = useState(null);
  const [answer, setAnswer] = useState(null);
  const [kind, setKind] = useState(null);
  const [heard, setHeard] = useState(null);
  const [size, setSize] = useState(null);
  const turn = useRef(0);
  const [options, setOptions] = useState({});
  const chosen = useRef({});
  const change = (more) => { chosen.current = { ...chosen.current, ...more }; setOptions(chosen.current); };
  // The last request again, with the parameters as they are now; a slider that moves asks once it rests.
  useEffect(() => {
    if (!sent || sent.options === options) return undefined;
    const timer = setTimeout(() => run(sent), 150);
    return () => clearTimeout(timer);
  }, [options]);

  const run = async (request) => {
    const mine = (turn.current += 1);
    request = { ...request, options: chosen.current };
    setSent(request);
    setAnswer((old) => ({ ...old, isBusy: true }));
    try {
      const headers = { "content-type": request.type };
      const query = { ...(about.task === "tensor" ? { outputs: "true" } : {}), ...request.options };
      const start = performance.now();
      const found = await (await ask(at(model, "/infer"), { method: "POST", body: request.body, headers, query })).json();
      if (mine === turn.current) setAnswer({ found, seconds: (performance.now() - start) / 1e3, request });
    } catch (failure) {
      if (mine === turn.current) setAnswer({ error: failure, request });
    }
  };
  const sample = async ({ name, type }) => {
    let blob;
    try {
      blob = await (await ask(at(model, `/samples/${encodeURIComponent(name)}`))).blob();
    } catch (failure) {
      setAnswer({ error: failure });
      return;
    }
    await run({ body: blob, type, name, [type.startsWith("audio/") ? "sound" : "picture"]: URL.createObjectURL(blob) });
  };
  useEffect(() => { if (samples?.length) sample(samples[Math.floor(samples.length / 3)]); }, [samples]);

  if (error) return html`<div class="page"><p class="notice" role="alert">${error.message}</p></div>`;
  if (!about) return html`<div class="page"><p class="empty">Loading…</p></div>`;
  const kinds = [...(about.text ? [["text", "Text"]] : []), ...(about.preprocess ? [["picture", "Picture"]] : []), ...(about.sound ? [["sound", "Sound"]] : []), ["tensor", "Tensors"]];
  const shown = kind ?? kinds[0][0];
  const found = answer?.request === sent ? answer?.found : null;
  const places = about.steps && found?.predictions ? placesOf(found.predictions, new Set(about.steps.map(({ name }) => name))) : undefined;
  return html`<div class="page try">
    <div class="title"><h1>Try ${model}</h1><p class="lead">${about.task}${about.labels ? `, ${about.labels.length} labels` : ""}</p></div>
    <div class="columns">
      <section class="panel given" aria-label="Input">
        ${kinds.length > 1 && html`<div class="segmented" role="group" aria-label="Kind of input">
          ${kinds.map(([name, title]) => html`<button key=${name} aria-pressed=${String(shown === name)} onClick=${() => setKind(name)}>${title}</button>`)}
        </div>`}
        ${shown === "text" ? html`<${TextInput} about=${about} onRun=${run} />` : shown === "picture"
          ? html`<${PictureInput} about=${about} samples=${samples} sent=${sent} found=${found} places=${places} onRun=${run} onSample=${sample} onSize=${setSize} />` : shown === "sound"
          ? html`<${SoundInput} about=${about} samples=${samples} sent=${sent} found=${found} live=${heard} options=${options} onRun=${run} onSample=${sample} onLive=${setHeard} />`
          : html`<${TensorInput} about=${about} onRun=${run} />`}
        <${Parameters} about=${about} values=${options} onChange=${change} />
      </section>
      <section class="panel made" aria-label="Result" aria-busy=${String(Boolean(answer?.isBusy))}>
        ${heard ? html`<${Live} live=${heard} />` : html`${answer?.error && html`<p class="notice" role="alert">${answer.error.message}</p>`}
        ${answer?.found ? html`<${Result} about=${about} answer=${answer.found} sent=${answer.request} size=${size} /><${Timing} timing=${answer.found.timing} seconds=${answer.seconds} />`
          : !answer?.error && html`<p class="empty">${answer?.isBusy ? "Running…" : "The result is shown here."}</p>`}`}
      </section>
    </div>
    ${answer?.found && answer.request.text && html`<${Tokens} model=${model} texts=${answer.request.text} />`}
    ${answer?.request && !heard && html`<${Code} model=${model} request=${answer.request} isTensor=${about.task === "tensor"} />`}
    ${answer?.found && !heard && !about.steps && html`<${Compare} model=${model} version=${answer.found.version} models=${live.moments.at(-1)?.models ?? []} request=${answer.request} />`}
    ${answer?.found && !heard && !about.steps && !about.sequences && !answer.request.text && html`<${Activations} model=${model} request=${answer.request} operand=${route.query.operand} />`}
  </div>`;
}
