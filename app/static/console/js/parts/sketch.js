// Drawing pad: light strokes on a dark ground, as in datasets of handwritten digits.
import { html, useEffect, useRef } from "../html.js";

const SIDE = 256;

export function Sketch({ onPicture }) {
  const canvas = useRef(null);
  const clear = () => {
    const pen = canvas.current.getContext("2d");
    pen.fillStyle = "#000";
    pen.fillRect(0, 0, SIDE, SIDE);
  };
  useEffect(clear, []);
  const place = (event) => {
    const box = canvas.current.getBoundingClientRect();
    return [((event.clientX - box.left) * SIDE) / box.width, ((event.clientY - box.top) * SIDE) / box.height];
  };
  const last = useRef(null);
  const begin = (event) => { canvas.current.setPointerCapture(event.pointerId); last.current = place(event); move(event); };
  const move = (event) => {
    if (!last.current) return;
    const pen = canvas.current.getContext("2d");
    const [x, y] = place(event);
    Object.assign(pen, { strokeStyle: "#fff", lineWidth: 24, lineCap: "round", lineJoin: "round" });
    pen.beginPath();
    pen.moveTo(...last.current);
    pen.lineTo(x, y);
    pen.stroke();
    last.current = [x, y];
  };
  const end = () => {
    if (!last.current) return;
    last.current = null;
    canvas.current.toBlob(onPicture, "image/png");
  };
  return html`<div class="sketch">
    <canvas ref=${canvas} width=${SIDE} height=${SIDE} role="img" aria-label="Draw here" onPointerDown=${begin} onPointerMove=${move} onPointerUp=${end} onPointerCancel=${end}></canvas>
    <button class="button small" onClick=${clear}>Clear</button>
  </div>`;
}
