// Overview of the graph with the visible window; click or drag to move it. Hidden while the whole graph is visible.
import { html, useEffect, useRef } from "../html.js";

const WIDTH = 148;
const HEIGHT = 196;

export function Minimap({ layout, view, onWindow }) {
  const frame = useRef(null);
  const k = Math.min(WIDTH / Math.max(1, layout.width), HEIGHT / Math.max(1, layout.height));
  const size = [Math.max(36, layout.width * k), Math.max(36, layout.height * k)];
  const left = (size[0] - layout.width * k) / 2;
  useEffect(() => onWindow(({ x, y, width, height }) => {
    if (!frame.current) return;
    const place = { x: x * k + left, y: y * k, width: width * k, height: height * k };
    for (const [name, value] of Object.entries(place)) frame.current.setAttribute(name, value);
    const isAll = x <= 0 && y <= 0 && x + width >= layout.width && y + height >= layout.height;
    frame.current.ownerSVGElement.style.visibility = isAll ? "hidden" : "visible";
  }), [layout]);
  const go = (event) => {
    if (event.type === "pointermove" && !event.buttons) return;
    const box = event.currentTarget.getBoundingClientRect();
    const [x, y] = [(event.clientX - box.left - left) / k, (event.clientY - box.top) / k];
    view.set(view.width / 2 - x * view.k, view.height / 2 - y * view.k, view.k);
  };
  return html`<svg class="minimap" width=${size[0]} height=${size[1]} aria-hidden="true" onPointerDown=${go} onPointerMove=${go}>
    ${layout.nodes.map((node) => html`<rect key=${node.id} class=${`family-${node.family} fill`} x=${node.x * k + left} y=${node.y * k} width=${Math.max(1.5, node.width * k)} height=${Math.max(1.2, node.height * k)} rx="1" />`)}
    <rect ref=${frame} class="window" rx="2" />
  </svg>`;
}
