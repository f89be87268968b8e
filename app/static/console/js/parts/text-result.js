// Results of tasks for texts: similarity of embeddings, marked spans, answers, scores, words for a mask.
import { html } from "../html.js";
import { digits, percent } from "../format.js";

const list = (predictions) => (Array.isArray(predictions) ? predictions : [predictions]);
// A request of one text is answered without a list around.
const first = (predictions) => (Array.isArray(predictions[0]) ? predictions[0] : predictions);
const dot = (a, b) => a.reduce((sum, each, at) => sum + each * b[at], 0);
const similarity = (a, b) => dot(a, b) / (Math.sqrt(dot(a, a) * dot(b, b)) || 1);

function Bars({ rows }) {
  return html`<ol class="bars">${rows.map(({ label, share, shown }, at) => html`<li key=${at}>
    <span class="label">${label}</span><span class="number">${shown ?? percent(share)}</span>
    <i class=${at ? "" : "best"} style=${{ width: `${100 * Math.max(0, Math.min(1, share))}%` }}></i></li>`)}</ol>`;
}

export function Embeddings({ predictions, sent }) {
  const vectors = list(predictions).map(({ embedding }) => embedding);
  const [head, ...rest] = vectors;
  const truncated = list(predictions).filter((each) => each.truncated).length;
  const rows = rest.map((vector, at) => ({ label: sent.texts?.[at + 1], value: similarity(head, vector) }))
    .sort((a, b) => b.value - a.value);
  return html`<h2>${vectors.length} × ${head.length} values</h2>
    ${truncated > 0 && html`<p class="notice calm">${truncated} truncated</p>`}
    ${rows.length > 0 && html`<p class="soft">Similarity (cosine) to “${sent.texts?.[0]}”</p>
      <${Bars} rows=${rows.map(({ label, value }) => ({ label, share: value, shown: digits(value, 3) }))} />`}
    <p class="mono values">${head.slice(0, 24).map((each) => digits(each, 4)).join("  ")}${head.length > 24 && "  …"}</p>`;
}

export function Ranked({ predictions, sent }) {
  const rows = list(predictions).map(({ score }, at) => ({ label: sent.texts?.[at], share: score ?? 0 }));
  return html`<h2>Documents by relevance</h2><${Bars} rows=${rows.sort((a, b) => b.share - a.share)} />`;
}

export function Spans({ predictions, sent }) {
  const spans = first(predictions) ?? [];
  const text = [...(sent.texts?.[0] ?? "")];
  const parts = [];
  let end = 0;
  for (const span of spans) {
    parts.push(text.slice(end, span.start).join(""), html`<mark title=${percent(span.score)}>${text.slice(span.start, span.end).join("")} <small>${span.label}</small></mark>`);
    end = span.end;
  }
  return html`<h2>${spans.length} ${spans.length === 1 ? "span" : "spans"}</h2><p class="marked">${parts}${text.slice(end).join("")}</p>`;
}

export function Answers({ predictions }) {
  const rows = first(predictions) ?? [];
  return html`<p class="answer">${rows[0]?.answer ?? "No answer"}</p>
    <${Bars} rows=${rows.map(({ answer, score }) => ({ label: answer, share: score }))} />`;
}

export function Words({ predictions }) {
  const rows = first(predictions) ?? [];
  const masks = [...new Set(rows.map(({ mask }) => mask))];
  return html`${masks.map((mask) => html`<section key=${mask}><h2>Mask ${mask + 1}</h2>
    <${Bars} rows=${rows.filter((row) => row.mask === mask).map(({ token, probability }) => ({ label: token, share: probability }))} /></section>`)}`;
}
