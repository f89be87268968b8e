// Parameters of a request by task: sliders for thresholds and top-k, number fields for limits.
import { html } from "../html.js";
import { digits } from "../format.js";

const share = (name, title) => ({ name, title, kind: "range", min: 0, max: 1, step: 0.01, start: 0.5 });
const whole = (name, title, min, start) => ({ name, title, kind: "number", min, step: 1, start });
const BY_TASK = {
  classification: ({ labels }) => [{ name: "top_k", title: "Classes", kind: "range", min: 1, max: Math.min(20, labels?.length ?? 20), step: 1, start: Math.min(5, labels?.length ?? 5) }],
  detection: () => [share("score_threshold", "Score threshold"), share("iou_threshold", "IoU threshold"), whole("max_detections", "Detections at most", 1, 100)],
  "audio-classification": ({ labels }) => BY_TASK.classification({ labels }),
  vad: () => [share("threshold", "Threshold")],
  segmentation: () => [share("threshold", "Threshold"), whole("min_area", "Smallest area, pixels", 0, 0)],
};

export function Parameters({ about, values, onChange }) {
  const rows = BY_TASK[about.task]?.(about) ?? [];
  if (!rows.length) return null;
  return html`<fieldset class="parameters"><legend>Parameters</legend>
    ${rows.map(({ name, title, kind, start, ...limits }) => html`<label key=${name}><span>${title}</span>
      <input class=${kind === "number" ? "field dim mono" : ""} type=${kind} ...${limits} value=${values[name] ?? (kind === "number" ? "" : start)} placeholder="auto" onInput=${(event) => onChange({ [name]: event.target.value === "" ? undefined : event.target.value })} />
      <output class="number soft">${values[name] === undefined ? "as configured" : kind === "range" ? digits(Number(values[name])) : ""}</output></label>`)}
    ${rows.some(({ name }) => values[name] !== undefined) && html`<button class="button quiet small" onClick=${() => onChange(Object.fromEntries(rows.map(({ name }) => [name, undefined])))}>Reset</button>`}
  </fieldset>`;
}
