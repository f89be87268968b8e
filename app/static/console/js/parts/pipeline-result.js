// Result of a pipeline: the predictions of each step, with the crop that a step ran on.
import { html } from "../html.js";
import { percent, time } from "../format.js";
import { link } from "../route.js";
import { colourOf } from "./boxes.js";

const MOST = 60;
const score = ({ score: found, probability }) => found ?? probability;
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isResult = (value) => isObject(value) || (Array.isArray(value) && value.every(isObject));

// Results of later steps in a prediction, by name of the step.
export const inner = (prediction, steps) => Object.entries(prediction).filter(([name, value]) => steps.has(name) && (value === null || isResult(value)));

// One line for a prediction or a list of classes.
export function caption(found) {
  const one = Array.isArray(found) ? found[0] : found;
  if (!one) return "nothing";
  const sure = score(one);
  return [one.text ?? one.label ?? one.answer ?? "", typeof sure === "number" ? percent(sure) : ""].filter(Boolean).join(" ");
}

// Predictions with a place in the picture, with what later steps found there: [{box, polygon, label, text}]. Those on
// which no later step ran are left out.
export function placesOf(predictions, steps) {
  const rows = Object.values(predictions ?? {}).find((each) => Array.isArray(each) && (each[0]?.box || each[0]?.polygon)) ?? [];
  return rows.filter((row) => !inner(row, steps).length || inner(row, steps).some(([, value]) => value)).map((row) => {
    const results = inner(row, steps).map(([, value]) => value).filter(Boolean);
    const text = results.find((each) => each.text !== undefined)?.text;
    const label = [row.label, ...results.filter(Array.isArray).map((each) => each[0]?.label)].filter(Boolean).join(" · ");
    return { ...row, label, text };
  });
}

// Crop of the picture: a box, or a polygon that becomes upright, as far as an affine map can make it.
function Crop({ source, size, row: { box, polygon } }) {
  if (!source || !size || !(box || polygon?.length)) return null;
  const [p, q, , s] = polygon?.length === 4 ? polygon : [[box[0], box[1]], [box[2], box[1]], null, [box[0], box[3]]];
  const [ux, uy, vx, vy] = [q[0] - p[0], q[1] - p[1], s[0] - p[0], s[1] - p[1]];
  const [width, height] = [Math.max(1, Math.hypot(ux, uy)), Math.max(1, Math.hypot(vx, vy))];
  const [a, b, c, d] = [ux / width, uy / width, vx / height, vy / height];
  const area = a * d - b * c || 1;
  const matrix = [d, -b, -c, a, c * p[1] - d * p[0], b * p[0] - a * p[1]].map((each) => each / area).join(" ");
  return html`<svg class="crop" viewBox=${`0 0 ${width} ${height}`} style=${{ aspectRatio: `${width} / ${height}`, height: `${Math.min(44, Math.max(18, (200 * height) / width))}px` }} aria-hidden="true">
    <image href=${source} width=${size[0]} height=${size[1]} transform=${`matrix(${matrix})`} /></svg>`;
}

function Row({ row, at, name, steps, picture }) {
  const later = inner(row, steps);
  const own = row.start !== undefined ? `${row.start.toFixed(2)} – ${row.end.toFixed(2)} s` : row.label || `${name} ${at + 1}`;
  return html`<li>
    <${Crop} source=${picture.source} size=${picture.size} row=${row} />
    <span class="label"><i style=${{ background: colourOf(row.index ?? at) }}></i>${own} ${typeof score(row) === "number" && html`<span class="soft number">${percent(score(row))}</span>`}</span>
    ${later.map(([step, value]) => html`<span key=${step} class="found"><span class="soft">${step}</span> ${caption(value)}</span>`)}
  </li>`;
}

function Step({ name, value, steps, spent, picture }) {
  const config = steps.get(name);
  const rows = Array.isArray(value) ? value : value?.spans ?? null;
  const isPlaces = rows?.some((row) => row.box || row.polygon || row.start !== undefined || inner(row, steps).length);
  return html`<section class="step" aria-label=${`Step ${name}`}>
    <div class="row"><h2>${name}</h2><a class="soft fine" href=${link("try", config.model.split(":")[0])}>${config.model}</a>${spent !== undefined && html`<span class="soft fine number">${time(spent / 1e3)}</span>`}</div>
    ${rows === null ? html`<p class="answer small">${value ? caption(value) : "Did not run"}</p>`
      : isPlaces ? html`<ol class="places">${rows.slice(0, MOST).map((row, at) => html`<${Row} key=${at} row=${row} at=${at} name=${name} steps=${steps} picture=${picture} />`)}</ol>`
      : rows.length ? html`<p class="answer small">${rows.slice(0, 3).map(caption).join(", ")}</p>` : html`<p class="soft">Nothing found.</p>`}
    ${rows?.length > MOST && html`<p class="soft fine">and ${rows.length - MOST} more</p>`}
  </section>`;
}

export function Steps({ about, predictions, sent, timing, size }) {
  const steps = new Map(about.steps.map((step) => [step.name, step]));
  const answers = Array.isArray(predictions) ? predictions : [predictions];
  const crops = about.steps.filter(({ name }) => !(name in answers[0]) && timing.steps_ms?.[name] !== undefined);
  return html`${answers.map((answer, item) => html`<div key=${item} class="steps">
    ${Object.entries(answer).map(([name, value]) => html`<${Step} key=${name} name=${name} value=${value} steps=${steps} spent=${timing.steps_ms?.[name]} picture=${{ source: item ? null : sent.picture, size }} />`)}
  </div>`)}
  ${crops.length > 0 && html`<p class="soft fine">${crops.map(({ name, model }) => `${name} (${model}) ${time(timing.steps_ms[name] / 1e3)}`).join(" · ")}</p>`}`;
}
