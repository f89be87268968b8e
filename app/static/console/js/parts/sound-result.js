// Results of tasks for sounds, and of streams of sound as they come.
import { html } from "../html.js";
import { digits, percent } from "../format.js";

const clock = (seconds) => `${seconds.toFixed(2)} s`;
const first = (predictions) => (Array.isArray(predictions) ? predictions[0] : predictions);

// Spans of a prediction for the waveform: of speech, or of words.
export function spansOf(predictions) {
  const found = first(predictions);
  if (found?.spans) return found.spans.map(({ start, end, text, ...rest }) => ({ start, end, text: text?.text ?? named(rest) }));
  return (found?.words ?? []).map(({ start, end, word }) => ({ start, end, text: word }));
}

// Results of a pipeline's steps on a span.
const named = (rest) => Object.values(rest).map((each) => (Array.isArray(each) ? each[0]?.label : each?.text)).filter(Boolean).join(" ");

export function Speech({ predictions }) {
  const { spans, duration } = first(predictions);
  return html`<h2>${spans.length} ${spans.length === 1 ? "span" : "spans"} of speech in ${clock(duration)}</h2><${Rows} rows=${spans} />`;
}

function Rows({ rows }) {
  return html`<ol class="bars">${rows.map(({ start, end, score, text }, at) => html`<li key=${at}>
    <span class="label">${clock(start)} – ${clock(end)} ${text ?? ""}</span><span class="number">${percent(score)}</span>
    <i class="best" style=${{ width: `${100 * score}%` }}></i></li>`)}</ol>`;
}

export function Transcript({ predictions }) {
  const { text, score, words } = first(predictions);
  return html`<p class="answer">${text || "No text"}</p><p class="soft">Mean probability ${percent(score)}</p>
    <${Rows} rows=${(words ?? []).map(({ word, ...rest }) => ({ ...rest, text: word }))} />`;
}

export function Voice({ predictions }) {
  const { embedding, duration } = first(predictions);
  return html`<h2>${embedding.length} values for ${clock(duration)}</h2>
    <p class="mono values">${embedding.slice(0, 24).map((each) => digits(each, 4)).join("  ")}${embedding.length > 24 && "  …"}</p>`;
}

// Answers of a stream, joined: {spans, speechStart, rows, text, end, probability}.
export function joined(old, { predictions, start, end }) {
  const next = { ...old, end };
  const found = first(predictions);
  if (!found) return next;
  if (found.spans) return { ...next, spans: [...(old.spans ?? []), ...found.spans], speechStart: found.speech_start };
  if (found.text !== undefined) return { ...next, text: `${old.text ?? ""} ${found.text}`.trim() };
  if (Array.isArray(predictions)) return { ...next, rows: [{ start, end, text: found.label, score: found.probability }, ...(old.rows ?? [])].slice(0, 12) };
  return next;
}

export function Live({ live }) {
  const { spans, speechStart, rows, text, end } = live;
  return html`
    ${text !== undefined && html`<p class="answer">${text || "…"}</p>`}
    ${rows && html`<p class="answer">${rows[0].text}</p><${Rows} rows=${rows} />`}
    ${spans && html`<p class="answer">${speechStart !== null ? "Speech" : "Silence"}</p>
      <h2>${spans.length} ${spans.length === 1 ? "span" : "spans"} of speech</h2><${Rows} rows=${spans.slice(-12).reverse()} />`}
    <p class="soft fine" role="status">${live.isOpen ? "Listening" : "Ended"}, ${clock(end ?? 0)} of sound answered</p>`;
}
