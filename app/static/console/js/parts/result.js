// Result of a request by task.
import { html, useState } from "../html.js";
import { digits, percent, port } from "../format.js";
import { colourOf } from "./boxes.js";
import { Histogram } from "./histogram.js";
import { Steps } from "./pipeline-result.js";
import { Speech, Transcript, Voice } from "./sound-result.js";
import { numbers } from "./tensors.js";
import { Answers, Embeddings, Ranked, Spans, Words } from "./text-result.js";

const first = (predictions) => (Array.isArray(predictions?.[0]) ? predictions[0] : predictions);

function Classes({ predictions }) {
  const rows = first(predictions) ?? [];
  return html`<p class="answer">${rows[0]?.label ?? rows[0]?.index ?? "Nothing"}</p>
    <ol class="bars">${rows.map(({ label, probability, index }, at) => html`<li key=${index}>
      <span class="label">${label ?? index}</span><span class="number">${probability === null ? "NaN" : percent(probability)}</span>
      <i class=${at ? "" : "best"} style=${{ width: `${100 * (probability ?? 0)}%` }}></i></li>`)}</ol>`;
}

function Found({ predictions }) {
  if (!predictions.length) return html`<h2>Nothing found</h2><p class="soft">No score reaches the threshold.</p>`;
  return html`<h2>${predictions.length} found</h2>
    <ol class="bars">${predictions.slice(0, 20).map(({ label, score, index, box }, at) => html`<li key=${at} title=${`box ${box.map((each) => digits(each, 4)).join(", ")}`}>
      <span class="label">${label ?? index}</span><span class="number">${percent(score)}</span>
      <i style=${{ width: `${100 * score}%`, background: colourOf(index) }}></i></li>`)}</ol>`;
}

function Read({ predictions }) {
  const { text, score, characters } = Array.isArray(predictions) ? predictions[0] : predictions;
  return html`<p class="answer">${text || "No text"}</p>
    <ol class="bars"><li><span class="label">score</span><span class="number">${percent(score)}</span><i class="best" style=${{ width: `${100 * score}%` }}></i></li>
      ${characters?.map(({ text: letter, score: sure }, at) => html`<li key=${at}><span class="label mono">${letter}</span><span class="number">${percent(sure)}</span><i style=${{ width: `${100 * sure}%` }}></i></li>`)}</ol>`;
}

function Areas({ predictions }) {
  return html`<h2>${predictions.classes.length} classes</h2>
    <ol class="bars">${predictions.classes.slice(0, 20).map(({ label, index, fraction, color }) => html`<li key=${index}>
      <span class="label">${label ?? index}</span><span class="number">${percent(fraction)}</span><i style=${{ width: `${100 * fraction}%`, background: color }}></i></li>`)}</ol>`;
}

function Picture({ predictions, sent }) {
  const [share, setShare] = useState(50);
  const made = `data:image/png;base64,${predictions.image}`;
  return html`<h2>${predictions.width} × ${predictions.height}</h2>
    <figure class="compare" style=${{ aspectRatio: `${predictions.width} / ${predictions.height}`, width: `min(100%, ${Math.round((340 * predictions.width) / predictions.height)}px)` }}>
      <img src=${made} alt="Output of the model" />
      ${sent.picture && html`<img class="before" src=${sent.picture} alt="Picture sent" style=${{ clipPath: `inset(0 ${100 - share}% 0 0)` }} /><i style=${{ left: `${share}%` }}></i>`}
    </figure>
    ${sent.picture && html`<label class="slide"><span class="soft">sent</span><input type="range" min="0" max="100" value=${share} aria-label="Part of the sent picture shown" onInput=${(event) => setShare(Number(event.target.value))} /><span class="soft">output</span></label>`}
    <a class="button small own" download="made.png" href=${made}>Save</a>`;
}

function Tensor({ name, tensor }) {
  const values = numbers(tensor.data.slice(0, 1 << 18).flat());
  const finite = values.filter(Number.isFinite);
  const [low, high] = finite.reduce(([a, b], each) => [Math.min(a, each), Math.max(b, each)], [Infinity, -Infinity]);
  const counts = Array(48).fill(0);
  for (const each of finite) counts[Math.min(47, Math.floor((48 * (each - low)) / (high - low || 1)))] += 1;
  const best = values.map((value, at) => [value, at]).sort(([a], [b]) => b - a).slice(0, 5);
  return html`<section class="output"><h3><span class="mono">${name}</span> ${port(tensor)}</h3>
    ${finite.length > 1 && html`<${Histogram} counts=${counts} low=${low} high=${high} />`}
    ${finite.length < values.length && html`<p class="notice">${values.length - finite.length} values are NaN or infinite</p>`}
    <p class="mono values">${values.slice(0, 48).map((each) => digits(each, 4)).join("  ")}${tensor.data.length > 48 && "  …"}</p>
    ${tensor.shape.length === 2 && values.length > 5 && html`<p class="soft fine">Largest: ${best.map(([value, at]) => `${digits(value, 4)} at ${at}`).join(", ")}</p>`}
  </section>`;
}

export function Result({ about, answer, sent, size }) {
  const { predictions, outputs, timing } = answer;
  const views = {
    classification: Classes, detection: Found, segmentation: Areas, image: Picture, "text-recognition": Read, embedding: Embeddings, rerank: Ranked,
    "text-classification": Classes, "token-classification": Spans, "question-answering": Answers, "fill-mask": Words,
    "audio-classification": Classes, "speech-to-text": Transcript, vad: Speech, "speaker-embedding": Voice, pipeline: Steps,
  };
  const View = predictions && views[about.task];
  return html`
    ${View && html`<${View} predictions=${predictions} sent=${sent} about=${about} timing=${timing} size=${size} />`}
    ${outputs && Object.entries(outputs).map(([name, tensor]) => html`<${Tensor} key=${name} name=${name} tensor=${tensor} />`)}`;
}
