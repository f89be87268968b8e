// Graph as SVG: cards and lines near the window, with text only at readable zoom.
import { html } from "../html.js";
import { shape } from "../format.js";

// Zoom levels: titles in four sizes, and from the last on all details.
export const LEVELS = [0.15, 0.22, 0.33, 0.5];
export const READABLE = 0.33;
// Font sizes of a card's title at each level without details.
const LETTERS = [0, 56, 48, 33];
const [SHARE, SMALLEST, ADVANCE] = [0.7, 0.85, 0.58];

const short = { float32: "f32", float64: "f64", float16: "f16", bfloat16: "bf16", int64: "i64", int32: "i32", int16: "i16", int8: "i8", uint8: "u8", bool: "bool" };
export const dtype = (name) => short[name] ?? name ?? "";

export function pathOf(stroke) {
  let [x, y] = stroke[0];
  let path = `M${x} ${y}`;
  for (const [toX, toY] of stroke.slice(1)) {
    if (toX === x) path += `V${toY}`;
    else if (toY === y) path += `H${toX}`;
    else path += `C${x} ${(y + toY) / 2} ${toX} ${(y + toY) / 2} ${toX} ${toY}`;
    [x, y] = [toX, toY];
  }
  return path;
}

const head = ([x, y]) => `M${x} ${y}l-3.4-7h6.8z`;

// Title as large as fits its card; cut if too long.
function FarTitle({ node, level }) {
  const title = node.kind === "fold" ? node.title : node.title.replace(/^(nn|F|torch|Tensor|pnnx)\./, "");
  const most = Math.min(LETTERS[level], node.height * SHARE);
  const size = Math.max(SMALLEST * most, Math.min(most, (node.width - 10) / (title.length * ADVANCE)));
  const room = Math.floor((node.width - 10) / (size * ADVANCE));
  if (room < 3) return null;
  const text = title.length <= room ? title : `${title.slice(0, room - 1)}…`;
  return html`<text class="title far" x=${node.width / 2} y=${node.height / 2 + size * 0.36} text-anchor="middle" style=${{ fontSize: `${size}px` }}>${text}</text>`;
}

function Node({ node, level, heat, isSelected, isFound, isDim, onPick, onToggle }) {
  const kinds = ["node", node.kind, `family-${node.family}`, isSelected && "selected", isFound && "found", isDim && "dim", heat !== undefined && "hot"];
  const isPill = node.kind === "pill";
  const isNear = level === LEVELS.length;
  const isHot = heat !== undefined;
  const { width, height } = node;
  const corner = isPill ? height / 2 : 8;
  return html`<g class=${kinds.filter(Boolean).join(" ")} transform=${`translate(${node.x} ${node.y})`} data-id=${node.id} onClick=${() => onPick(node)} onDblClick=${() => node.kind === "fold" && onToggle(node.id)}>
    ${node.kind === "fold" && html`<rect class="behind" x="7" y="7" width=${width} height=${height} rx=${corner} /><rect class="behind" x="3.5" y="3.5" width=${width} height=${height} rx=${corner} />`}
    <rect class=${isPill || (!isNear && !isHot) ? "fill" : "body"} width=${width} height=${height} rx=${corner} />
    ${isHot && html`<rect class="heat" width=${width} height=${height} rx=${corner} opacity=${heat} />`}
    ${!isPill && (isNear || isHot) && html`<path class="fill" d=${isNear ? `M0 26V8a8 8 0 0 1 8-8H${width - 8}a8 8 0 0 1 8 8V26z` : `M0 ${height - 8}V8a8 8 0 0 1 8-8H14V${height}H8a8 8 0 0 1-8-8z`} />`}
    ${!isNear && level > 0 && html`<${FarTitle} node=${node} level=${level} />`}
    ${isNear && html`<text class="title" x=${isPill ? width / 2 : 12} y=${isPill ? 17 : 17.5} text-anchor=${isPill ? "middle" : "start"}>${node.title}</text>`}
    ${isNear && !isPill && node.lines.map((line, at) => html`<text key=${at} class=${at ? "line" : "line first"} x="12" y=${43 + 16 * at}>${line}</text>`)}
    ${isNear && node.note && html`<text class="note" x=${width + (node.kind === "fold" ? 16 : 8)} y="17.5">${node.note}</text>`}
    ${node.kind === "fold" && isNear && html`<g class="plus" transform=${`translate(${width - 22} 5)`} onClick=${(event) => { event.stopPropagation(); onToggle(node.id); }}>
      <rect width="16" height="16" rx="4" /><path d="M8 4.5v7M4.5 8h7" /></g>`}
    <rect class="rim" width=${width} height=${height} rx=${corner} />
  </g>`;
}

function Edge({ edge, from, isLit, isLabelled }) {
  const label = [edge.shape && shape(edge.shape), dtype(edge.dtype)].filter(Boolean).join(" ");
  return html`<g class=${isLit ? "edge lit" : "edge"}>
    <path class="stroke" d=${edge.strokes.map(pathOf).join("")} />
    <path class="arrow" d=${edge.heads.map(head).join("")} />
    ${isLabelled && label && html`<text x=${from.x + from.width / 2 + 7} y=${from.y + from.height + (from.kind === "fold" ? 20 : 15)}>${label}</text>`}
  </g>`;
}

const overlaps = (a, b) => a.x < b.x + b.width && a.x + a.width > b.x && a.y < b.y + b.height && a.y + a.height > b.y;

export function boundsOf(edge) {
  const points = edge.strokes.flat();
  const [xs, ys] = [points.map(([x]) => x), points.map(([, y]) => y)];
  const [x, y] = [Math.min(...xs), Math.min(...ys)];
  return { x, y, width: Math.max(...xs) - x + 1, height: Math.max(...ys) - y + 1 };
}

function Frame({ frame, level, onToggle }) {
  const gap = 14;
  const [x, y, width] = [frame.x - gap, frame.y - gap, frame.width + 2 * gap];
  return html`<g class="frame">
    <rect x=${x} y=${y} width=${width} height=${frame.height + 2 * gap} rx="14" />
    ${level > 0 && !frame.part && html`<g class="plus" transform=${`translate(${x + width + 5} ${y + 2})`} onClick=${() => onToggle(frame.id)}><rect width="18" height="18" rx="5" /><path d="M5.5 9h7" /><title>Fold</title></g>`}
  </g>`;
}

export function Drawing({ layout, seen, level, selected, found, heat, notes, onPick, onToggle }) {
  const lit = new Set();
  const chosen = layout.nodes.findIndex(({ id }) => id === selected);
  const edges = layout.edges.filter((edge) => overlaps(edge.bounds, seen));
  const sources = new Map();
  for (const edge of layout.edges) {
    sources.set(edge.source, (sources.get(edge.source) ?? 0) + 1);
    if (edge.source === chosen || edge.targets.includes(chosen)) lit.add(edge);
  }
  return html`
    ${layout.open.map((frame) => html`<${Frame} key=${`${frame.id} ${frame.part ?? 0}`} frame=${frame} level=${level} onToggle=${onToggle} />`)}
    ${edges.map((edge) => html`<${Edge} key=${`${edge.operand} ${edge.source}`} edge=${edge} from=${layout.nodes[edge.source]} isLit=${lit.has(edge)} isLabelled=${level === LEVELS.length && sources.get(edge.source) === 1} />`)}
    ${layout.nodes.filter((node) => overlaps(node, seen)).map((node) => html`<${Node} key=${node.id} node=${notes ? { ...node, note: notes.get(node.id) } : node} level=${level} heat=${heat?.get(node.id)}
      isSelected=${node.id === selected} isFound=${found?.has(node.id)} isDim=${found && !found.has(node.id)} onPick=${onPick} onToggle=${onToggle} />`)}`;
}
