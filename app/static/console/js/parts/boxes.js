// Picture that was sent, with boxes, polygons, masks and key points, or a mask of the whole picture, over it.
import { html, useState } from "../html.js";
import { percent } from "../format.js";

const COLOURS = ["#e11d48", "#2563eb", "#059669", "#c2410c", "#7c3aed", "#0e7490", "#a16207", "#be185d"];
const TALL = 368;
export const colourOf = (index) => COLOURS[index % COLOURS.length];

// Points that the model is sure of; those without a score are all shown.
const isVisible = ([x, y, score]) => x !== null && y !== null && (score === undefined || score >= 0.5);

// Mask of an object, which covers the whole pixels of its box.
function Inside({ id, box: [x0, y0, x1, y1], mask, colour }) {
  const [left, top] = [Math.floor(x0), Math.floor(y0)];
  const place = { x: left, y: top, width: Math.ceil(x1) - left, height: Math.ceil(y1) - top };
  return html`<mask id=${id} maskUnits="userSpaceOnUse" ...${place}><image ...${place} preserveAspectRatio="none" href=${`data:image/png;base64,${mask}`} /></mask>
    <rect class="inside" ...${place} fill=${colour} fill-opacity="0.45" mask=${`url(#${id})`} />`;
}

// Text that was read, over the place where it was: as long as the side of its polygon, and as steep.
function Written({ polygon: [[x0, y0], [x1, y1], , [x3, y3]], text }) {
  const [across, down] = [Math.hypot(x1 - x0, y1 - y0), Math.hypot(x3 - x0, y3 - y0)];
  const isTall = down > 1.5 * across;
  const [from, along, tall] = isTall ? [[x1, y1], down, across] : [[x0, y0], across, down];
  const angle = isTall ? Math.atan2(y3 - y0, x3 - x0) : Math.atan2(y1 - y0, x1 - x0);
  return html`<g class="written" transform=${`translate(${from.join(" ")}) rotate(${(180 * angle) / Math.PI})`}>
    <rect width=${along} height=${tall} /><text x="0" y=${0.78 * tall} font-size=${0.8 * tall} textLength=${along} lengthAdjust="spacingAndGlyphs">${text}</text></g>`;
}

// places: predictions of a pipeline with boxes or polygons; others are found in the answer by the task.
export function Boxes({ source, found, task, places, onSize }) {
  const [size, setSize] = useState(null);
  const [isWritten, setWritten] = useState(true);
  const loaded = ({ target: { naturalWidth, naturalHeight } }) => { setSize([naturalWidth, naturalHeight]); onSize?.([naturalWidth, naturalHeight]); };
  const boxes = places ?? (task === "detection" && Array.isArray(found?.predictions) ? found.predictions : []);
  const isText = boxes.some(({ text }) => text);
  const mask = task === "segmentation" && found?.predictions?.mask;
  const unit = size ? Math.max(...size) / 100 : 1;
  const ratio = size ? size[0] / size[1] : 1;
  return html`<div class="picture" style=${{ aspectRatio: String(ratio), width: `min(100%, ${Math.round(TALL * ratio)}px)` }}><img src=${source} alt="Picture sent" class=${size && Math.max(...size) < 200 ? "coarse" : ""} onLoad=${loaded} />
    ${mask && html`<img class="mask" src=${`data:image/png;base64,${mask}`} alt="Mask of the predicted classes" />`}
    ${size && boxes.length > 0 && html`<svg class="boxes" viewBox=${`0 0 ${size[0]} ${size[1]}`} role="img" aria-label=${`${boxes.length} found`}>
      ${boxes.map(({ box: [x0, y0, x1, y1], label, score, index, polygon, mask, keypoints, text }, at) => html`<g key=${at}>
        ${mask && html`<${Inside} id=${`mask-${at}`} box=${[x0, y0, x1, y1]} mask=${mask} colour=${colourOf(index)} />`}
        ${polygon?.length
          ? html`<polygon points=${polygon.map((point) => point.join(",")).join(" ")} fill=${colourOf(index)} fill-opacity="0.15" stroke=${colourOf(index)} stroke-width=${unit * 0.35} />`
          : html`<rect x=${x0} y=${y0} width=${x1 - x0} height=${y1 - y0} fill="none" stroke=${colourOf(index)} stroke-width=${unit * 0.7} rx=${unit * 0.6} />`}
        ${keypoints?.filter(isVisible).map(([x, y], point) => html`<circle key=${point} cx=${x} cy=${y} r=${unit * 0.8} fill=${colourOf(index)} stroke="#fff" stroke-width=${unit * 0.2} />`)}
        ${isWritten && text && polygon?.length === 4 && html`<${Written} polygon=${polygon} text=${text} />`}
        ${!polygon?.length && html`<rect x=${x0} y=${Math.max(0, y0 - unit * 4.6)} width=${unit * (2.1 * `${label} ${percent(score)}`.length + 1.6)} height=${unit * 4.6} fill=${colourOf(index)} rx=${unit * 0.6} />
        <text x=${x0 + unit} y=${Math.max(unit * 4.6, y0) - unit * 1.3} font-size=${unit * 3.4} fill="#fff">${label} ${percent(score)}</text>`}
      </g>`)}
    </svg>`}
    ${isText && html`<button class="button small over-picture" aria-pressed=${String(isWritten)} onClick=${() => setWritten(!isWritten)}>Text</button>`}
  </div>`;
}
